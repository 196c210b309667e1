"""Charts of pygal, and what importing it leaves behind."""

import importlib
import sys

import pytest

from appliance.cli.plot import new_chart


def test_a_chart_changes_no_later_import() -> None:
    """After a chart a module that is missing is missing without a warning."""
    new_chart("Line")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("a_module_that_nobody_has")
    assert [finder for finder in sys.meta_path if type(finder).__module__ == "pygal"] == []
