"""Frames of each kind as both sides check them, whatever the sender promised."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from splatview_ipc.control.limits import MAX_TENSORS
from splatview_ipc.kinds import check_frame
from splatview_ipc.kinds.cameras import CAMERA_LIMITS


@dataclass(frozen=True)
class _Frame:
    """The arguments of `check_frame`."""

    kind: str
    tensors: Any
    """Tuples of dtype and shape by name."""
    meta: dict[str, Any]


_IMAGE = _Frame("image", {"image": ("uint8", (4, 5, 3))}, {"layout": "HWC"})
_DEPTH = _Frame(
    "image",
    {"image": ("uint16", (1, 4, 5))},
    {"layout": "CHW", "unit": "m", "scale": 0.001},
)
_SCENE = _Frame(
    "gaussians",
    {
        "means": ("float32", (7, 3)),
        "quats": ("float32", (7, 4)),
        "scales": ("float32", (7, 3)),
        "opacities": ("float32", (7,)),
        "sh0": ("float32", (7, 3)),
        "shN": ("float32", (7, 8, 3)),
        "background": ("float32", (3,)),
        "filter_3D": ("float32", (7,)),
    },
    {"color": "sh", "activated": False, "sh_degree": 2},
)
_CAMERAS = _Frame(
    "cameras",
    {
        "viewmats": ("float64", (2, 4, 4)),
        "Ks": ("float32", (2, 3, 3)),
        "sizes": ("int32", (2, 2)),
        "paths": ("uint8", (9,)),
    },
    {"photos": 3},
)
_PHOTOGRAPHS = _Frame(
    "cameras",
    {"photos": ("uint8", (1, 6, 8, 3))},
    {"camera": 0, "side": 8, "photos": 1},
)
_CURRENT = _Frame("cameras", {"current": ("int32", (1,))}, {})
_OVERLAY = _Frame(
    "overlay",
    {
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
    },
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
)
_FRAMES = {
    "image": _IMAGE,
    "depth": _DEPTH,
    "scene": _SCENE,
    "cameras": _CAMERAS,
    "photographs": _PHOTOGRAPHS,
    "current": _CURRENT,
    "overlay": _OVERLAY,
}
_INVALID_META: list[tuple[_Frame, str, tuple[Any, ...]]] = [
    (_IMAGE, "layout", ("WH", "HW", 3)),
    (_DEPTH, "unit", (1, True, "m\n", "seventeen letters")),
    (_DEPTH, "scale", (0, -1, 2e9, math.nan, math.inf, True, "x", (0.001,))),
    (_SCENE, "color", ("hsv", "rgb")),
    (_SCENE, "activated", (1, "x", (1.0,), (1.0, 0.5), (0.0, 1.0, 0.0), math.nan)),
    (_SCENE, "sh_degree", (9, -1, "x")),
    (_CAMERAS, "photos", (-1, 1.5)),
    (_PHOTOGRAPHS, "camera", (CAMERA_LIMITS["cameras"],)),
    (_OVERLAY, "version", (-1, 2**63, 1.0, "1", True, (1.0,))),
    (_OVERLAY, "time_ns", (-1, 2**63, 1.0)),
    (_OVERLAY, "by", (5, True, (1.0,))),
    (_OVERLAY, "width", (-1, 32769, 5.0, True)),
    (_OVERLAY, "trouble", (5,)),
    (_OVERLAY, "work_ms", (-0.5, math.nan)),
    (_OVERLAY, "rate_hz", (-1, math.nan, math.inf, "fast", True, 2**63)),
    (_OVERLAY, "skipped", (-1, "x")),
]


def _check(frame: _Frame) -> None:
    check_frame(frame.kind, frame.tensors, frame.meta)


def _assert_refused(frame: _Frame, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _check(frame)
        pytest.fail(f"{frame} was accepted")


def _with_tensor(frame: _Frame, name: str, dtype: str, shape: Any) -> _Frame:
    """Return the frame with one tensor replaced or added."""
    return replace(frame, tensors={**frame.tensors, name: (dtype, shape)})


def _with_meta(frame: _Frame, name: str, value: Any) -> _Frame:
    return replace(frame, meta={**frame.meta, name: value})


def _wrong_forms(dtype: str, shape: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    yield "int64", shape
    yield dtype, (*shape, 1)
    yield dtype, shape[:-1] if len(shape) < 3 else ()


@pytest.mark.parametrize("name", _FRAMES)
def test_each_tensor_must_have_its_dtype_and_shape(name: str) -> None:
    frame = _FRAMES[name]
    assert len(frame.tensors) <= MAX_TENSORS
    _check(frame)
    for tensor, (dtype, shape) in frame.tensors.items():
        for wrong_dtype, wrong_shape in _wrong_forms(dtype, shape):
            wrong_frame = _with_tensor(frame, tensor, wrong_dtype, wrong_shape)
            _assert_refused(wrong_frame, tensor)


@pytest.mark.parametrize("name", _FRAMES)
def test_unknown_tensor_is_refused(name: str) -> None:
    frame = _with_tensor(_FRAMES[name], "secret", "uint8", (1,))
    _assert_refused(frame, "secret|alone")


def test_unknown_kind_is_refused() -> None:
    _assert_refused(replace(_IMAGE, kind="video"), "kind 'video'")


@pytest.mark.parametrize(("frame", "key", "values"), _INVALID_META)
def test_invalid_metadata_is_refused(
    frame: _Frame, key: str, values: tuple[Any, ...]
) -> None:
    for value in values:
        _assert_refused(_with_meta(frame, key, value), rf"{key}|rgb")


def test_other_images_may_use_the_names_of_what_measurements_say() -> None:
    _check(_with_meta(_with_meta(_IMAGE, "unit", 3), "scale", "large"))


def test_scene_may_have_two_scales_and_a_pair_of_activations() -> None:
    _check(_with_tensor(_SCENE, "scales", "float32", (7, 2)))
    for pair in ((1.0, 0.0), (0.0, 1.0)):
        _check(_with_meta(_SCENE, "activated", pair))


def test_tensors_that_do_not_belong_together_are_refused() -> None:
    scene = _with_tensor(_SCENE, "shN", "float32", (7, 9, 3))
    _assert_refused(scene, "shN has 9")
    for columns in (0, 1, 4):
        scene = _with_tensor(_SCENE, "scales", "float32", (7, columns))
        _assert_refused(scene, f"scales has {columns} columns")
    scene = _with_tensor(_SCENE, "scales", "float32", (6, 3))
    _assert_refused(scene, "scales is float32 of shape")
    viewmats = {"viewmats": _CAMERAS.tensors["viewmats"]}
    _assert_refused(replace(_CAMERAS, tensors=viewmats), "needs Ks, sizes")


def test_frames_over_a_limit_are_refused() -> None:
    too_many = CAMERA_LIMITS["cameras"] + 1
    tensors = {
        name: (dtype, (too_many, *shape[1:]))
        for name, (dtype, shape) in _CAMERAS.tensors.items()
    }
    _assert_refused(replace(_CAMERAS, tensors=tensors), "cameras")
    too_long = (CAMERA_LIMITS["text"] + 1,)
    cameras = _with_tensor(_CAMERAS, "paths", "uint8", too_long)
    _assert_refused(cameras, "bytes of paths")
    overlay = _with_tensor(_OVERLAY, "labels", "uint8", (2**20 + 1,))
    _assert_refused(overlay, "bytes of labels")
