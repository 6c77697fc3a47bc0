"""Frames of each kind as both sides check them, whatever the sender promised."""

from __future__ import annotations

import math
from typing import Any

import pytest

from splatview_ipc.control.limits import ITEM_SIZE, MAX_TENSORS
from splatview_ipc.kinds import check_frame
from splatview_ipc.kinds.cameras import CAMERAS_MOST

Tensors = dict[str, tuple[str, tuple[int, ...]]]

IMAGE: Tensors = {"image": ("uint8", (4, 5, 3))}
SCENE: Tensors = {"means": ("float32", (7, 3)), "quats": ("float32", (7, 4)), "scales": ("float32", (7, 3)),
                  "opacities": ("float32", (7,)), "sh0": ("float32", (7, 3)), "shN": ("float32", (7, 8, 3)),
                  "background": ("float32", (3,))}
SCENE_META: dict[str, Any] = {"color": "sh", "activated": False, "sh_degree": 2}
CAMERAS: Tensors = {"viewmats": ("float64", (2, 4, 4)), "Ks": ("float32", (2, 3, 3)), "sizes": ("int32", (2, 2)),
                    "paths": ("uint8", (9,))}
PHOTOS: Tensors = {"photos": ("uint8", (1, 6, 8, 3))}
PHOTOS_META: dict[str, Any] = {"camera": 0, "side": 8, "photos": 1}


def refused(kind: str, tensors: Tensors, meta: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_frame(kind, tensors, meta)


def test_whole_frames_are_taken() -> None:
    check_frame("image", IMAGE, {"layout": "HWC"})
    check_frame("image", IMAGE, {"layout": "BGR"})
    check_frame("gaussians", SCENE, SCENE_META)
    check_frame("cameras", CAMERAS, {"photos": 3})
    check_frame("cameras", PHOTOS, PHOTOS_META)
    check_frame("cameras", {"current": ("int32", (1,))}, {})
    refused("video", IMAGE, {}, "kind 'video'")


def test_images_that_do_not_fit_are_refused() -> None:
    refused("image", {**IMAGE, "mask": ("uint8", (4, 5))}, {"layout": "HWC"}, "'image' alone")
    refused("image", IMAGE, {"layout": "WH"}, "layout is 'WH'")
    refused("image", {"image": ("int64", (4, 5, 3))}, {"layout": "HWC"}, "image of dtype int64")
    refused("image", IMAGE, {"layout": "HW"}, "layout HW; legal")
    refused("image", {"image": ("uint8", (4, 5, 2))}, {"layout": "HWC"}, "1|3|4")


def test_gaussians_that_do_not_fit_are_refused() -> None:
    refused("gaussians", {**SCENE, "normals": ("float32", (7, 3))}, SCENE_META, "has no normals")
    refused("gaussians", SCENE, {**SCENE_META, "color": "hsv"}, "color is 'hsv'")
    refused("gaussians", SCENE, {**SCENE_META, "color": "rgb"}, "needs rgb")
    refused("gaussians", {**SCENE, "quats": ("int32", (7, 4))}, SCENE_META, "quats is int32")
    refused("gaussians", {**SCENE, "shN": ("float32", (7, 9, 3))}, SCENE_META, "shN has 9")
    refused("gaussians", {**SCENE, "scales": ("float32", (6, 3))}, SCENE_META, "scales is float32 of shape")
    refused("gaussians", SCENE, {**SCENE_META, "activated": 1}, "activated is 1")
    refused("gaussians", SCENE, {**SCENE_META, "sh_degree": 9}, "sh_degree is 9")


def test_cameras_that_do_not_fit_are_refused() -> None:
    most = CAMERAS_MOST["cameras"]
    refused("cameras", {"viewmats": CAMERAS["viewmats"]}, {}, "needs Ks, sizes")
    many = {name: (dtype, (most + 1, *shape[1:])) for name, (dtype, shape) in CAMERAS.items()}
    refused("cameras", many, {}, f"{most + 1} cameras")
    refused("cameras", {**CAMERAS, "Ks": ("float32", (3, 3, 3))}, {}, "Ks is float32 of shape")
    refused("cameras", {**CAMERAS, "sizes": ("float32", (2, 2))}, {}, "sizes is float32")
    refused("cameras", {**CAMERAS, "paths": ("uint8", (CAMERAS_MOST["text"] + 1,))}, {}, "bytes of paths")
    refused("cameras", CAMERAS, {"photos": -1}, "photos is -1")
    refused("cameras", {"current": ("int64", (1,))}, {}, "current is int64")
    wide: Tensors = {"photos": ("uint8", (1, CAMERAS_MOST["side"] + 1, 8, 3))}
    refused("cameras", wide, PHOTOS_META, "pixels along a photograph")
    refused("cameras", PHOTOS, {**PHOTOS_META, "camera": most}, f"camera is {most}")


# ---- overlays

N, M, K, E, L, T = 3, 2, 5, 4, 2, 1
OVERLAY: Tensors = {
    "boxes": ("float32", (N, 4)), "classes": ("int32", (N,)), "scores": ("float32", (N,)), "colors": ("uint8", (N, 4)),
    "labels": ("uint8", (20,)), "names": ("uint8", (0,)), "masks": ("uint8", (N, 6, 5)),
    "points": ("float32", (M, K, 3)), "skeleton": ("int32", (E, 2)), "point_classes": ("int32", (M,)),
    "lines": ("float32", (9, 2)), "line_ends": ("int32", (L,)), "line_classes": ("int32", (L,)),
    "notes_at": ("float32", (T, 2)), "notes": ("uint8", (7,)),
}
"""Everything that an overlay may hold."""
OVERLAY_META: dict[str, Any] = {"version": 7, "time_ns": 5, "width": 64, "height": 48, "motion": True,
                        "by": "x", "trouble": "", "rate_hz": 24.5, "work_ms": 40, "skipped": 2}


def test_a_whole_overlay_and_the_least_one() -> None:
    check_frame("overlay", OVERLAY, OVERLAY_META)
    check_frame("overlay", {"boxes": ("float32", (0, 4))}, {})
    assert len(OVERLAY) <= MAX_TENSORS


def test_each_tensor_of_an_overlay_has_its_dtype_and_shape() -> None:
    for name, (dtype, shape) in OVERLAY.items():
        for other in ITEM_SIZE.keys() - {dtype}:
            refused("overlay", OVERLAY | {name: (other, shape)}, OVERLAY_META, f"{name} is {other} of shape")
        for wrong in [(*shape, 1), shape[:-1], ()]:
            refused("overlay", OVERLAY | {name: (dtype, wrong)}, OVERLAY_META,
                    rf"{name} is {dtype} of shape .*, not {dtype} of shape \(")


def test_metadata_of_overlays() -> None:
    for name, values in (
            ("version", (-1, 2**63, 1.0, "1", True, (1.0,))), ("time_ns", (-1, 2**63, 1.0)), ("by", (5, True, (1.0,))),
            ("width", (-1, 32769, 5.0, True)), ("motion", (1, 0, "yes", 1.0)),
            ("trouble", (5,)), ("rate_hz", (-1, math.nan, math.inf, "fast", True, 2**63)),
            ("work_ms", (-0.5, math.nan)), ("skipped", (-1, "x"))):
        for value in values:
            refused("overlay", OVERLAY, OVERLAY_META | {name: value}, name)
