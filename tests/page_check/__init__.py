"""Check of the page in a real browser, against a booted box: ``make check-page``."""
