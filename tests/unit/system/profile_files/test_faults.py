"""Faults of a bad profile: file, line, key and remedy."""

import os
import socket
from pathlib import Path

import pytest

from appliance.model.errors import ProfileError
from appliance.system.profile_files.loading import load_profile, load_profiles, parse_profile
from tests.fakes.profile_texts import MINIMAL


def faults(text: str, name: str = "genesis") -> list[str]:
    """The lines of the error that `text` gets."""
    with pytest.raises(ProfileError) as caught:
        parse_profile(name, text.encode())
    return str(caught.value).splitlines()


VLLM = MINIMAL["vllm"]
LLAMA = MINIMAL["llama-server"]
SGLANG = MINIMAL["sglang"]
EMBEDDED = MINIMAL["xllamacpp"]
COMMAND = 'engine = "command"\nport = 8104\n[command]\nargv = {}\n'


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (VLLM + "ctxsize = 1\n", 'genesis.toml:5: unknown key "ctxsize"; did you mean "ctx"?'),
        (
            VLLM + "tensor_paralel = 2\n",
            'genesis.toml:5: unknown key "tensor_paralel"; did you mean "tensor_parallel" in [vllm]?',
        ),
        (VLLM + "xyzzy = 1\n", 'genesis.toml:5: unknown key "xyzzy"'),
        (
            VLLM + "[vllm]\nport = 1\n",
            'genesis.toml:6: unknown key "port"; did you mean "port" at the top?',
        ),
        (
            VLLM + "[vllm]\n\n# here\nenforce_egar = true\n",
            'genesis.toml:8: unknown key "enforce_egar"; did you mean "enforce_eager"?',
        ),
        (VLLM.replace('model = "/m"\n', ""), 'genesis.toml:1: "model" is missing: a path, or hf:owner/name'),
        (VLLM + 'ctx = "1"\n', 'genesis.toml:5: ctx is a whole number, not "1"'),
        (VLLM + "ctx = 1.5\n", "genesis.toml:5: ctx is a whole number, not 1.5"),
        (VLLM + "ctx = true\n", "genesis.toml:5: ctx is a whole number, not true"),
        (VLLM + "ctx = 0\n", "genesis.toml:5: ctx is at least 16, not 0"),
        (VLLM + f"ctx = 0x{'f' * 50}\n", "genesis.toml:5: ctx is at most 16777216, not a huge number"),
        (VLLM.replace("8101", "80"), "genesis.toml:4: port is at least 1024, not 80"),
        (VLLM.replace("8101", "70000"), "genesis.toml:4: port is at most 65535, not 70000"),
        (
            VLLM.replace('"vllm"', '"vlm"'),
            ('genesis.toml:1: engine is "llama-server", "ik-llama-server", "vllm", "sglang", "xllamacpp" or "command", '
             'not "vlm"; did you mean "vllm"?'),
        ),
        (VLLM + "env = 3\n", "genesis.toml:5: env is a table, not 3"),
        (VLLM + "[env]\nA = 3\n", "genesis.toml:6: env.A is text in quotes, not 3"),
        (
            VLLM + '[env]\n"A B" = "3"\n',
            'genesis.toml:6: env "A B" is not the name of an environment variable',
        ),
        (
            VLLM + '[env]\nA = "x\\ny"\n',
            "genesis.toml:6: env.A contains a line break or another control character",
        ),
        (VLLM + "served = []\n", "genesis.toml:5: served has too few items"),
        (VLLM + 'served = ["a", "a"]\n', 'genesis.toml:5: served names "a" twice'),
        (
            VLLM + 'served = ["a",\n  "b c"]\n',
            'genesis.toml:6: served, item 2, "b c" is not a model name or pattern: letters, digits and ._:/@+*?-',
        ),
        (
            VLLM + 'description = "a\\u0000b"\n',
            "genesis.toml:5: description contains a line break or another control character",
        ),
        (
            VLLM + "description = 'a\\'\n",
            ("genesis.toml:5: description ends in a backslash, which would join two lines of a unit "
             "file"),
        ),
        (VLLM + "gpus = 2\n", 'genesis.toml:5: gpus 2 is neither "all" nor a list of GPU indexes such as [0, 1]'),
        (VLLM + "gpus = [0, 0]\n", "genesis.toml:5: gpus names a GPU twice"),
        (VLLM + 'need = { vram = "18" }\n', 'genesis.toml:5: need.vram "18" is not a size such as "18.6GiB"'),
        (
            VLLM + '[deadlines]\nstop = "soon"\n',
            'genesis.toml:6: deadlines.stop "soon" is not a duration such as "90s" or "5m"',
        ),
        (VLLM + '[deadlines]\nstop = "10ms"\n', "genesis.toml:6: deadlines.stop is shorter than a second"),
        (VLLM + 'user = "root"\n', 'genesis.toml:5: user "root" is refused: a backend never runs as root'),
        (
            VLLM.replace("/opt/v", "opt/v"),
            'genesis.toml:2: binary "opt/v" is not an absolute path without ..',
        ),
        (
            VLLM.replace("/opt/v", "/opt/../v"),
            'genesis.toml:2: binary "/opt/../v" is not an absolute path without ..',
        ),
        (
            VLLM.replace('"/m"', '"m"'),
            'genesis.toml:3: "m" is neither an absolute path nor hf:owner/name',
        ),
        (
            VLLM.replace('"/m"', '"hf:m"'),
            'genesis.toml:3: "hf:m" is not of the form hf:owner/name',
        ),
        ('port = 8000\nmodel = "/m"\n', 'genesis.toml:1: "engine" is missing'),
        (
            VLLM.replace('binary = "/opt/v"\n', ""),
            'genesis.toml:1: "binary" is missing: the absolute path of the vllm program',
        ),
        (
            VLLM.replace("port = 8101\n", ""),
            "genesis.toml:1: port or socket is missing: set one of them",
        ),
        (VLLM + 'socket = "/run/x"\n', "genesis.toml:5: port and socket exclude each other: keep one"),
        (
            VLLM + f'socket = "/run/{"x" * 120}"\n',
            "genesis.toml:5: socket is longer than the 107 bytes a socket's path may have",
        ),
        (VLLM + "[sglang]\n", "genesis.toml:5: [sglang] is for another engine: this profile's is vllm"),
        (VLLM + "port = 1\n", "genesis.toml:5: a key is given twice: remove one of them"),
        (VLLM + "[env]\n[env]\n", "genesis.toml:6: a table is given twice: join the two"),
        (VLLM + "ctx = \n", "genesis.toml:5: not TOML: invalid value"),
        (VLLM + f"ctx = {'[' * 20}\n", "genesis.toml:5: nests deeper than 8 levels"),
        (VLLM + f"{'a.' * 20}a = 1\n", "genesis.toml:5: nests deeper than 8 levels"),
        (VLLM + f"ctx = {'1' * 5000}\n", "genesis.toml: contains a number that no program can hold"),
        (VLLM + 'kv = { k = "f16" }\n', 'genesis.toml:5: kv is neither a type such as "q8_0" nor { k = "…", v = "…" }'),
        (VLLM + 'kv = { k = "f16", v = "fp8" }\n', "genesis.toml:5: vllm has one type for keys and values: write kv as one word"),
        (
            VLLM + 'kv = "q8_0"\n',
            ('genesis.toml:5: kv "q8_0" is unknown to vllm: use one of auto, bf16, f16, fp8, fp8_e4m3, '
             "fp8_e5m2, fp8_ds_mla, fp8_per_token_head, int4_per_token_head, int8_per_token_head, nvfp4, "
             "nvfp4_4over6, nvfp4_ds_mla, turboquant_k8v4, turboquant_4bit_nc, turboquant_k3v4_nc, turboquant_3bit_nc, "
                "octave_k3v4, octave_k3v3, octave_k3v3_compact, ultraquant_4bit"),
        ),
        (
            VLLM + 'kv = "f16"\n[vllm]\ndtype = "bfloat16"\n',
            ('genesis.toml:5: vLLM takes a cache of "f16" only for a model that runs in that type: '
             'set dtype = "float16" in [vllm], or kv = "auto"'),
        ),
        (
            VLLM + 'kv = "bf16"\n',
            ('genesis.toml:5: vLLM takes a cache of "bf16" only for a model that runs in that type: '
             'set dtype = "bfloat16" in [vllm], or kv = "auto"'),
        ),
        (
            SGLANG + 'kv = "f16"\n',
            ('genesis.toml:5: kv "f16" is unknown to sglang: use one of auto, bf16, fp8, fp8_e4m3, fp8_e5m2, '
             "mxfp8, nvfp4, fp4_mx_block16"),
        ),
        *(
            (
                text + f'speculative = {{ method = "{method}", tokens = 3 }}\n',
                (f'genesis.toml:5: "{method}" drafts with a model of its own, and {engine} does not start '
                "without one: set speculative.model"),
            )
            for engine, text, methods in (
                ("llama-server", LLAMA, ("eagle3", "dflash", "dspark", "draft")),
                ("vllm", VLLM, ("eagle", "eagle3", "dflash", "draft")),
                ("sglang", SGLANG, ("eagle3", "dflash", "standalone", "EAGLE3")),
            )
            for method in methods
        ),
        (
            VLLM + 'speculative = { method = ["mtp", "ngram"], tokens = 3 }\n',
            "genesis.toml:5: vllm drafts by one method: keep one",
        ),
        (
            VLLM + 'speculative = { method = "mtp" }\n',
            "genesis.toml:5: tokens is missing: the number that is drafted in each step",
        ),
        (
            LLAMA + 'speculative = { method = "ngram-mod", model = "/d.gguf" }\n',
            "genesis.toml:5: no model drafts here: remove it",
        ),
        (
            VLLM + 'speculative = { method = "mtp", tokens = 3, gpu_layers = 4 }\n',
            "genesis.toml:5: vllm cannot set this: remove it",
        ),
        (
            LLAMA + 'speculative = { method = "ngram-mod", ngram = { hits = 4 } }\n',
            "genesis.toml:5: llama-server has no such size for ngram-mod: remove it",
        ),
        (
            LLAMA + 'speculative = { method = "mtp", tokens = 3, kv = "fp8" }\n',
            ('genesis.toml:5: kv "fp8" is unknown to llama-server: use one of f32, f16, bf16, q8_0, q5_1, '
             "q5_0, q4_1, q4_0, iq4_nl"),
        ),
        (
            SGLANG + 'speculative = { method = "mtp", tokens = 3, kv = "nvfp4" }\n',
            'genesis.toml:5: kv "nvfp4" is unknown to sglang: use one of auto, bf16, fp8, fp8_e4m3, fp8_e5m2',
        ),
        (
            VLLM + 'speculative = { method = ["mtp", "mtp"], tokens = 3 }\n',
            'genesis.toml:5: speculative.method names "mtp" twice',
        ),
        (
            VLLM + "speculative = { method = [1], tokens = 3 }\n",
            "genesis.toml:5: speculative.method a list is neither a word nor a list of words",
        ),
        (
            VLLM + 'speculative = { method = "eagle3", tokens = 3, model = "../d" }\n',
            'genesis.toml:5: speculative.model "../d" is neither an absolute path nor hf:owner/name',
        ),
        *(
            (
                VLLM + f"thinking = {value}\n",
                'genesis.toml:5: thinking is neither "off", "on" nor { budget = 2048 }',
            )
            for value in ("true", '"auto"', "{ budget = 0 }", "{ budget = true }", "{ tokens = 4 }", "{ budget = 1, x = 1 }")
        ),
        *(
            (
                text + "thinking = { budget = 9 }\n",
                f"genesis.toml:5: {engine} ends a thought by its reasoning parser: set reasoning_parser",
            )
            for engine, text in (("vllm", VLLM), ("sglang", SGLANG))
        ),
        (
            VLLM + "gpus = [0]\n[vllm]\ntensor_parallel = 2\n",
            "genesis.toml:7: the model is split over 2 GPUs, the profile claims 1",
        ),
        (
            LLAMA + 'tool_parser = "x"\n',
            ("genesis.toml:5: llama-server reads tool calls by the model's own template: remove "
             "tool_parser"),
        ),
        (
            VLLM + "tools = true\n",
            "genesis.toml:5: vllm reads no tool calls without a parser: set tool_parser",
        ),
        (
            LLAMA + "[llama-server]\nubatch = 4096\n",
            "genesis.toml:6: ubatch 4096 is above batch 2048, which would clamp it: raise batch",
        ),
        (
            LLAMA + '[llama-server]\ncpus = "4-2"\n',
            'genesis.toml:6: llama-server.cpus "4-2" is not a list or range such as "0,2,4-9"',
        ),
        (
            LLAMA + "gpus = []\n[llama-server]\ngpu_layers = 3\n",
            "genesis.toml:7: this profile claims no GPU: set gpus, or remove gpu_layers",
        ),
        (
            LLAMA + 'gpus = []\nneed = { vram = "1GiB" }\n',
            "genesis.toml:6: this profile claims no GPU: remove need.vram, or set gpus",
        ),
        (
            LLAMA + "gpus = []\nneed = { assume_free = true }\n",
            "genesis.toml:6: this profile claims no GPU: remove need.assume_free, or set gpus",
        ),
        (EMBEDDED + "gpus = [0]\n", "genesis.toml:4: the embedded engine runs on the CPU: set gpus = []"),
        (EMBEDDED + 'thinking = "off"\n', "genesis.toml:4: the embedded engine has no thinking: remove it"),
        (
            'engine = "command"\nport = 8000\n',
            "genesis.toml:1: engine command needs a table [command] with argv",
        ),
        (COMMAND.format('["relative", "{port}"]'), 'genesis.toml:4: command.argv "relative" is not an absolute path without ..'),
        (
            COMMAND.format('["/opt/c"]'),
            "genesis.toml:4: no {port} in argv: the program would not know where to listen",
        ),
        (
            COMMAND.format('["/opt/c", "{port}",\n "--host", "0.0.0.0"]'),
            ('genesis.toml:5: "0.0.0.0" is refused: the address is always the appliance\'s: a backend '
             "listens on loopback only"),
        ),
        *(
            (
                VLLM + f'[order]\nafter = ["{unit}"]\n',
                f'genesis.toml:6: "{unit}" is not a unit that a model may wait for, such as network-online.target',
            )
            for unit in ("net", "shutdown.target", "multi-user.target", "systemd-halt.service", "debug-shell.service")
        ),
        *(
            (
                VLLM + f'[patch]\ncommand = ["/opt/p"]\nwritable = ["{path}"]\n',
                (f'genesis.toml:7: "{path}" is a directory of the system or the appliance, or a whole home: '
                "a patch may change a copy of its own, such as /opt/engine"),
            )
            for path in ("/", "/etc", "/home/ana", "/opt", "/usr/lib/python3", "/var/lib/appliance/needs", "/run")
        ),
        (COMMAND.format('["/opt/c", "{port}", "{socket}"]'), "genesis.toml:4: argv names {socket}, the profile sets port"),
        (COMMAND.format('["/opt/c", "{port}", "{model}"]'), "genesis.toml:4: argv names {model}: set the key model"),
        ("parallel = 2\n" + MINIMAL["command"], "genesis.toml:1: a command says this itself: remove parallel, and put it into argv"),
        ('binary = "/opt/c"\n' + MINIMAL["command"], "genesis.toml:1: the program is the first of argv: remove binary"),
        ('extra_args = ["-v"]\n' + MINIMAL["command"], "genesis.toml:1: put them into argv: remove extra_args"),
        (LLAMA + 'kv = "fp8"\n', 'genesis.toml:5: kv "fp8" is unknown to llama-server: use one of f32, f16, bf16, q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl'),
        (LLAMA.replace("port = 8100", 'socket = "/run/l"'), "genesis.toml:4: llama-server takes an address for a socket only if the address ends in .sock"),
        (
            LLAMA + "[llama-server]\nkv_unified = true\n",
            "genesis.toml:6: one request at a time shares no cache: set parallel, or remove kv_unified",
        ),
        (LLAMA + 'tool_parser = "hermes"\n', "genesis.toml:5: llama-server reads tool calls by the model's own template: remove tool_parser"),
        (
            LLAMA + "[llama-server]\nlegacy_options = true\n",
            "genesis.toml:6: legacy_options is gone (the program itself is asked which options it has): remove it, as appliance edit does",
        ),
        (
            LLAMA + "gpus = []\n[llama-server]\ngpu_layers = 9\n",
            "genesis.toml:7: this profile claims no GPU: set gpus, or remove gpu_layers",
        ),
        (
            LLAMA + 'gpus = []\n[llama-server]\ncpu_experts = "0-3"\n',
            "genesis.toml:7: without GPUs all experts are in host RAM: remove cpu_experts",
        ),
        (
            LLAMA + '[llama-server]\nmlock = true\nload_mode = "none"\n',
            'genesis.toml:6: load_mode is "none": keep one of the two',
        ),
        (
            LLAMA + '[llama-server]\nn_cpu_moe = 3\ncpu_experts = "0-3"\n',
            "genesis.toml:6: cpu_experts names layers too: keep one of the two",
        ),
        (
            LLAMA + "gpus = [0, 1]\n[llama-server]\nmain_gpu = 2\n",
            "genesis.toml:7: main_gpu counts the claimed GPUs from 0, and there are fewer",
        ),
        (
            LLAMA + '[llama-server]\noverride_tensor = ["exps"]\n',
            ('genesis.toml:6: llama-server.override_tensor, item 1, "exps" is not a pattern of tensors and a buffer, such '
             r"as blk\.[0-9]\.ffn_.*_exps\.=CPU"),
        ),
        (
            VLLM + "sampling = { top_p = 0.5 }\n[vllm]\noverride_generation_config = { top_p = 1 }\n",
            "genesis.toml:7: top_p is also in sampling: keep one of the two",
        ),
        (
            SGLANG + "sampling = { temperature = 0 }\n",
            ("genesis.toml:5: sglang takes no default of temperature: set it for every request in "
             "[gateway] set"),
        ),
        (
            EMBEDDED + "sampling = { temperature = 0 }\n",
            "genesis.toml:4: the embedded engine takes no defaults of sampling: set them in [gateway] set",
        ),
        (
            "sampling = { temperature = 0 }\n" + MINIMAL["command"],
            "genesis.toml:1: a command says this itself: remove sampling, and put it into argv",
        ),
        (
            VLLM + "[vllm]\nlimit_mm_per_prompt = { image = nan }\n",
            'genesis.toml:6: vllm.limit_mm_per_prompt "image" has a value that JSON cannot hold: nan',
        ),
        (
            VLLM + "[vllm]\nlimit_mm_per_prompt = 3\n",
            "genesis.toml:6: vllm.limit_mm_per_prompt is not a table",
        ),
        (
            VLLM + f'[vllm]\nhf_overrides = {{ a = "{"x" * 4000}", b = "{"x" * 4000}", c = "{"x" * 400}" }}\n',
            "genesis.toml:6: vllm.hf_overrides is longer than 8192 characters as JSON",
        ),
        (SGLANG.replace("port = 8102", 'socket = "/run/s.sock"'), "genesis.toml:4: sglang listens on a port only: set port"),
        (SGLANG + 'served = ["a", "b"]\n', "genesis.toml:5: sglang answers to one name only: keep one"),
        (
            SGLANG + 'speculative = { method = "medusa", tokens = 2 }\n',
            ('genesis.toml:5: "medusa" is unknown to sglang: use one of mtp, eagle, eagle3, dflash, dspark, '
             "standalone, draft, ngram, NEXTN, EAGLE, EAGLE3, DFLASH, DSPARK, STANDALONE, NGRAM"),
        ),
        (
            VLLM.replace('"/m"', '"hf:owner/name:Q4"'),
            "genesis.toml:3: vLLM names no quantisation in a repository: remove what follows the colon",
        ),
        (EMBEDDED + 'extra_args = ["-v"]\n', "genesis.toml:4: the embedded engine takes no further arguments: use engine llama-server"),
        (EMBEDDED + 'binary = "/opt/x"\n', "genesis.toml:4: the embedded engine is part of the appliance: remove binary"),
        (EMBEDDED + 'served = ["a", "b"]\n', "genesis.toml:4: the embedded engine answers to one name only: keep one"),
        (EMBEDDED.replace("port = 8103", 'socket = "/run/s.sock"'), "genesis.toml:3: the embedded engine listens on a port: set port"),
        (VLLM.replace('"/m"', '"hf:owner"'), 'genesis.toml:3: "hf:owner" is not of the form hf:owner/name'),
        (EMBEDDED.replace('"smollm2"', '"hf:owner/name"'), "genesis.toml:2: the embedded engine takes the path of a file"),
        (
            VLLM + '[order]\nafter = ["appliance-boot.service"]\n',
            'genesis.toml:6: "appliance-boot.service": the order among the appliance\'s own units is fixed',
        ),
        (
            VLLM + '[patch]\ncommand = ["python"]\n',
            'genesis.toml:6: patch.command "python" is not an absolute path without ..',
        ),
        (VLLM + "[patch]\ncommand = []\n", "genesis.toml:6: patch.command has too few items"),
        (VLLM + f'description = "{"x" * 4097}"\n', "genesis.toml:5: description is longer than 4096 characters"),
        (VLLM.replace('"/m"', '""'), "genesis.toml:3: model is empty"),
        (VLLM + "[deadlines]\nstop = true\n", 'genesis.toml:6: deadlines.stop true is not a duration such as "90s" or "5m"'),
        (VLLM + "unit = 3\n", "genesis.toml:5: unit is not a table of Section.Key = value"),
        (VLLM + '[unit]\n"a\\u0001.B" = 5\n', r'genesis.toml:5: unit "a\x01.B" contains a control character'),
        (LLAMA + "[llama-server]\ncpus = [-1]\n", 'genesis.toml:6: llama-server.cpus a list is not a list or range such as "0,2,4-9"'),
        (LLAMA + "[llama-server]\ncpus = 5\n", 'genesis.toml:6: llama-server.cpus 5 is not a list or range such as "0,2,4-9"'),
        (LLAMA + '[llama-server]\ngpu_layers = "most"\n', 'genesis.toml:6: llama-server.gpu_layers "most" is neither "all" nor a number of layers'),
        (LLAMA + "[llama-server]\nflash_attn = 1\n", 'genesis.toml:6: llama-server.flash_attn 1 is not "on", "off" or "auto"'),
        (LLAMA + "[llama-server]\nflash_attn = []\n", 'genesis.toml:6: llama-server.flash_attn a list is not "on", "off" or "auto"'),
        (LLAMA + "[llama-server]\ncache_ram = 1\n", 'genesis.toml:6: llama-server.cache_ram 1 is not a size such as "18.6GiB"'),
    ],
)  # fmt: skip
def test_a_fault_names_its_line_and_the_remedy(text: str, fault: str) -> None:
    """Each kind of mistake gets one sentence with the line of the key."""
    assert fault in faults(text)


def test_one_look_at_a_file_finds_everything() -> None:
    """An unknown key does not hide a refused argument, nor the other way round."""
    found = faults(VLLM + 'ctxsize = 1\nextra_args = ["--host", "0.0.0.0"]\nthinkin = "off"\n')
    assert [line.split(":")[1] for line in found] == ["5", "6", "7"]


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ('[unit]\n"Service.ExecStart" = "x"', 6),
        ('[unit]\nService.ExecStart = "x"', 6),
        ('[unit.Service]\nExecStart = "x"', 6),
        ('unit = { "Service.ExecStart" = "x" }', 5),
    ],
)
def test_a_refused_override_is_found_however_it_is_written(entry: str, line: int) -> None:
    """Dotted, quoted and in a table of its own, a key of [unit] has its line."""
    (found,) = faults(f"{VLLM}{entry}\n")
    assert found.startswith(f"genesis.toml:{line}: Service.ExecStart: ")


@pytest.mark.parametrize(
    "entry",
    [
        "unit = 3",
        "[unit]\nService = 3",
        "[unit]\n'a\\u0001.B' = {}",
        "[unit]\nService.Nice = []",
        "[unit]\nService.Nice = true",
        "[unit]\nService.Nice = [[1]]",
        "[unit]\nService.Nice = 1979-05-27",
        '[unit]\nService.Nice = 5\n"Service.Nice" = 6',
        '[unit]\nService.Nice = "5\\nUser=root"',
        "[unit]\nService.Nice = '5\\'",
    ],
)
def test_an_override_that_could_break_out_of_its_line_is_refused(entry: str) -> None:
    """No value of [unit] reaches a unit file as more than one value of one key."""
    assert faults(f"{VLLM}{entry}\n")


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"\x7fELF\0\0", "contains a NUL byte: this is not text"),
        (b"engine = 'vllm'\n\xff\xfe", "is not UTF-8 text: save it as UTF-8"),
        (b"#" * (256 << 10) + b"\n", "larger than 256 KiB: this is no file of settings"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, fault: str) -> None:
    """Binary, wrongly encoded and huge files are refused, whoever reads them."""
    file = tmp_path / "genesis.toml"
    file.write_bytes(content)
    with pytest.raises(ProfileError, match=fault):
        load_profile(file)
    with pytest.raises(ProfileError, match=fault):
        parse_profile("genesis", content)


def test_one_look_finds_everything() -> None:
    """Wrong values hide neither missing keys nor broken rules, and no rule speaks of a key that was left out."""
    text = 'engine = "vllm"\nctx = "1"\nmodel = "m"\n[env]\nPATH = "x"\n[order]\nafter = ["appliance-a.service"]\n'
    assert faults(text) == [
        'genesis.toml:1: "binary" is missing: the absolute path of the vllm program',
        "genesis.toml:1: port or socket is missing: set one of them",
        'genesis.toml:2: ctx is a whole number, not "1"',
        'genesis.toml:3: "m" is neither an absolute path nor hf:owner/name',
        *[
            line
            for line in faults(text.replace('ctx = "1"\n', "#\n"))
            if ":5:" in line or ":7:" in line
        ],
    ]
    # A port that is wrong is not missing, and GPUs that are wrong are not absent.
    assert faults(VLLM.replace("8101", "80")) == ["genesis.toml:4: port is at least 1024, not 80"]
    claim = EMBEDDED + 'gpus = 2\nneed = { vram = "1GiB" }\n'
    assert [line.partition(": ")[2][:6] for line in faults(claim)] == ["gpus 2"]
    assert faults(COMMAND.format('"x"')) == ['genesis.toml:4: command.argv is a list, not "x"']


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """Pipes, directories, sockets, loops and dead links are errors, and nothing waits for them."""
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "directory.toml").mkdir()
    (tmp_path / "loop.toml").symlink_to(tmp_path / "loop.toml")
    (tmp_path / "dead.toml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "device.toml").symlink_to("/dev/zero")
    (tmp_path / "short.toml").symlink_to(_socket_at(tmp_path / "s"))
    assert {name: str(error) for name, error in load_profiles(tmp_path).errors.items()} == {
        "pipe": "pipe.toml: is a pipe, not a file",
        "directory": "directory.toml: is a directory, not a file",
        "loop": "loop.toml: cannot be read: a loop of symbolic links",
        "dead": "dead.toml: cannot be read: No such file or directory",
        "device": "device.toml: is a device, not a file",
        "short": "short.toml: is a socket, not a file",
    }


def _socket_at(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return path


@pytest.mark.parametrize("name", ["Genesis", "-x", "a b", "a%b", "ä", "x" * 49, "a$b", "a@b"])
def test_a_file_whose_name_is_no_profile_name_is_refused(tmp_path: Path, name: str) -> None:
    """A profile's name is safe in unit names and paths, or its file is not read."""
    (tmp_path / f"{name}.toml").write_text(VLLM)
    errors = load_profiles(tmp_path).errors
    assert "is no profile name" in str(errors[name])


def test_a_name_with_control_characters_is_shown_safely(tmp_path: Path) -> None:
    """An error about a file never carries the line breaks of its name."""
    (tmp_path / "a\nb.toml").write_text(VLLM)
    (error,) = load_profiles(tmp_path).errors.values()
    assert len(str(error).splitlines()) == 1
