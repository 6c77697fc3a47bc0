"""Functions that draw: what they are given, and what is said of what they return."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from splatview.rendering.camera import RenderCamera
from splatview.rendering.function import checked_picture, draw_picture, takes_controls
from splatview.rendering.trouble import MAX_TROUBLE, DrawingError, text_of_fault
from splatview_ipc.control.messages import Draw, DrawnCamera

WIDTH = 4
HEIGHT = 3
VIEWMAT = ((0, -1, 0, 1), (1, 0, 0, 2), (0, 0, 1, 3), (0, 0, 0, 1))


def request(viewmat: Any = VIEWMAT, is_draft: bool = False) -> Draw:
    camera = DrawnCamera(
        width=WIDTH,
        height=HEIGHT,
        viewmat=tuple(float(v) for row in viewmat for v in row),
        K=(5.0, 0.0, 2.0, 0.0, 1.5, 1.5, 0.0, 0.0, 1.0),
    )
    return Draw(index=0, viewer="ab", number=1, camera=camera, is_draft=is_draft)


@pytest.fixture
def camera() -> RenderCamera:
    return RenderCamera.of(request(is_draft=True))


def test_camera_has_both_matrices_and_the_field_of_view(camera: RenderCamera) -> None:
    torch.testing.assert_close(camera.viewmat, torch.tensor(VIEWMAT).float())
    torch.testing.assert_close(camera.c2w @ camera.viewmat, torch.eye(4))
    assert camera.K[0, 0] == 5
    assert camera.fov == pytest.approx(math.pi / 2)
    assert (camera.width, camera.height, camera.is_draft) == (WIDTH, HEIGHT, True)
    assert camera.to("cpu").K.dtype == torch.float32


def test_camera_that_cannot_be_inverted_is_refused() -> None:
    with pytest.raises(ValueError, match="inverted"):
        RenderCamera.of(request([[0] * 4] * 4))
    with pytest.raises(ValueError, match="finite"):
        RenderCamera.of(request([[math.inf] * 4] * 4))


def test_pictures_come_as_bytes_in_one_order(camera: RenderCamera) -> None:
    rgb = torch.rand(HEIGHT, WIDTH, 3) * 1.5 - 0.25
    expected = (rgb.clamp(0, 1) * 255).round().to(torch.uint8)
    depth = torch.rand(HEIGHT, WIDTH)
    alpha = torch.ones(1, HEIGHT, WIDTH)
    forms: list[Any] = [
        rgb,
        rgb.requires_grad_(),
        rgb.detach().numpy(),
        rgb.movedim(-1, 0),
        [rgb],
        (rgb.double(), None, None),
        (rgb, depth[..., None].half(), alpha),
    ]
    for form in forms:
        picture = checked_picture(form, camera)
        torch.testing.assert_close(picture.color, expected)
        assert picture.is_whole
        assert picture.color.is_contiguous()
    picture = checked_picture(forms[-1], camera)
    assert list(picture.tensors()) == ["color", "alpha", "depth"]
    assert picture.depth is not None
    assert picture.depth.dtype == torch.float32
    numpy_picture = checked_picture(expected.numpy(), camera)
    torch.testing.assert_close(numpy_picture.color, expected)


RGB = torch.zeros(HEIGHT, WIDTH, 3)
BAD_RESULTS: list[tuple[Any, str]] = [
    (None, "returned nothing; return rgb, or"),
    ("picture", "returned .*str.*; return rgb"),
    ((RGB, RGB[..., 0]), "tuple of 2; return rgb, or"),
    ((None, None, None), "rgb is None"),
    (
        torch.zeros(WIDTH, HEIGHT, 3),
        r"\(4, 3, 3\); expected \(3, 4, 3\).*camera.height",
    ),
    (RGB[None], r"\(1, 3, 4, 3\).*first of the batch"),
    (torch.zeros(HEIGHT, WIDTH, 4), "return alpha as the third part"),
    (RGB.reshape(-1, 3), r"\.reshape\(3, 4, 3\)"),
    (RGB.long(), r"rgb is int64; expected uint8 .*\.float\(\) / 255"),
    ((RGB, RGB, None), r"depth has shape \(3, 4, 3\)"),
    ((RGB, RGB[..., 0].int(), None), r"depth is int32.*\.float\(\)"),
    ((RGB, None, RGB), r"alpha has shape"),
]


@pytest.mark.parametrize(("result", "message"), BAD_RESULTS)
def test_what_cannot_be_shown_is_named(
    result: Any, message: str, camera: RenderCamera
) -> None:
    with pytest.raises(DrawingError, match=message):
        checked_picture(result, camera)


def test_picture_stays_where_the_function_draws_into_the_same_memory_again(
    camera: RenderCamera,
) -> None:
    color = np.zeros((camera.height, camera.width, 3), np.uint8)
    depth = np.zeros((camera.height, camera.width), np.float32)
    picture = checked_picture((color, depth, color[..., 0]), camera)
    color[:] = 7
    depth[:] = 7
    assert not any(bool(part.any()) for part in picture.tensors().values())


def test_nan_is_told_without_reading_the_picture(camera: RenderCamera) -> None:
    bad = torch.full((HEIGHT, WIDTH, 3), math.nan)
    assert not checked_picture(bad, camera).is_whole
    assert not checked_picture((RGB, None, bad[..., 0]), camera).is_whole
    # Nothing is there.
    assert checked_picture((RGB, bad[..., 0], None), camera).is_whole


def test_call_leaves_the_state_of_the_script_alone(camera: RenderCamera) -> None:
    def function(given_camera: RenderCamera, controls: Any) -> torch.Tensor:
        assert controls == "controls"
        assert not torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)
        return torch.rand(given_camera.height, given_camera.width, 3)

    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    expected = torch.rand(1), random.random(), np.random.rand()
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    draw_picture(function, (camera,), "controls")
    assert torch.is_grad_enabled()
    assert (torch.rand(1), random.random(), np.random.rand()) == expected


def test_controls_are_left_out_where_they_are_not_taken() -> None:
    def only_camera(camera: Any, scale: float = 2.0) -> None: ...
    def with_controls(camera: Any, controls: Any = None) -> None: ...
    def any_number(*arguments: Any) -> None: ...

    assert not takes_controls(only_camera, 1)
    assert takes_controls(with_controls, 1)
    assert takes_controls(any_number, 2)
    assert takes_controls(print, 1)


def test_trouble_ends_with_the_error_and_fits_a_message() -> None:
    def fail() -> None:
        raise KeyError("means" + 2000 * "x")

    with pytest.raises(KeyError) as caught:
        fail()
    text = text_of_fault(caught.value)
    assert len(text) <= MAX_TROUBLE
    with pytest.raises(ZeroDivisionError) as division:
        print(1 // 0)
    text = text_of_fault(division.value)
    assert text.splitlines()[-1].startswith("ZeroDivisionError")
    assert "print(1 // 0)" in text
