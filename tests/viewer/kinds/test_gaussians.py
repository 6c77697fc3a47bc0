"""The view of Gaussians: framing, background, forms of scenes and its settings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import cloud, frame_of, gaussian_frame
from support.view_cases import RECT, H, W, press_shortcut, scene_view, view_pixels

from splatview_viewer.core.events import (
    PointerMove,
    PointerPress,
    PointerRelease,
    Wheel,
)
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.workspace.join_shards import join

pytestmark = pytest.mark.usefixtures("sharp")
FRONT = Camera(look_at((0, 0, -4), (0, 0, 0)), intrinsics(50, W, H), W, H)


@pytest.fixture
def gaussians(screen: OffscreenScreen) -> Iterator[Any]:
    view = scene_view(screen)
    yield view
    view.close()


def test_first_picture_shows_the_whole_scene(
    gaussians: Any, screen: OffscreenScreen
) -> None:
    tensors = cloud()
    stretch = torch.tensor([0.4, 2.0, 0.4])
    offset = torch.tensor([50.0, -7.0, 3.0])
    tensors["means"] = tensors["means"] * stretch + offset
    tensors["scales"] -= 1.0
    # One Gaussian floats far away, one has no position.
    tensors["means"][0] = torch.tensor([1e5, 0.0, 0.0])
    tensors["means"][1, 0] = float("nan")
    gaussians.view.change(show="alpha")
    gaussians.update(gaussian_frame(tensors))
    lit_pixels = np.argwhere(view_pixels(gaussians, screen)[..., 0] > 40)
    top, left = lit_pixels.min(axis=0)
    bottom, right = lit_pixels.max(axis=0)
    assert 0 < top < H * 0.3
    assert H * 0.7 < bottom < H - 1
    assert 0 < left < right < W - 1
    assert "1 of 400 left out: 1 not finite" in gaussians.info.details


def test_updates_keep_the_camera_until_key_f_frames_the_scene(
    gaussians: Any, screen: OffscreenScreen
) -> None:
    gaussians.update(gaussian_frame())
    view_pixels(gaussians, screen)
    gaussians.handle(Wheel(20, 20, 3.0), RECT)
    viewmat = gaussians.view.rig.orbit.camera(W, H).viewmat
    tensors = cloud()
    tensors["means"] += 0.5
    gaussians.update(gaussian_frame(tensors, version=2))
    view_pixels(gaussians, screen)
    after_update = gaussians.view.rig.orbit.camera(W, H).viewmat
    np.testing.assert_array_equal(after_update, viewmat)
    press_shortcut(gaussians, "F")
    assert gaussians.tick(10.0)
    assert gaussians.tick(20.0)
    view_pixels(gaussians, screen)
    framed = gaussians.view.rig.orbit.camera(W, H).viewmat
    assert np.abs(framed - viewmat).max() > 0.1


def equal_forms() -> Iterator[tuple[Any, float]]:
    """Yield frames of the scene of `cloud` in each form, and their tolerances."""
    tensors = cloud()
    for dtype, tolerance in (
        (torch.float64, 1),
        (torch.float16, 10),
        (torch.bfloat16, 24),
    ):
        converted = {name: values.to(dtype) for name, values in tensors.items()}
        yield gaussian_frame(converted), tolerance
    activated = {
        "scales": tensors["scales"].exp(),
        "opacities": tensors["opacities"].sigmoid(),
    }
    yield gaussian_frame(tensors | activated, activated=True), 1
    without_color = {name: t for name, t in tensors.items() if name != "sh0"}
    rgb = (tensors["sh0"] * 0.28209479 + 0.5).clamp(1e-4, 1 - 1e-4)
    yield gaussian_frame(without_color | {"rgb": rgb}, color="rgb"), 1
    logits = {"rgb": torch.logit(rgb)}
    yield gaussian_frame(without_color | logits, color="rgb_logit"), 1
    higher_degrees = {"shN": torch.zeros(len(rgb), 15, 3)}
    yield gaussian_frame(tensors | higher_degrees, sh_degree=3), 1


def test_every_form_of_a_scene_looks_the_same(
    gaussians: Any, screen: OffscreenScreen
) -> None:
    gaussians.update(gaussian_frame())
    gaussians.view.rig.use_camera(FRONT)
    expected = view_pixels(gaussians, screen)
    assert expected.max() > 100
    for frame, tolerance in equal_forms():
        assert gaussians.update(frame)
        pixels = view_pixels(gaussians, screen)
        np.testing.assert_allclose(pixels, expected, atol=tolerance)


def test_georeferenced_streams_look_as_they_do_at_the_origin(
    gaussians: Any, screen: OffscreenScreen
) -> None:
    tensors = cloud()
    offset = torch.tensor([500_000.0, 5_400_000.0, 120.0], dtype=torch.float64)
    gaussians.update(gaussian_frame(tensors))
    expected = view_pixels(gaussians, screen)
    position = gaussians.view.rig.orbit.position
    far_tensors = tensors | {"means": tensors["means"].double() + offset}
    halves = []
    for i in range(2):
        half = {name: values[i::2] for name, values in far_tensors.items()}
        halves.append(gaussian_frame(half))
    for frame in (gaussian_frame(far_tensors), join(halves, (0, 1), 2)):
        assert gaussians.update(frame)
        gaussians.view.rig.frame_scene()
        pixels = view_pixels(gaussians, screen)
        np.testing.assert_allclose(pixels, expected, atol=2)
        moved_back = gaussians.view.rig.orbit.position - offset.numpy()
        np.testing.assert_allclose(moved_back, position, atol=1e-5)


def orbited_pictures(
    gaussians: Any, screen: OffscreenScreen, size: float
) -> list[np.ndarray]:
    """Return pictures of a scene of this size, before and after events."""
    tensors = cloud()
    scaled = {
        "means": tensors["means"] * size,
        "scales": tensors["scales"] + math.log(size),
    }
    gaussians.update(gaussian_frame(tensors | scaled))
    viewmat = look_at((0, 0, -4 * size), (0, 0, 0))
    gaussians.view.rig.use_camera(Camera(viewmat, intrinsics(50, W, H), W, H))
    pictures = [view_pixels(gaussians, screen)]
    for event in (
        Wheel(30, 30, 8.0),
        Wheel(30, 30, 4.0),
        PointerPress(40, 30),
        PointerMove(50, 38),
    ):
        gaussians.handle(event, RECT)
        pictures.append(view_pixels(gaussians, screen))
    gaussians.handle(PointerRelease(50, 38), RECT)
    return pictures


def test_small_scenes_are_orbited_like_large_ones(
    gaussians: Any, screen: OffscreenScreen
) -> None:
    large_pictures = orbited_pictures(gaussians, screen, 1.0)
    small_pictures = orbited_pictures(gaussians, screen, 1e-3)
    for large, small in zip(large_pictures, small_pictures, strict=True):
        assert large.max() > 100
        np.testing.assert_allclose(small, large, atol=4)


def test_scenes_of_other_conventions_are_recognised(gaussians: Any) -> None:
    raw = cloud()
    tilted = {**raw, "quats": raw["quats"] * 0.2 + torch.tensor([1.0, 0, 0, 0])}
    activated = {
        **raw,
        "scales": raw["scales"].exp(),
        "opacities": raw["opacities"].sigmoid(),
    }
    for fields, is_activated, choice in (
        (raw, False, None),
        (tilted, False, None),
        (activated, True, None),
        (raw, True, "activated"),
        (activated, False, "activated"),
        ({**raw, "quats": tilted["quats"].roll(-1, 1)}, False, "quats"),
        ({**raw, "quats": raw["quats"] * torch.nan}, False, None),
    ):
        frame = frame_of("gaussians", fields, color="sh", activated=is_activated)
        assert gaussians.update(frame)
        hint = gaussians.content.hints.hint
        if choice is None:
            assert hint is None or hint.choice is None
        else:
            assert hint is not None
            assert hint.choice == choice


def test_background_is_visible_through_transparent_gaussians(
    gaussians: Any, screen: OffscreenScreen
) -> None:
    # The one Gaussian is half transparent.
    tensors = {
        "means": torch.zeros(1, 3),
        "quats": torch.tensor([[1.0, 0, 0, 0]]),
        "scales": torch.full((1, 3), -1.6),
        "opacities": torch.zeros(1),
        "rgb": torch.ones(1, 3),
        "background": torch.tensor([0.0, 0.0, 1.0]),
    }
    gaussians.update(gaussian_frame(tensors, color="rgb"))
    gaussians.view.rig.use_camera(FRONT)
    pixels = view_pixels(gaussians, screen)
    # The stream has a background of its own.
    assert pixels[0, 0].tolist() == [0, 0, 255]
    assert pixels[H // 2, W // 2] == pytest.approx([127, 127, 255], abs=6)
    gaussians.view.change(background=(1.0, 0.0, 0.0))
    pixels = view_pixels(gaussians, screen)
    assert pixels[0, 0].tolist() == [255, 0, 0]
