"""Replacement for gettext in argparse, which would import locale too and take 3 ms.

Python ships none of its messages, and a usage error in two languages would help nobody. Other modules
still get the real gettext.
"""

import importlib
import sys
from types import ModuleType


def _import_argparse() -> None:
    if "argparse" in sys.modules or "gettext" in sys.modules:
        return
    plain = ModuleType("gettext")
    vars(plain).update(gettext=_text, ngettext=_text_for)
    sys.modules["gettext"] = plain
    try:
        importlib.import_module("argparse")
    finally:
        del sys.modules["gettext"]


def _text(message: str) -> str:
    return message


def _text_for(one: str, many: str, count: int) -> str:
    return one if count == 1 else many


_import_argparse()
import argparse  # noqa: E402

__all__ = ["argparse"]
