"""Frames of each kind as both sides check them, whatever the sender promised."""

from __future__ import annotations

import math
from typing import Any

import pytest

from splatview_ipc.control.limits import MAX_TENSORS
from splatview_ipc.kinds import check_frame
from splatview_ipc.kinds.cameras import CAMERA_LIMITS

IMAGE: Any = {"image": ("uint8", (4, 5, 3))}
SCENE: Any = {
    "means": ("float32", (7, 3)),
    "quats": ("float32", (7, 4)),
    "scales": ("float32", (7, 3)),
    "opacities": ("float32", (7,)),
    "sh0": ("float32", (7, 3)),
    "shN": ("float32", (7, 8, 3)),
    "background": ("float32", (3,)),
    "filter_3D": ("float32", (7,)),
}
CAMERAS: Any = {
    "viewmats": ("float64", (2, 4, 4)),
    "Ks": ("float32", (2, 3, 3)),
    "sizes": ("int32", (2, 2)),
    "paths": ("uint8", (9,)),
}
PHOTOS: Any = {"photos": ("uint8", (1, 6, 8, 3))}
OVERLAY: Any = {
    "boxes": ("float32", (3, 4)),
    "classes": ("int32", (3,)),
    "scores": ("float32", (3,)),
    "colors": ("uint8", (3, 4)),
    "labels": ("uint8", (20,)),
    "names": ("uint8", (0,)),
    "masks": ("uint8", (3, 6, 5)),
    "points": ("float32", (2, 5, 3)),
    "skeleton": ("int32", (4, 2)),
    "point_classes": ("int32", (2,)),
    "lines": ("float32", (9, 2)),
    "line_ends": ("int32", (2,)),
    "line_classes": ("int32", (2,)),
    "notes_at": ("float32", (1, 2)),
    "notes": ("uint8", (7,)),
}
WHOLE: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "image": ("image", IMAGE, {"layout": "HWC"}),
    "scene": ("gaussians", SCENE, {"color": "sh", "activated": False, "sh_degree": 2}),
    "cameras": ("cameras", CAMERAS, {"photos": 3}),
    "photographs": ("cameras", PHOTOS, {"camera": 0, "side": 8, "photos": 1}),
    "current": ("cameras", {"current": ("int32", (1,))}, {}),
    "overlay": (
        "overlay",
        OVERLAY,
        {
            "version": 7,
            "time_ns": 5,
            "width": 64,
            "height": 48,
            "by": "x",
            "trouble": "",
            "rate_hz": 24.5,
            "work_ms": 40,
            "skipped": 2,
        },
    ),
}
META: list[tuple[str, str, tuple[Any, ...]]] = [
    ("image", "layout", ("WH", "HW", 3)),
    ("scene", "color", ("hsv", "rgb")),
    ("scene", "activated", (1, "x", (1.0,), (1.0, 0.5), (0.0, 1.0, 0.0), math.nan)),
    ("scene", "sh_degree", (9, -1, "x")),
    ("cameras", "photos", (-1, 1.5)),
    ("photographs", "camera", (CAMERA_LIMITS["cameras"],)),
    ("overlay", "version", (-1, 2**63, 1.0, "1", True, (1.0,))),
    ("overlay", "time_ns", (-1, 2**63, 1.0)),
    ("overlay", "by", (5, True, (1.0,))),
    ("overlay", "width", (-1, 32769, 5.0, True)),
    ("overlay", "trouble", (5,)),
    ("overlay", "work_ms", (-0.5, math.nan)),
    ("overlay", "rate_hz", (-1, math.nan, math.inf, "fast", True, 2**63)),
    ("overlay", "skipped", (-1, "x")),
]


def refused(kind: str, tensors: Any, meta: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_frame(kind, tensors, meta)
        pytest.fail(f"{kind} of {tensors} with {meta} was taken")


@pytest.mark.parametrize("name", WHOLE)
def test_each_tensor_has_its_dtype_and_shape(name: str) -> None:
    kind, tensors, meta = WHOLE[name]
    assert len(tensors) <= MAX_TENSORS
    check_frame(kind, tensors, meta)
    refused(kind, {**tensors, "secret": ("uint8", (1,))}, meta, "secret|alone")
    for tensor, (dtype, shape) in tensors.items():
        for wrong in [
            ("int64", shape),
            (dtype, (*shape, 1)),
            (dtype, shape[:-1] if len(shape) < 3 else ()),
        ]:
            refused(kind, {**tensors, tensor: wrong}, meta, tensor)


def test_metadata_of_each_kind() -> None:
    refused("video", IMAGE, {}, "kind 'video'")
    for name, key, values in META:
        kind, tensors, meta = WHOLE[name]
        for value in values:
            refused(kind, tensors, {**meta, key: value}, rf"{key}|rgb")


def test_parts_that_do_not_belong_together_are_refused() -> None:
    _, scene, meta = WHOLE["scene"]
    refused("gaussians", {**scene, "shN": ("float32", (7, 9, 3))}, meta, "shN has 9")
    for columns in (0, 1, 4):
        odd = {**scene, "scales": ("float32", (7, columns))}
        refused("gaussians", odd, meta, f"scales has {columns} columns")
    for pair in ((1.0, 0.0), (0.0, 1.0)):
        check_frame("gaussians", scene, {**meta, "activated": pair})
    flat = {**scene, "scales": ("float32", (7, 2))}
    check_frame("gaussians", flat, meta)
    refused(
        "gaussians",
        {**scene, "scales": ("float32", (6, 3))},
        meta,
        "scales is float32 of shape",
    )
    refused("cameras", {"viewmats": CAMERAS["viewmats"]}, {}, "needs Ks, sizes")
    most = CAMERA_LIMITS["cameras"] + 1
    refused(
        "cameras",
        {name: (dtype, (most, *shape[1:])) for name, (dtype, shape) in CAMERAS.items()},
        {},
        "cameras",
    )
    refused(
        "cameras",
        {**CAMERAS, "paths": ("uint8", (CAMERA_LIMITS["text"] + 1,))},
        {},
        "bytes of paths",
    )
    refused(
        "overlay",
        {"boxes": ("float32", (1, 4)), "labels": ("uint8", (2**20 + 1,))},
        {},
        "bytes of labels",
    )
