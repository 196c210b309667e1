"""Versions of packages."""

import importlib.metadata
from pathlib import Path

import pytest

from appliance.system.python_packages import package_version


def test_the_version_of_an_installed_package() -> None:
    """Version and metadata agree, and no module is imported for it."""
    assert package_version("tomlkit") == importlib.metadata.version("tomlkit")


def test_a_module_without_a_package_has_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a module that is missing nor one that no wheel brought has a version."""
    (tmp_path / "lonely_module").mkdir()
    (tmp_path / "lonely_module" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert package_version("no_such_module_anywhere") is None
    assert package_version("lonely_module") is None
