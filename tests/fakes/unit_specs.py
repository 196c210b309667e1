"""Specs of backend units for tests: one of each kind that matters to a unit file."""

from dataclasses import replace

from appliance.engines.shared.invocation import Invocation
from appliance.engines.vllm import VllmOptions
from appliance.model.claims import Claim
from appliance.model.profile import Applied, Deadlines, Endpoint, Estimate, Need, WarmUp
from appliance.model.profile_values import Gpus, Override
from appliance.model.spec import Ordering, Patch, Profile
from appliance.model.words import Mark
from appliance.switch.units.backend_unit import Layout, UnitSpec

LAYOUT = Layout(version="1.2.3", systemd=252)


def made(name: str, *devices: str, **changes: object) -> Applied:
    """A compiled profile that claims `devices`."""
    base = Applied(
        name=name,
        description=f"the model {name}",
        engine="vllm",
        model=f"/models/{name}",
        model_path=f"/models/{name}",
        binary="/opt/vllm/bin/vllm",
        served=(name,),
        endpoint=Endpoint(port=8022),
        health_path="/health",
        claim=Claim(devices=frozenset(devices)),
        need=Need(),
        deadlines=Deadlines(),
        warm_up=WarmUp.COMPLETION,
        first_mark=Mark.STANDBY,
        source_path=f"/etc/appliance/profiles/{name}.toml",
        source_sha256="0" * 64,
    )
    return replace(base, **changes)  # type: ignore[arg-type]  # a test names real fields


def spec(name: str, *devices: str, nice: str | None = None, **changes: object) -> UnitSpec:
    """A unit for a profile that claims `devices`; `nice`: an override of Service.Nice."""
    overrides = (Override(section="Service", key="Nice", values=(nice,)),) if nice else ()
    gpus: Gpus = "all" if "gpu-all" in devices else ()
    return UnitSpec(
        profile=Profile(
            name=name,
            engine="vllm",
            served=(name,),
            gpus=gpus,
            unit=overrides,
            options=VllmOptions(),
        ),
        applied=made(name, *devices, **{"gpus": gpus, **changes}),
        invocation=Invocation(
            argv=("/opt/vllm/bin/vllm", "serve", f"/models/{name}"),
            environment={},
            health_path="/health",
        ),
    )


def with_keys(spec: UnitSpec, **keys: object) -> UnitSpec:
    """`spec`, whose profile says something else about its unit."""
    changed = replace(spec.profile, **keys)  # type: ignore[arg-type]  # a test names real fields
    return replace(spec, profile=changed)


def started(spec: UnitSpec, **parts: object) -> UnitSpec:
    """`spec`, whose engine is started otherwise."""
    changed = replace(spec.invocation, **parts)  # type: ignore[arg-type]  # a test names real fields
    return replace(spec, invocation=changed)


def one_of_each() -> tuple[UnitSpec, ...]:
    """GPUs with a patch, one GPU, the CPU, a shared one on a socket, one in a home."""
    genesis = with_keys(
        started(
            spec(
                "genesis",
                "gpu-all",
                need=Need(vram_bytes=18 << 30, ram_bytes=4 << 30),
                vram_fraction=0.92,
                fingerprint="0123456789abcdef",
            ),
            environment={
                "HOME": "/var/cache/appliance-backend/genesis",
                "VLLM_HOST_IP": "127.0.0.1",
                "QUOTED": 'a "b" \\ $c 100% é',
            },
        ),
        order=Ordering(mounts=("/models",), after=("network-online.target",)),
        patch=Patch(
            command=("/opt/vllm/bin/python", "-m", "patches", "--all"),
            writable=("/opt/vllm",),
            expect=("P4 TurboQuant hybrid", "TOLIST_CAPTURE_GUARD"),
        ),
        unit=(
            Override(section="Service", key="OOMScoreAdjust", values=("100",)),
            Override(section="Service", key="CPUAffinity", values=("0-7",)),
            Override(section="Unit", key="Wants", values=("network-online.target",)),
        ),
    )
    gemma = started(
        spec(
            "gemma-1gpu",
            "gpu-0",
            estimate=Estimate(vram_bytes=15 << 30, least_vram_bytes=13 << 30, ram_bytes=2 << 30),
            gpu_split=(3.0, 1.5),
            assume_free=True,
            gpus=(0,),
        ),
        argv=("/opt/llama/llama-server", "--chat-template-kwargs", '{"think": "$no", "p": "50%"}'),
    )
    mini = spec("mini", "cpu", endpoint=Endpoint(port=8081), need=Need(ram_bytes=19 << 30))
    embedder = spec("embedder", endpoint=Endpoint(socket="/run/appliance-backend/embedder/e.sock"))
    ana = spec(
        "aeon",
        "gpu-all",
        binary="/home/ana/vllm/bin/vllm",
        model_path="/home/ana/m/aeon",
        vram_fraction=0.9,
        user="ana",
    )
    return (genesis, gemma, mini, embedder, ana)
