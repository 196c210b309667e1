"""Reading of shell text: words, variables, commands; nothing is run, and hostile text is refused in bounded time."""

import contextlib
import time

import pytest

from appliance.profiles.foreign.server_command import (
    Argument,
    DispositionKind,
    ImportFaultError,
    ServerCommand,
)
from appliance.profiles.foreign.shell import Variables, Word, commands_of, interpolated, read_script

BASE = ServerCommand(origin="")


def read(text: str) -> list[ServerCommand]:
    """Return the commands of a text."""
    return list(read_script(text, BASE))


def words(text: str) -> list[str]:
    """Return the words of the last command of a text."""
    return [word.text for word in read(text)[-1].argv]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a 'b c' \"d e\" f\\ g", ["a", "b c", "d e", "f g"]),
        ("a b\\\nc \\\n d", ["a", "bc", "d"]),
        ("a # comment\n", ["a"]),
        ("a b#c", ["a", "b#c"]),
        ("a ''", ["a", ""]),
        ('a "x\\"y\\$z\\n"', ["a", 'x"y$z\\n']),
        ('a "x\\\ny"', ["a", "xy"]),
        ("a $'x' $\"y\"", ["a", "x", "y"]),
        ("a 5$ $", ["a", "5$", "$"]),
        ('X="b c"; a $X', ["a", "b", "c"]),
        ('X="b c"; a "$X"', ["a", "b c"]),
        ("X=b; X+=c; a $X", ["a", "bc"]),
        ("X=(b 'c d' # note\n e;); a \"${X[@]}\"", ["a", "b", "c d", "e"]),
        ("X=(b); X+=(c); a ${X[*]}", ["a", "b", "c"]),
        ("X=(b c); a -$X", ["a", "-b"]),
        ('X=(b c); Y="${X[*]}"; a $Y', ["a", "b", "c"]),
        ('X=; a $X "$X" ${X:-d}', ["a", "", "d"]),
        (
            "a ${X:-b c} \"${X:-'q'}\" ${X-\"e\"} ${X:=f\\}} ${X:-'g'}",
            ["a", "b", "c", "'q'", "e", "f}", "g"],
        ),
        ("a ${X:-${Y:-b}}", ["a", "b"]),
        ("X=1; a x${X}y${X}", ["a", "x1y1"]),
        ("a $HOME/m $(pwd)/n", ["a", "~/m", "./n"]),
        ("if true; then X=b; fi; a $X", ["a", "b"]),
        ("declare -a X=(b c); a ${X[@]}", ["a", "b", "c"]),
        ("f() { X=b; }\na $X", ["a", "b"]),
        ("cat <<EOF\nx y\nEOF\na b", ["a", "b"]),
        ("cat <<-'E'\n\tx\n\tE\na b", ["a", "b"]),
        ("cat <<EOF\nnever closed", ["cat"]),
        ("a b & ", ["a", "b"]),
        ("a <(b c)", ["a", "<(b c)"]),
        ("a &>(b)", [">(b)"]),
        ("a >", ["a"]),
        ("a\r\nb", ["b"]),
    ],
)
def test_words_of_commands(text: str, expected: list[str]) -> None:
    """Quotes, comments, continuations and variables of a file are read as a shell would."""
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a $X", "$X: the file does not set X"),
        ('a "$1"', "$1: what the script is started with is not known"),
        ("a $@", "$@: what the script is started with is not known"),
        ("a $(b 'c)' \\) d)", "would have to run a command"),
        ("a `b`", "would have to run a command"),
        ("a $((1 + 2))", "would have to run a command"),
        ("a ${X%.gguf}", "only a shell can tell its value"),
        ("a ${X//b/{c}}", "only a shell can tell its value"),
        ("a ${}", "only a shell can tell its value"),
        ("a x${X:-$Y}", "$Y: the file does not set Y"),
    ],
)
def test_what_only_a_shell_could_tell_is_unknown(text: str, reason: str) -> None:
    """A value that the file does not have is unknown, with the reason."""
    word = read(text)[-1].argv[1]
    assert not word.is_known
    assert reason in word.note


def test_assumptions_are_noted() -> None:
    """A default, and the last of several values, are used with a note."""
    (command,) = read("X=1; X=2; a $X ${Y:-3}")
    assert "more than once" in command.argv[1].note
    assert "its default was taken" in command.argv[2].note
    (command,) = read("X=1; X=2; X=3; a ${Y:-$X}")
    assert command.argv[1].note == (
        "X is assigned more than once: the last value was taken; "
        "Y is not set here: its default was taken"
    )


def test_exported_variables_reach_commands() -> None:
    """Exports and assignments before a command are its environment; others are not."""
    text = "X=1\nexport Y=2 X\ndeclare -x Z=(3)\nlocal L=4\nW=5 V=(6) a b\n"
    (command,) = read(text)
    environment = {name: value.text for name, value in command.environment.items()}
    assert environment == {"Y": "2", "X": "1", "Z": "3", "W": "5"}


def test_directories_are_followed() -> None:
    """A change of the directory holds for later commands; an unknown one leaves it unknown."""
    commands = read("cd /a\nb\ncd c\nd\ncd $X\ne\ncd f\ng\ncd\nh")
    assert [c.directory for c in commands if c.argv[0].text in "bdegh"] == [
        "/a",
        "/a/c",
        None,
        None,
        None,
    ]


def test_pipes_and_redirections_are_told() -> None:
    """Output that goes elsewhere is told once for each operator."""
    (first, _) = read("a 2>&1 > log | b")
    assert [(d.text, d.outcome) for d in first.dispositions] == [
        ("2>&1", DispositionKind.DROPPED),
        ("> log", DispositionKind.DROPPED),
        ("|", DispositionKind.CHANGED),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a 'b", "line 1: a quote (') is not closed"),
        ('x\na "b', 'line 2: a quote (") is not closed'),
        ("a `b", "line 1: a quote (`) is not closed"),
        ("a $(b", 'line 1: "(" is not closed'),
        ("a ${X", 'line 1: "{" is not closed'),
        ("X=(a", "line 1: the array X is not closed"),
        ("a " + "${X:-" * 40, "nests deeper than 32 levels"),
        ("a" * (256 * 1024 + 1), "has more than 256 KiB"),
    ],
)
def test_broken_text_is_refused(text: str, reason: str) -> None:
    """Text that no shell would read is refused with its line."""
    with pytest.raises(ImportFaultError) as caught:
        read(text)
    assert reason in str(caught.value)


def test_variables_cannot_make_endless_text() -> None:
    """Doubling a variable forty times is refused, not computed."""
    text = "X=aaaaaaaa\n" + "X=$X$X\n" * 40 + "a $X"
    with pytest.raises(ImportFaultError, match="its variables make more than 256 KiB"):
        read(text)


@pytest.mark.parametrize(
    "piece",
    [
        "$",
        "${",
        "a ",
        "'b' ",
        '"',
        "\\",
        "<<E ",
        "X=",
        "X=(",
        "$(",
        "`",
        "{",
        ";",
        "\n",
        "((",
        "&>(",
        "<(",
    ],
)
def test_time_grows_with_the_length(piece: str) -> None:
    """Thousands of any one thing are read or refused in seconds."""
    # real time: the parser has no clock; a quadratic one would take minutes here.
    text = (piece * (64 * 1024))[: 64 * 1024]
    started = time.process_time()
    with contextlib.suppress(ImportFaultError):
        read(text)
    assert time.process_time() - started < 10


def test_variables_are_read_back() -> None:
    """One value is told by its name; an array and a variable without a value are not."""
    variables = Variables({"A": Argument(text="1")})
    (assignment,) = commands_of("B=(1 2)")[0].assignments
    variables.assign(assignment)
    assert variables.snapshot(["A", "B", "C"]) == {"A": Argument(text="1")}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a$$b", "a$b"),
        ("${X:-a}/b", "a/b"),
        ("$HOME/b", "~/b"),
        ("5$", "5$"),
        ("'${X:-a}'", "'a'"),
    ],
)
def test_values_of_compose_files(text: str, expected: str) -> None:
    """In a value only references are special."""
    assert interpolated(text, Variables()).text == expected


def test_long_values_are_refused() -> None:
    """A value of more than a quarter of a megabyte is none."""
    with pytest.raises(ImportFaultError, match="value of more than"):
        interpolated("a" * (256 * 1024 + 1), Variables())


def test_a_word_without_parts_is_an_empty_argument() -> None:
    """An empty value joins to an empty text."""
    assert Variables().joined(Word(parts=())) == Argument(text="")
