"""Page about the status API: it is what the OpenAPI document says."""

from appliance.web.api.reference_page import PAGE, reference_page


def test_the_page_is_up_to_date() -> None:
    """A route or a type that changes changes the page: ``python -m appliance.web.api.reference_page``."""
    assert PAGE.read_text("utf-8") == reference_page()
