"""The Gaussian view: framing, background, forms of scenes, what a user can switch; on a
real OpenGL context.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import cloud, frame_of, gaussian_frame
from support.view_cases import RECT, H, W, scene_view, view_pixels

from splatview_viewer.core.events import (
    Key,
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
    v = scene_view(screen)
    yield v
    v.close()


def test_a_scene_is_seen_whole_at_first_sight(
    gaussians: Any, screen: OffscreenScreen
) -> None:
    tensors = cloud()
    tensors["means"] = tensors["means"] * torch.tensor([0.4, 2.0, 0.4]) + torch.tensor(
        [50.0, -7.0, 3.0]
    )
    tensors["scales"] -= 1.0
    tensors["means"][0] = torch.tensor([1e5, 0.0, 0.0])  # a floater
    tensors["means"][1, 0] = float("nan")
    gaussians.view.change(show="alpha")
    gaussians.update(gaussian_frame(tensors))
    seen = np.argwhere(view_pixels(gaussians, screen)[..., 0] > 40)
    (top, left), (bottom, right) = seen.min(axis=0), seen.max(axis=0)
    assert 0 < top < H * 0.3
    assert H * 0.7 < bottom < H - 1
    assert 0 < left < right < W - 1
    assert "1 of 400 left out: 1 not finite" in gaussians.info.details


def test_updates_keep_the_camera_and_f_frames_again(
    gaussians: Any, screen: OffscreenScreen
) -> None:
    gaussians.update(gaussian_frame())
    view_pixels(gaussians, screen)
    gaussians.handle(Wheel(20, 20, 3.0), RECT)
    camera = gaussians.view.rig.orbit.camera(W, H).viewmat
    tensors = cloud()
    tensors["means"] += 0.5
    gaussians.update(gaussian_frame(tensors, version=2))
    view_pixels(gaussians, screen)
    np.testing.assert_array_equal(gaussians.view.rig.orbit.camera(W, H).viewmat, camera)
    assert gaussians.handle(Key("f"), RECT)
    assert gaussians.tick(10.0)
    assert gaussians.tick(20.0)  # it flies there
    view_pixels(gaussians, screen)
    assert np.abs(gaussians.view.rig.orbit.camera(W, H).viewmat - camera).max() > 0.1


def test_every_form_of_a_scene_looks_the_same(
    gaussians: Any, screen: OffscreenScreen
) -> None:
    t = cloud()
    other = {name: values for name, values in t.items() if name != "sh0"}
    rgb = (t["sh0"] * 0.28209479 + 0.5).clamp(1e-4, 1 - 1e-4)
    activated = {"scales": t["scales"].exp(), "opacities": t["opacities"].sigmoid()}
    gaussians.update(gaussian_frame())
    gaussians.view.rig.use_camera(FRONT)
    expected = view_pixels(gaussians, screen)
    assert expected.max() > 100
    for frame, tolerance in (
        *(
            (gaussian_frame({k: v.to(dtype) for k, v in t.items()}), tolerance)
            for dtype, tolerance in (
                (torch.float64, 1),
                (torch.float16, 10),
                (torch.bfloat16, 24),
            )
        ),
        (gaussian_frame(t | activated, activated=True), 1),
        (gaussian_frame(other | {"rgb": rgb}, color="rgb"), 1),
        (gaussian_frame(other | {"rgb": torch.logit(rgb)}, color="rgb_logit"), 1),
        (gaussian_frame(t | {"shN": torch.zeros(len(rgb), 15, 3)}, sh_degree=3), 1),
    ):
        assert gaussians.update(frame)
        np.testing.assert_allclose(
            view_pixels(gaussians, screen), expected, atol=tolerance
        )


def test_georeferenced_streams_look_as_they_do_at_the_origin(
    gaussians: Any, screen: OffscreenScreen
) -> None:
    tensors = cloud()
    offset = torch.tensor([500_000.0, 5_400_000.0, 120.0], dtype=torch.float64)
    gaussians.update(gaussian_frame(tensors))
    expected = view_pixels(gaussians, screen)
    place = gaussians.view.rig.orbit.position
    halves = [
        gaussian_frame(
            {
                k: (v.double() + offset if k == "means" else v)[i::2]
                for k, v in tensors.items()
            }
        )
        for i in range(2)
    ]
    for frame in (
        gaussian_frame(tensors | {"means": tensors["means"].double() + offset}),
        join(halves, (0, 1), 2),
    ):
        assert gaussians.update(frame)
        gaussians.view.rig.frame_scene()
        np.testing.assert_allclose(view_pixels(gaussians, screen), expected, atol=2)
        np.testing.assert_allclose(
            gaussians.view.rig.orbit.position - offset.numpy(), place, atol=1e-5
        )


def test_small_scenes_are_orbited_like_large_ones(
    gaussians: Any, screen: OffscreenScreen
) -> None:
    seen = []
    for size in (1.0, 1e-3):
        t = cloud()
        gaussians.update(
            gaussian_frame(
                t | {"means": t["means"] * size, "scales": t["scales"] + math.log(size)}
            )
        )
        gaussians.view.rig.use_camera(
            Camera(look_at((0, 0, -4 * size), (0, 0, 0)), intrinsics(50, W, H), W, H)
        )
        seen.append([view_pixels(gaussians, screen)])
        for event in (
            Wheel(30, 30, 8.0),
            Wheel(30, 30, 4.0),
            PointerPress(40, 30),
            PointerMove(50, 38),
        ):
            gaussians.handle(event, RECT)
            seen[-1].append(view_pixels(gaussians, screen))
        gaussians.handle(PointerRelease(50, 38), RECT)
    for large, small in zip(*seen, strict=True):
        assert large.max() > 100
        np.testing.assert_allclose(small, large, atol=4)


def test_scenes_that_look_like_something_else(gaussians: Any) -> None:
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
        assert gaussians.update(
            frame_of("gaussians", fields, color="sh", activated=is_activated)
        )
        hint = gaussians.content.hints.hint
        assert (hint and hint.choice) == choice


def test_the_background_shines_through(gaussians: Any, screen: OffscreenScreen) -> None:
    tensors = {
        "means": torch.zeros(1, 3),
        "quats": torch.tensor([[1.0, 0, 0, 0]]),
        "scales": torch.full((1, 3), -1.6),
        "opacities": torch.zeros(1),
        "rgb": torch.ones(1, 3),  # half transparent
        "background": torch.tensor([0.0, 0.0, 1.0]),
    }
    gaussians.update(gaussian_frame(tensors, color="rgb"))
    gaussians.view.rig.use_camera(FRONT)
    pixels = view_pixels(gaussians, screen)
    assert pixels[0, 0].tolist() == [0, 0, 255]  # the stream's own
    assert pixels[H // 2, W // 2] == pytest.approx([127, 127, 255], abs=6)
    gaussians.view.change(background=(1.0, 0.0, 0.0))
    pixels = view_pixels(gaussians, screen)
    assert pixels[0, 0].tolist() == [255, 0, 0]
