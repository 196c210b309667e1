"""Plots as SVG files, drawn by pygal, which is an extra of the package."""

import sys
from pathlib import Path
from typing import Any

from appliance.cli.failures import CliError
from appliance.wire.control import Exit

_SIZE = {"width": 1100, "height": 520}


def new_chart(kind: str, **options: object) -> Any:
    """Return an empty chart of pygal; it has no remote script, and so asks no server for anything.

    Args:
        kind: Name of the class in pygal.
        options: As pygal has them.

    Raises:
        CliError: pygal is not installed.
    """
    try:
        import pygal  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise CliError(
            "--plot needs pygal: sudo /opt/appliance/current/bin/pip install pygal", Exit.FAILED
        ) from error
    # pygal adds a finder for its maps, which every later import would try, and which has no `find_spec`.
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if not isinstance(finder, pygal.PluginImportFixer)
    ]
    return getattr(pygal, kind)(js=(), legend_at_bottom=True, **_SIZE, **options)


def write_chart(path: str, chart: Any) -> None:
    """Write a chart. Raises `CliError` when the file cannot be written."""
    try:
        Path(path).write_bytes(chart.render())
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}", Exit.FAILED) from error
