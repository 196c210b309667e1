"""Drafts as files: TOML with comments that is valid, or says why it cannot be."""

import tomllib

from appliance.profiles.foreign.profile_draft import DraftArgument, DraftKey, ProfileDraft
from appliance.profiles.foreign.server_command import Disposition, DispositionKind, PartKind
from appliance.system.profile_files.draft_files import checked_file
from tests.fakes.imports import checked

TOP = (
    DraftKey(table="", key="engine", value="llama-server"),
    DraftKey(table="", key="binary", value="/opt/llama-server"),
    DraftKey(table="", key="model", value="/m/x", comment="was ./x\n# evil"),
    DraftKey(table="", key="port", value=8080),
)


def draft(*keys: DraftKey, extra: tuple[DraftArgument, ...] = ()) -> ProfileDraft:
    """Return a draft with these keys after the necessary ones."""
    fate = Disposition(
        part=PartKind.OPTION, text="-c x", outcome=DispositionKind.CARRIED, place="ctx"
    )
    return ProfileDraft(
        name="x",
        origin="a.sh",
        keys=(*TOP, *keys),
        extra_args=extra,
        dispositions=(fate,),
    )


def test_values_of_every_kind() -> None:
    """Texts, numbers, lists and tables are written as TOML reads them."""
    text = checked_file(
        draft(
            DraftKey(table="gateway", key="set", value={"a": [1, 2.5, True], "c": {"d": 'é"\\'}}),
            DraftKey(table="unit", key="Service.Nice", value="5"),
            extra=(DraftArgument(words=("--tags", "x"), comment="note", place="extra_args 0"),),
        )
    ).text
    table = tomllib.loads(text)
    assert table["extra_args"] == ["--tags", "x"]
    assert table["unit"] == {"Service": {"Nice": "5"}}
    assert table["gateway"]["set"]["c"] == {"d": 'é"\\'}


def test_comments_cannot_become_keys() -> None:
    """A text from outside stays on the line of its comment."""
    text = checked_file(draft()).text
    assert 'model = "/m/x"  # was ./x # evil' in text
    long = Disposition(
        part=PartKind.SETTING, text="y" * 900, outcome=DispositionKind.DROPPED, reason="z"
    )
    other = ProfileDraft(name="x", origin="a\n[b]", keys=TOP, dispositions=(long,))
    lines = checked_file(other).text.splitlines()
    assert all(
        line.startswith(("#", "engine", "binary", "model", "port")) or not line for line in lines
    )
    assert max(map(len, lines)) < 420


def test_what_the_rules_refuse_is_taken_out() -> None:
    """A key that the schema refuses is told as dropped, and the profile is valid without it."""
    file = checked_file(draft(DraftKey(table="", key="ctx", value="x")))
    assert not file.faults
    (fate,) = file.draft.dispositions
    assert (fate.outcome, "ctx" in fate.reason) == (DispositionKind.DROPPED, True)
    assert "ctx =" not in file.text


def test_a_draft_that_cannot_be_valid_says_why() -> None:
    """Without its engine nothing is left to take out, and the faults are told."""
    file = checked_file(ProfileDraft(name="x", origin="a", keys=TOP[1:]))
    assert any("engine" in fault.text for fault in file.faults)


def test_the_summary_counts_options() -> None:
    """The first line says how many options were kept, and in another form."""
    file = checked("/opt/llama-server -m /m/x --host 0.0.0.0 --rpc a:1")
    assert file.text.startswith(
        "# Imported from command.txt, line 1: 2 of 3 options kept, 1 of them in another form.\n"
    )
