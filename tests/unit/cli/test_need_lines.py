"""Lines about the parts of an estimate."""

from appliance.cli.need_lines import need_lines

GIB = 1 << 30
PLACED = {
    "vram": {"weights_bytes": 8 * GIB, "cache_bytes": 4 * GIB},
    "ram": {"weights_bytes": GIB, "checkpoints_bytes": 2 * GIB, "state_bytes": 0},
}


def test_parts_have_a_line_for_each_place() -> None:
    """Parts of nothing are left out, and places without parts; a label stands in the first line only."""
    half = {"vram": {"cache_bytes": 2 * GIB}, "ram": {}, "setting": "ctx = 8192"}
    assert list(need_lines({**PLACED, "alternatives": [half]})) == [
        ("parts", "GPUs ≈12.0 GiB: weights 8.0 GiB, cache 4.0 GiB"),
        ("", "RAM ≈3.0 GiB: weights 1.0 GiB, checkpoints 2.0 GiB"),
        ("ctx = 8192", "GPUs ≈2.0 GiB: cache 2.0 GiB"),
    ]


def test_gpus_that_are_known_have_a_line_each() -> None:
    """Lines of single GPUs take the place of that of all together."""
    gpus = {"0": {"weights_bytes": 6 * GIB}, "1": {"weights_bytes": 2 * GIB}}
    assert [text for _, text in need_lines({**PLACED, "gpus": gpus})] == [
        "GPU 0 ≈6.0 GiB: weights 6.0 GiB",
        "GPU 1 ≈2.0 GiB: weights 2.0 GiB",
        "RAM ≈3.0 GiB: weights 1.0 GiB, checkpoints 2.0 GiB",
    ]


def test_no_estimate_has_no_lines() -> None:
    """An older supervisor sends none."""
    assert list(need_lines({})) == []
