"""Model names: the profile of a request, and whether the request may go to it now."""

import pytest

from appliance.model.gateway import Key, Refusal, Routed, Standing, State
from appliance.model.profile import Endpoint, Handling
from appliance.routing.model_names import ModelDirectory, default_profile, readiness


def routed(name: str, *served: str, exclusive: bool = True, on_request: bool = False) -> Routed:
    """A profile."""
    return Routed(
        name=name,
        served=served,
        engine_name=f"engine-{name}",
        endpoint=Endpoint(port=8022),
        exclusive=exclusive,
        handling=Handling(on_request=on_request),
    )


BOX = {
    r.name: r
    for r in (
        routed("aeon", "gpt-4o", "claude-*", "qwen"),
        routed("genesis", "claude-*", "claude-sonnet-*", "qwen", "aeon", on_request=True),
        routed("gemma", "gemma?", "*-mini", "c*"),
        routed("helper", "bge", exclusive=False),
    )
}


def state(
    *serving: str,
    coming: tuple[str, ...] = (),
    held: tuple[str, ...] = (),
    target: tuple[str, ...] = (),
    committed: tuple[str, ...] = (),
) -> State:
    """State in which these profiles serve or start; all others are down."""
    standings = dict.fromkeys(BOX, Standing.DOWN) | dict.fromkeys(coming, Standing.STARTING)
    return State(
        standings=standings | dict.fromkeys(serving, Standing.SERVING),
        held=frozenset(held),
        target=target,
        committed=committed,
    )


@pytest.mark.parametrize(
    ("model", "serving", "name"),
    [
        ("aeon", "genesis", "aeon"),
        ("gpt-4o", "genesis", "aeon"),
        ("qwen", "aeon", "aeon"),
        ("qwen", "genesis", "genesis"),
        ("claude-opus-4", "aeon", "aeon"),
        ("claude-opus-4", "genesis", "genesis"),
        ("claude-sonnet-4", "aeon", "genesis"),
        ("chat", "aeon", "gemma"),
        ("gemma3", "aeon", "gemma"),
        ("phi-mini", "aeon", "gemma"),
        ("-mini", "aeon", "gemma"),
        ("c\nd", "aeon", "gemma"),
        ("default", "genesis", "genesis"),
        ("", "genesis", "genesis"),
        (None, "aeon", "aeon"),
        (None, "helper", "helper"),
    ],
)
def test_a_model_is_found_by_name_served_name_pattern_or_default(
    model: str | None, serving: str, name: str
) -> None:
    """Steps are taken in this order, whatever serves; within a step the serving profile wins."""
    found = ModelDirectory(BOX).resolve(model, state(serving))
    assert isinstance(found, Routed)
    assert found.name == name


@pytest.mark.parametrize(
    ("now", "name"),
    [
        (state(), "aeon"),
        (state(committed=("genesis",)), "genesis"),
        (state(coming=("genesis",), committed=("aeon",)), "genesis"),
        (state(held=("genesis",), committed=("aeon",)), "genesis"),
        (state(target=("genesis",), committed=("aeon",)), "genesis"),
        (state("aeon", "genesis", held=("aeon",)), "genesis"),
        (state("genesis", held=("genesis",), committed=("aeon",)), "genesis"),
        (state("aeon", "genesis"), "aeon"),
    ],
)
def test_of_several_the_one_that_serves_or_will_is_taken(now: State, name: str) -> None:
    """After those comes a committed profile, then the order of names."""
    found = ModelDirectory(BOX).resolve("qwen", now)
    assert isinstance(found, Routed)
    assert found.name == name


@pytest.mark.parametrize("model", ["nothing", "gemma", "gemma34", "Genesis", "mini", "x" * 500])
def test_an_unknown_model_is_told_what_there_is(model: str) -> None:
    """The message lists models that serve first; capitals count, and wildcards match themselves."""
    if model == "gemma":
        assert isinstance(ModelDirectory(BOX).resolve(model, state()), Routed)
        return
    found = ModelDirectory(BOX).resolve(model, state("genesis"))
    assert isinstance(found, Refusal)
    assert (found.status, found.code, found.param) == (404, "model_not_found", "model")
    assert found.message.endswith("there are: genesis, aeon, gemma, helper")
    assert len(found.message) < 300


def test_a_very_long_name_is_tried_on_no_pattern() -> None:
    """A name beyond the limit matches no pattern."""
    assert isinstance(ModelDirectory(BOX).resolve("c" * 256, state()), Routed)
    assert isinstance(ModelDirectory(BOX).resolve("c" * 257, state()), Refusal)


def test_many_stars_are_tried_as_one() -> None:
    """Several stars in a row match like one."""
    box = {"a": routed("a", "*" * 40 + "b")}
    assert isinstance(ModelDirectory(box).resolve("c" * 256, State()), Refusal)
    assert isinstance(ModelDirectory(box).resolve("c" * 255 + "b", State()), Routed)


def test_the_list_of_what_there_is_has_an_end() -> None:
    """The message lists twenty names at most."""
    box = {f"p{n:03}": routed(f"p{n:03}") for n in range(21)}
    found = ModelDirectory(box).resolve("x", State())
    assert isinstance(found, Refusal)
    assert found.message.endswith("p018, p019, …")
    empty = ModelDirectory({}).resolve("x", State())
    assert isinstance(empty, Refusal)
    assert empty.message.endswith("there are: none")


@pytest.mark.parametrize(
    ("now", "name"),
    [
        (state("genesis", committed=("aeon",)), "genesis"),
        (state("helper", "genesis"), "genesis"),
        (state("aeon", "genesis", committed=("genesis", "aeon")), "genesis"),
        (state("aeon", "genesis"), "aeon"),
        (state("aeon", held=("aeon", "genesis"), target=("genesis",)), "genesis"),
        (state("helper", held=("genesis",), target=("genesis",)), "genesis"),
        (state("helper", committed=("helper", "aeon")), "aeon"),
        (state("helper"), "helper"),
        (state(committed=("gone", "aeon")), "aeon"),
        (state(), None),
    ],
)
def test_the_default_serves_or_comes_or_is_committed(now: State, name: str | None) -> None:
    """The default is chosen in this order; profiles without a device come last."""
    assert default_profile(BOX, now) == name


def test_without_anything_to_serve_clients_come_back_later() -> None:
    """A request that names no model gets 503 with `Retry-After` when nothing serves."""
    found = ModelDirectory(BOX).resolve(None, state())
    assert isinstance(found, Refusal)
    assert (found.status, found.code) == (503, "no_model")
    assert found.retry_after_s


def test_default_may_be_the_name_of_something() -> None:
    """A profile that serves the name ``default`` gets its requests."""
    box = {"a": routed("a"), "b": routed("b", "default")}
    found = ModelDirectory(box).resolve("default", State(standings={"a": Standing.SERVING}))
    assert isinstance(found, Routed)
    assert found.name == "b"


class TestKeys:
    """A key sees only the profiles that it may use."""

    KEY = Key(name="anna", profiles=("genesis", "helper"))

    @pytest.mark.parametrize(
        ("model", "name"), [("qwen", "genesis"), ("claude-x", "genesis"), (None, "genesis")]
    )
    def test_only_its_profiles_are_candidates(self, model: str | None, name: str) -> None:
        """A profile that the key may not use is no candidate, even if it serves."""
        now = state("aeon", "helper", committed=("aeon", "genesis"))
        found = ModelDirectory(BOX).resolve(model, now, self.KEY)
        assert isinstance(found, Routed)
        assert found.name == name

    @pytest.mark.parametrize("model", ["aeon", "gpt-4o", "chat"])
    def test_others_are_refused_as_such(self, model: str) -> None:
        """A profile that the key may not use is refused as not allowed, not as unknown."""
        found = ModelDirectory(BOX).resolve(model, state("aeon"), self.KEY)
        assert isinstance(found, Refusal)
        assert (found.status, found.code) == (403, "model_not_allowed")
        assert "anna" in found.message

    def test_an_unknown_model_lists_only_its_own(self) -> None:
        """The message lists only profiles that the key may use."""
        found = ModelDirectory(BOX).resolve("x", state("aeon"), self.KEY)
        assert isinstance(found, Refusal)
        assert found.message.endswith("there are: genesis, helper")

    def test_a_key_without_a_list_may_use_everything(self) -> None:
        """A key without a list may use every profile, one with an empty list none."""
        assert isinstance(ModelDirectory(BOX).resolve("aeon", state(), Key(name="all")), Routed)
        assert isinstance(
            ModelDirectory(BOX).resolve("aeon", state(), Key(name="none", profiles=())), Refusal
        )


@pytest.mark.parametrize(
    ("now", "may_switch", "answer"),
    [
        (state("genesis"), False, True),
        (state("genesis", held=("genesis",)), True, False),
        (state(coming=("genesis",)), False, False),
        (state(held=("genesis",)), False, False),
        (state(), True, False),
    ],
)
def test_a_request_goes_or_waits(now: State, may_switch: bool, answer: bool) -> None:  # noqa: FBT001
    """A request waits while its profile is held or starts, and where it may cause a switch."""
    assert readiness(BOX["genesis"], now, may_switch=may_switch) is answer


@pytest.mark.parametrize(
    ("name", "may_switch"), [("genesis", False), ("aeon", True), ("aeon", False)]
)
def test_otherwise_it_is_told_what_is_active(name: str, may_switch: bool) -> None:  # noqa: FBT001
    """The refusal names the active model and the command; clients do not retry its status."""
    found = readiness(
        BOX[name], state("gemma", "helper", committed=("helper",)), may_switch=may_switch
    )
    assert isinstance(found, Refusal)
    assert (found.status, found.code, found.retry_after_s) == (404, "model_not_active", None)
    assert "helper and gemma are active" in found.message
    assert found.message.endswith(f"appliance switch {name}")


def test_with_nothing_active_it_is_told_so() -> None:
    """The refusal names the command also when nothing is active."""
    found = readiness(BOX["aeon"], state())
    assert isinstance(found, Refusal)
    assert "no model is active" in found.message


def test_a_committed_profile_that_is_down_is_worth_another_try() -> None:
    """A committed profile that is down gets 503 with `Retry-After`."""
    found = readiness(BOX["aeon"], state(committed=("aeon",)))
    assert isinstance(found, Refusal)
    assert (found.status, found.code) == (503, "model_unavailable")
    assert found.retry_after_s


@pytest.mark.parametrize(
    ("now", "code", "status", "retries", "says"),
    [
        (State(failed=frozenset({"aeon"})), "model_failed", 404, False, "appliance switch aeon"),
        (
            State(failed=frozenset({"aeon"}), committed=("aeon",)),
            "model_failed",
            503,
            True,
            "appliance logs aeon",
        ),
        (
            State(retired=frozenset({"aeon"}), failed=frozenset({"aeon"})),
            "model_retired",
            404,
            False,
            "appliance mark aeon standby",
        ),
        (State(committed=("aeon",), paused=True), "box_held", 503, False, "appliance switch NAME"),
        (
            State(committed=("aeon",), paused=True, lent=True),
            "box_lent",
            503,
            False,
            "when it ends",
        ),
    ],
)
def test_a_refusal_says_what_to_do(
    now: State,
    code: str,
    status: int,
    retries: bool,  # noqa: FBT001
    says: str,
) -> None:
    """`Retry-After` is sent only where something happens by itself, and the command where it does not."""
    found = readiness(BOX["aeon"], now)
    assert isinstance(found, Refusal)
    assert (found.code, found.status, found.retry_after_s is not None) == (code, status, retries)
    assert says in found.message


@pytest.mark.parametrize(("lent", "code"), [(False, "box_held"), (True, "box_lent")])
def test_without_a_name_a_paused_box_says_so(lent: bool, code: str) -> None:  # noqa: FBT001
    """A request for the default is told of the hold too."""
    found = ModelDirectory(BOX).resolve(None, State(paused=True, lent=lent))
    assert isinstance(found, Refusal)
    assert found.code == code


@pytest.mark.parametrize(
    ("asked", "key", "guess"),
    [
        ("aeno", None, 'did you mean "aeon"? '),
        ("genesys", None, 'did you mean "genesis"? '),
        # Neither a name that the key may not use, nor one that is not close.
        ("aeno", Key(name="k", profiles=("genesis",)), ""),
        ("nothing-like-it", None, ""),
        ("aeno" + "x" * 100_000, None, ""),
    ],
)
def test_a_slip_of_the_keyboard_is_told(asked: str, key: Key | None, guess: str) -> None:
    """The refusal of a name that is close to another one names that."""
    found = ModelDirectory(BOX).resolve(asked, state(), key)
    assert isinstance(found, Refusal)
    assert f"; {guess}there are: " in found.message


def test_a_slip_costs_the_same_on_a_large_box() -> None:
    """A name is compared with a bounded number of others, however many profiles are applied."""
    many = {f"profile-{n:04}": routed(f"profile-{n:04}", f"served-{n:04}") for n in range(2000)}
    directory = ModelDirectory(many)
    found = directory.resolve("profile-0001x", state())
    assert isinstance(found, Refusal)
    assert 'did you mean "profile-0001"?' in found.message
    late = directory.resolve("served-1999x", state())
    assert isinstance(late, Refusal)
    assert "did you mean" not in late.message


def test_a_served_name_twice_in_one_profile_counts_once() -> None:
    """A duplicate served name counts once, also one that is the profile's own name."""
    directory = ModelDirectory({"a": routed("a", "a", "x", "x")})
    assert directory.names == {"a": ("a",), "x": ("a",)}


@pytest.mark.parametrize("served", ["*-*-*-*-*-*x", "-*-*-*-*-*-?x", "**-***-**-**-*-*x"])
@pytest.mark.parametrize("model", ["-" * 256, "-" * 255 + "y", "--x" * 85 + "-"])
def test_many_stars_are_tried_in_a_moment(served: str, model: str) -> None:
    """A pattern with many stars takes linear time on a name that almost matches."""
    found = ModelDirectory({"m": routed("m", served)}).resolve(model, State())
    assert isinstance(found, Refusal)
    assert found.code == "model_not_found"


@pytest.mark.parametrize(
    ("served", "model", "fits"),
    [
        ("a*b*c", "aXbYc", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "abbbcc", True),
        ("a*b*c", "ac", False),
        ("*ab*ab", "abab", True),
        ("*ab*ab", "aab", False),
        ("*a?*", "ba", False),
        ("*a?*b", "aaab", True),
        ("a**?", "a", False),
        ("a.*", "axb", False),
        ("*", "anything", True),
    ],
)
def test_stars_and_question_marks(served: str, model: str, fits: bool) -> None:  # noqa: FBT001
    """A star stands for any text, also none, a question mark for one character."""
    found = ModelDirectory({"m": routed("m", served)}).resolve(model, State())
    assert isinstance(found, Routed) is fits
