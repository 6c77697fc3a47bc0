"""The image view, pixel by pixel, on a real OpenGL context."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import image_frame
from support.view_cases import RECT, H, W, change_state, image_view, opened, view_pixels
from support.wait import clock, wait_until

from splatview_viewer.core.events import PointerLeave, PointerMove
from splatview_viewer.geometry.pan_zoom import Place
from splatview_viewer.screens.offscreen import OffscreenScreen

DTYPES = torch.uint8, torch.float16, torch.bfloat16, torch.float32
FORMS = [
    (layout, c)
    for layout in ("HW", "HWC", "CHW", "BGR")
    for c in (1, 3, 4)
    if (c == 1 if layout == "HW" else c > 1 or layout != "BGR")
]


@pytest.fixture
def image(screen: OffscreenScreen) -> Iterator[Any]:
    v = image_view(screen)
    change_state(v, background=(0.0, 0.0, 0.0))
    yield v
    v.close()


@pytest.mark.parametrize(
    ("layout", "channels", "dtype"),
    [
        *((*form, dtype) for form, dtype in zip(FORMS, itertools.cycle(DTYPES))),
        *(("HWC", 3, dtype) for dtype in DTYPES),
    ],
)
def test_every_form_is_exact(
    image: Any, screen: OffscreenScreen, layout: str, channels: int, dtype: torch.dtype
) -> None:
    values = torch.rand(
        H, W, channels, generator=torch.Generator().manual_seed(channels)
    )
    if dtype == torch.uint8:
        values = (values * 255).round().to(dtype)
    else:
        values = values.to(dtype)
    laid = {
        "HW": values[..., 0],
        "HWC": values,
        "CHW": values.permute(2, 0, 1),
        "BGR": values[..., [2, 1, 0, 3][:channels]] if channels > 2 else None,
    }[layout]
    assert laid is not None
    change_state(image, alpha="ignore")
    assert image.update(image_frame(laid.contiguous(), layout))
    expected = values.float() * (1 if dtype == torch.uint8 else 255)
    expected = expected.expand(H, W, 3) if channels == 1 else expected[..., :3]
    np.testing.assert_allclose(view_pixels(image, screen), expected.numpy(), atol=1)
    assert image.view.value_at(37, 11) == pytest.approx(values[11, 37].tolist(), abs=0)


def test_pictures_from_files_are_exact(image: Any, screen: OffscreenScreen) -> None:
    rng = np.random.default_rng(0)
    deep = rng.integers(0, 65536, (H, W, 3), dtype=np.uint16)
    image.update(deep)
    np.testing.assert_allclose(view_pixels(image, screen), np.round(deep / 257), atol=1)
    assert image.view.value_at(5, 9) == tuple(deep[9, 5])
    grey_alpha = rng.integers(0, 256, (H, W, 2), dtype=np.uint8)
    change_state(image, alpha="ignore")
    image.update(grey_alpha)
    np.testing.assert_array_equal(
        view_pixels(image, screen), np.repeat(grey_alpha[..., :1], 3, axis=2)
    )


@pytest.mark.parametrize(("height", "width"), [(96, 128), (200, 300), (61, 77)])
def test_minified_pixels_are_averages(
    image: Any, screen: OffscreenScreen, height: int, width: int
) -> None:
    picture = np.random.default_rng(0).random((height, width, 3)).astype(np.float32)
    change_state(image, background=(0.2, 0.4, 0.6))
    image.update(picture)
    x, y, zoom = image.view.pan_zoom.placed(RECT)
    rows = coverage(H, height, y, zoom)
    columns = coverage(W, width, x, zoom)
    expected = np.einsum("yr,xc,rcd->yxd", rows, columns, picture, optimize=True)
    expected += (
        1 - rows.sum(1)[:, None, None] * columns.sum(1)[None, :, None]
    ) * np.array((0.2, 0.4, 0.6))
    np.testing.assert_allclose(view_pixels(image, screen), expected * 255, atol=1.01)


def coverage(screen: int, picture: int, origin: float, zoom: float) -> np.ndarray:
    """(screen, picture) share of each picture pixel in each screen pixel, along one
    axis.
    """
    edges = (np.arange(screen + 1) - origin) / zoom
    low = edges[:-1, None]
    high = edges[1:, None]
    cells = np.arange(picture)[None]
    return np.clip(np.minimum(high, cells + 1) - np.maximum(low, cells), 0, None) / (
        high - low
    )


@pytest.mark.parametrize(
    ("change", "choice"),
    [
        (lambda v: v * 255, (0.0, 255.0)),
        (lambda v: (v * 255).half() * (v > 0.7), (0.0, 255.0)),
        (lambda v: v * 2 - 1, (-1.0, 1.0)),
        (lambda v: (v * 255).round()[..., 0], (0.0, 255.0)),
        (lambda v: v[..., 0] * 20 + 2, None),
        (lambda v: torch.where(v > 0.9, torch.inf, v)[..., 0], None),
    ],
)
def test_values_out_of_range_are_shown_as_they_look(
    image: Any,
    screen: OffscreenScreen,
    choice: Any,
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    values = change(torch.rand(H, W, 3, generator=torch.Generator().manual_seed(0)))
    image.update(image_frame(values.contiguous()))
    wait_until(lambda: image.tick(clock()))
    hint = image.content.hints.hint
    assert hint is not None
    assert hint.choice == choice
    change_state(image, range=choice)
    finite = values[values.isfinite()].float().numpy()
    low, high = choice or np.percentile(finite, (1, 99))
    expected = (
        np.clip((values.float().numpy() - low) / (high - low), 0, 1) * 255
    )  # what is infinite is farthest
    np.testing.assert_allclose(
        view_pixels(image, screen),
        expected.reshape(H, W, -1).repeat(3 // expected[0, 0].size, 2),
        atol=1.01,
    )


def test_exposure_and_gamma(image: Any, screen: OffscreenScreen) -> None:
    values = torch.rand(H, W, 3, generator=torch.Generator().manual_seed(0)) * 3 - 0.2
    image.update(image_frame(values))
    change_state(image, exposure=-1.5, gamma=2.2)
    expected = (values.clamp(min=0) * 2**-1.5) ** (1 / 2.2)
    np.testing.assert_allclose(
        view_pixels(image, screen), expected.clamp(0, 1).numpy() * 255, atol=1
    )
    image.update(np.full((H, W, 3), 77, np.uint8))
    assert (view_pixels(image, screen) == 77).all()  # bytes are shown as they are


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_nan_and_inf_stand_out(
    image: Any, screen: OffscreenScreen, dtype: torch.dtype
) -> None:
    values = torch.full((H, W, 3), 0.5, dtype=dtype)
    values[3, 5, 1] = float("nan")
    values[7, 9, 0] = float("inf")
    values[7, 10] = -float("inf")
    image.update(image_frame(values))
    pixels = view_pixels(image, screen)
    magenta = (pixels == (255, 0, 255)).all(axis=-1)
    assert np.argwhere(magenta).tolist() == [[3, 5], [7, 9], [7, 10]]
    wait_until(lambda: image.tick(clock()))
    assert "5 NaN or inf (magenta)" in image.info.details


def test_alpha(image: Any, screen: OffscreenScreen) -> None:
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (H, W, 4), dtype=np.uint8)
    color = picture[..., :3].astype(float)
    alpha = picture[..., 3:] / 255
    change_state(image, background=(1.0, 0.5, 0.0))
    image.update(picture)
    change_state(image, alpha="background")
    np.testing.assert_allclose(
        view_pixels(image, screen),
        color * alpha + (1 - alpha) * (255, 127.5, 0),
        atol=1,
    )
    change_state(image, alpha="ignore")
    np.testing.assert_array_equal(view_pixels(image, screen), picture[..., :3])
    change_state(image, alpha="checkerboard")
    picture[..., 3] = 0
    image.update(picture)
    squares = view_pixels(image, screen)[..., 0] == view_pixels(image, screen)[0, 0, 0]
    np.testing.assert_array_equal(
        squares, (np.add.outer(np.arange(H) // 8, np.arange(W) // 8) % 2) == 0
    )


def test_the_readout_names_the_original_value(image: Any) -> None:
    values = torch.arange(6 * 8 * 3, dtype=torch.float32).reshape(6, 8, 3) / 10
    image.update(image_frame(values))
    change_state(image, exposure=-4.0)
    assert image.handle(PointerMove(3 * 8 + 4, 2 * 8 + 1), RECT)
    assert image.info.readout == "(3, 2)   5.7  5.8  5.9"
    assert not image.handle(PointerMove(3 * 8 + 5, 2 * 8 + 2), RECT)  # the same pixel
    image.update(image_frame((values * 0).to(torch.uint8) + 9))
    assert image.info.readout == "(3, 2)   9  9  9"
    assert image.handle(PointerLeave(), RECT)
    assert image.info.readout == ""


def test_another_size_of_picture_keeps_what_each_looks_at(
    screen: OffscreenScreen,
) -> None:
    b: Any
    with opened("image", screen) as (a, b):
        a.update(np.zeros((60, 80, 3), np.uint8))
        change_state(b, place=Place(4.0 * 80, (20 / 80, 30 / 60)))
        a.update(np.zeros((120, 160, 3), np.uint8))
        assert b.view.pan_zoom.placed(RECT) == (W / 2 - 2.0 * 40, H / 2 - 2.0 * 60, 2.0)
        c: Any = a.another_view()
        assert c.view.size == (160, 120)
        c.close()


def test_a_picture_beyond_the_gpus_textures_is_scaled_and_says_so(
    image: Any, screen: OffscreenScreen
) -> None:
    limit = screen.ctx.info["GL_MAX_TEXTURE_SIZE"]
    values = torch.zeros(8, limit + 2, dtype=torch.uint8)
    values[:, limit:] = 255
    assert image.update(image_frame(values, "HW"))
    assert any(
        f"1 pixel in 2 per axis: larger than this GPU's {limit}" in line
        for line in image.info.details
    )
    pixels = view_pixels(image, screen)
    assert pixels.min() == 0
    assert pixels.shape[2] == 3
    assert image.view.value_at(limit // 2, 2) == (255,)
