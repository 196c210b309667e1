"""Garbage collections of a daemon."""

import gc


def freeze_garbage() -> None:
    """Exempt the objects of the start from collections, which would pause for them and write to their pages."""
    gc.collect()
    gc.freeze()
