"""Overlay frames as whoever receives one checks them, whatever the sender promised."""

from __future__ import annotations

import math
from typing import Any

import pytest

from splatview_ipc.control.limits import ITEM_SIZE, MAX_EXTENT, MAX_TENSORS
from splatview_ipc.kinds import check_frame

N, M, K, E, L, T = 3, 2, 5, 4, 2, 1
WHOLE: dict[str, tuple[str, tuple[int, ...]]] = {
    "boxes": ("float32", (N, 4)), "classes": ("int32", (N,)), "scores": ("float32", (N,)), "colors": ("uint8", (N, 4)),
    "labels": ("uint8", (20,)), "names": ("uint8", (0,)), "masks": ("uint8", (N, 6, 5)),
    "points": ("float32", (M, K, 3)), "skeleton": ("int32", (E, 2)), "point_classes": ("int32", (M,)),
    "lines": ("float32", (9, 2)), "line_ends": ("int32", (L,)), "line_classes": ("int32", (L,)),
    "notes_at": ("float32", (T, 2)), "notes": ("uint8", (7,)),
}
"""Everything that an overlay may hold."""
META: dict[str, Any] = {"version": 7, "time_ns": 5, "width": 64, "height": 48, "motion": True,
                        "by": "x", "trouble": "", "rate_hz": 24.5, "work_ms": 40, "skipped": 2}


def test_a_whole_overlay_and_the_least_one() -> None:
    check_frame("overlay", WHOLE, META)
    check_frame("overlay", {"boxes": ("float32", (0, 4))}, {})
    assert len(WHOLE) <= MAX_TENSORS


def test_each_tensor_has_its_dtype_and_shape() -> None:
    for name, (dtype, shape) in WHOLE.items():
        for other in ITEM_SIZE.keys() - {dtype}:
            with pytest.raises(ValueError, match=f"{name} is {other} of shape"):
                check_frame("overlay", WHOLE | {name: (other, shape)}, META)
        for wrong in [(*shape, 1), shape[:-1], ()]:
            with pytest.raises(ValueError, match=rf"{name} is {dtype} of shape .*, not {dtype} of shape \("):
                check_frame("overlay", WHOLE | {name: (dtype, wrong)}, META)


BOUNDS: list[tuple[dict[str, Any], str]] = [
    ({"boxes": ("float32", (10_001, 4))}, "10001 boxes; legal are 0 to 10000"),
    ({"boxes": ("float32", (MAX_EXTENT, 4))}, f"{MAX_EXTENT} boxes"),
    ({"points": ("float32", (1001, 100, 3))}, "100100 points; legal are 0 to 100000"),
    ({"points": ("float32", (0, MAX_EXTENT, 3))}, f"{MAX_EXTENT} points"),
    ({"points": ("float32", (MAX_EXTENT, 0, 3))}, f"{MAX_EXTENT} groups of points"),
    ({"points": ("float32", (1, 5, 3)), "skeleton": ("int32", (100_001, 2))}, "100001 joints"),
    ({"lines": ("float32", (200_001, 2)), "line_ends": ("int32", (1,))}, "200001 vertices"),
    ({"lines": ("float32", (0, 2)), "line_ends": ("int32", (200_001,))}, "200001 lines"),
    ({"notes_at": ("float32", (1001, 2)), "notes": ("uint8", (1001,))}, "1001 notes"),
    ({"labels": ("uint8", (2**20 + 1,))}, "1048577 bytes of labels"),
    ({"names": ("uint8", (2**20 + 1,))}, "1048577 bytes of names"),
    ({"notes_at": ("float32", (1, 2)), "notes": ("uint8", (2**20 + 1,))}, "1048577 bytes of notes"),
    ({"masks": ("uint8", (1, 2**15, 2**13 + 1))}, "268468224 bytes of masks"),
    ({"masks": ("uint8", (1, 2**15 + 1, 1))}, "32769 pixels along a mask"),
    ({"boxes": ("float32", (0, 4)), "masks": ("uint8", (0, MAX_EXTENT, MAX_EXTENT))}, "pixels along a mask"),
    ({"secret": ("uint8", (1,))}, r"has no secret"),
]


def test_bounds() -> None:
    for more, words in BOUNDS:
        with pytest.raises(ValueError, match=words):
            check_frame("overlay", {"boxes": ("float32", (1, 4))} | more, {})


def test_metadata() -> None:
    for name, values in (
            ("version", (-1, 2**63, 1.0, "1", True, (1.0,))), ("time_ns", (-1, 2**63, 1.0)), ("by", (5, True, (1.0,))),
            ("width", (-1, 32769, 5.0, True)), ("motion", (1, 0, "yes", 1.0)),
            ("trouble", (5,)), ("rate_hz", (-1, math.nan, math.inf, "fast", True, 2**63)),
            ("work_ms", (-0.5, math.nan)), ("skipped", (-1, "x"))):
        for value in values:
            with pytest.raises(ValueError, match=name):
                check_frame("overlay", WHOLE, META | {name: value})
