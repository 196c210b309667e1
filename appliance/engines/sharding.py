"""Rules of profiles for engines that split a model into shards: vLLM and SGLang."""

from collections.abc import Iterator

from appliance.domain.problems import Problem
from appliance.domain.spec import Profile


def one_kv_type(profile: Profile, engine: str, known: dict[str, str]) -> Iterator[Problem]:
    """Problems of ``kv`` for an engine with one type for keys and values."""
    if profile.kv is None:
        return
    if profile.kv.k != profile.kv.v:
        text = f"{engine} has one type for keys and values: write kv as one word"
        yield Problem(where=("kv",), text=text)
    elif profile.kv.k not in known:
        text = f'kv "{profile.kv.k}" is unknown to {engine}: use one of {", ".join(known)}'
        yield Problem(where=("kv",), text=text)


def enough_gpus(
    profile: Profile, table: str, tensor: int | None, pipeline: int | None
) -> Iterator[Problem]:
    """The problem of a model split over more GPUs than the profile claims."""
    if profile.gpus == "all":
        return
    shards = (tensor or 1) * (pipeline or 1)
    if profile.gpus and shards > len(profile.gpus):
        text = f"the model is split over {shards} GPUs, the profile claims {len(profile.gpus)}"
        yield Problem(where=(table, "tensor_parallel"), text=text)
