"""Drafts and copies of profiles: valid TOML with comments, or the reason why it cannot be made."""

import tomllib

import pytest

from appliance.model.errors import ProfileError
from appliance.profiles.foreign.profile_draft import DraftArgument, DraftKey, ProfileDraft
from appliance.profiles.foreign.server_command import Disposition, DispositionKind, PartKind
from appliance.profiles.proposing.example_changes import KeyChange
from appliance.system.profile_files.drafts import change_of, changed, checked_file, paths_in
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
        part=PartKind.OPTION, text="-c x", outcome=DispositionKind.CARRIED, key="ctx"
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
    assert (fate.outcome, "ctx" in (fate.reason or "")) == (DispositionKind.DROPPED, True)
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


TEXT = """\
# Above all.
model  = "/m.gguf"      # the model
port   = 8020           # taken
need   = { vram = "1GiB" }
speculative = { method = "draft", model = "/d.gguf" }

[llama-server]          # a table
mmproj = "/p.gguf"
"""


def change(text: str) -> KeyChange:
    found = change_of(text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "where", "value"),
    [
        ("ctx=4096", ("ctx",), 4096),
        ("kv=q8_0", ("kv",), "q8_0"),
        ('kv="q8_0"', ("kv",), "q8_0"),
        ("gpus = [0, 1]", ("gpus",), [0, 1]),
        ("llama-server.mmproj=/a b.gguf", ("llama-server", "mmproj"), "/a b.gguf"),
        ("unit.Service.Nice=5", ("unit", "Service", "Nice"), 5),
        ("description=a=b", ("description",), "a=b"),
        ("ctx=1\nport = 2", ("ctx",), "1\nport = 2"),
        ("ctx=", ("ctx",), ""),
        ("ctx=" + "[" * 5000, ("ctx",), "[" * 5000),
    ],
)
def test_changes_as_a_person_writes_them(text: str, where: tuple[str, ...], value: object) -> None:
    """A value is TOML where it is, else a text; it is always of one key alone."""
    assert change_of(text) == KeyChange(where=where, value=value)


@pytest.mark.parametrize("text", ["", "ctx", "=1", "a..b=1", "a.b.c.d=1", ".=1"])
def test_words_that_are_no_change(text: str) -> None:
    """Without a key, or with too many parts, it is no change."""
    assert change_of(text) is None


def test_comments_order_and_spacing_stay() -> None:
    """Values change in place; a new key of the top stands above the tables."""
    text = changed(
        TEXT,
        [
            change('model=/x "y".gguf'),
            KeyChange(where=("port",), value=8021, comment="was 8020"),
            KeyChange(where=("need",), value=None),
            change("ctx=4096"),
            change("llama-server.mmproj=/q.gguf"),
            change("speculative.model=/e.gguf"),
            change("vllm.dtype=half"),
            change("llama-server.threads=4"),
        ],
    )
    assert text.startswith('# Above all.\nmodel  = "/x \\"y\\".gguf"      # the model\n')
    assert "port   = 8021  # was 8020\n" in text
    assert "[llama-server]          # a table\n" in text
    assert tomllib.loads(text) == {
        "model": '/x "y".gguf',
        "port": 8021,
        "speculative": {"method": "draft", "model": "/e.gguf"},
        "ctx": 4096,
        "llama-server": {"mmproj": "/q.gguf", "threads": 4},
        "vllm": {"dtype": "half"},
    }


def test_a_comment_can_go_and_keys_that_are_not_there_can_be_removed() -> None:
    """An empty comment takes the old one away; removing what is absent changes nothing."""
    text = changed(TEXT, [KeyChange(where=("port",), value=1, comment="")])
    assert "port   = 1\n" in text
    gone = [KeyChange(where=("no",), value=None), KeyChange(where=("no", "no"), value=None)]
    assert changed(TEXT, gone) == TEXT


def test_changes_that_cannot_be_made() -> None:
    """Text that is no TOML, and a key below a value, are told."""
    with pytest.raises(ProfileError, match="cannot be changed"):
        changed("port = ", [change("ctx=1")])
    with pytest.raises(ProfileError, match=r"port\.a: port is no table"):
        changed(TEXT, [change("port.a=1")])


def test_paths_among_the_values() -> None:
    """Absolute paths are found at every depth, in lists too."""
    table = tomllib.loads(TEXT) | {"patch": {"command": ["/usr/bin/p", "-x"], "expect": ["a"]}}
    assert list(paths_in(table)) == [
        (("model",), "/m.gguf"),
        (("speculative", "model"), "/d.gguf"),
        (("llama-server", "mmproj"), "/p.gguf"),
        (("patch", "command"), "/usr/bin/p"),
    ]
