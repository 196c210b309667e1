"""Growth of an import with its text: as the text grows, also where parts of it stand in every profile."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from appliance.model.errors import ProfileError
from appliance.model.plain_text import MOST_TOLD
from appliance.profiles.foreign.server_command import ImportFaultError
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.imports import imported
from tests.growth.cost import Call, excess_seconds


def served_names(size: int) -> Call:
    """Return the import of a command with one option that has many values."""
    return lambda: imported("vllm serve /m --served-model-name " + "name " * (size // 5))


def repeated_options(size: int) -> Call:
    """Return the import of a command with one option many times."""
    return lambda: imported("llama-server -m /m.gguf " + "--lora /a.gguf " * (size // 15))


def settings_of_many_models(size: int) -> Call:
    """Return the import of a file whose settings are told in each of its profiles."""
    models = "".join(f"  m{n}: {{cmd: 'llama-server -m /m.gguf'}}\n" for n in range(size // 100))
    text = f"models:\n{models}" + "".join(f"z{n}: 1\n" for n in range(size // 20))
    return lambda: refused_or_imported(text)


def long_setting_of_many_models(size: int) -> Call:
    """Return the import of a file with a long name, which is told in each of its profiles."""
    models = "".join(f"  m{n}: {{cmd: 'llama-server -m /m.gguf'}}\n" for n in range(size // 1000))
    text = f"models:\n{models}? '{'z' * (size // 2)}'\n: 1\n"
    return lambda: refused_or_imported(text)


def refused_or_imported(text: str) -> None:
    with suppress(ImportFaultError):
        imported(text, "a.yaml")


@pytest.mark.parametrize(
    "make",
    [served_names, repeated_options, settings_of_many_models, long_setting_of_many_models],
)
def test_an_import_grows_as_its_text(make: Callable[[int], Call]) -> None:
    """A text of twice the length takes twice the time, up to the largest that is read."""
    assert excess_seconds(lambda size: make(size << 5), 1 << 12) is None


def test_what_is_told_of_a_part_is_bounded() -> None:
    """A long part of a file is told by its beginning in every profile."""
    models = "".join(f"  m{n}: {{cmd: 'llama-server -m /m.gguf'}}\n" for n in range(20))
    drafts = imported(f"models:\n{models}? '{'z' * 900}'\n: 1\n", "a.yaml").drafts
    told = [d.text for draft in drafts for d in draft.dispositions if "zz" in d.text]
    assert len(told) == 20
    assert max(map(len, told)) == 257


LONG = "z" * 100_000


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"models:\n  ? '{LONG}'\n  : 1\n", "a.yaml"),
        (f"models:\n  m: {{cmd: 'llama-server -m ${{{LONG}}}'}}\n", "a.yaml"),
        (f"services:\n  ? '{LONG}'\n  : {{image: vllm/vllm-openai}}\n", "compose.yaml"),
        (f"[{LONG}]\nmodel = \n", "a.ini"),
        (f"vllm serve '{LONG}", "a.sh"),
        (f"docker run -v x:/m vllm/vllm-openai --model /m/{LONG}", "a.sh"),
    ],
)
def test_a_fault_of_an_import_is_bounded(text: str, name: str) -> None:
    """A fault is told by its beginning and end, however long what it quotes is."""
    try:
        found = imported(text, name)
    except ImportFaultError as error:
        told = [str(error)]
    else:
        told = [part for refusal in found.refusals for part in (refusal.origin, refusal.reason)]
        told += [d.reason or "" for draft in found.drafts for d in draft.dispositions]
        assert told
    assert max(map(len, told)) <= MOST_TOLD


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG} = 1",
        f"[{LONG}]\na = 1",
        f'engine = "{LONG}"',
        f'engine = "vllm"\n[env]\n"{LONG}" = 1',
        f'engine = "vllm"\n[unit]\n"{LONG}.X" = "1"',
        f"{LONG} = {{",
    ],
)
def test_a_fault_of_a_profile_is_bounded(text: str) -> None:
    """Each line about a file of profiles is as short, beside the name of the file."""
    with pytest.raises(ProfileError) as caught:
        parse_profile("x", text.encode())
    assert max(map(len, str(caught.value).splitlines())) <= MOST_TOLD + 100
