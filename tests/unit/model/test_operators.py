"""Names of keys and tokens: what can be one, and what is said of one that is not there."""

import pytest

from appliance.model.errors import BadRequestError
from appliance.model.operators import check_credential_name, no_such_credential


@pytest.mark.parametrize("name", ["a", "ana@laptop", "A1._-", "x" * 48])
def test_names_of_letters_digits_and_a_few_signs(name: str) -> None:
    """Names of that form can stand in every sentence, table and log line as they are."""
    check_credential_name("key", name)


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a\n", "é", "a)", "x" * 49])
def test_other_names_are_refused(name: str) -> None:
    """The sentence names the kind."""
    with pytest.raises(BadRequestError, match="a token's name has up to 48 letters"):
        check_credential_name("token", name)


def test_a_name_that_none_has() -> None:
    """With the closest one, or the verb that lists them; never at full length."""
    known = ["laptop", "1f3a9c2e"]
    assert (
        no_such_credential("key", "lapto", known)
        == 'there is no key "lapto"; did you mean "laptop"?'
    )
    assert no_such_credential("token", "zz", known) == 'there is no token "zz": appliance token ls'
    assert len(no_such_credential("token", "z" * 10_000, known)) < 120
