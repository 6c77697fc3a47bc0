"""The image view, pixel by pixel, on a real OpenGL context."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import image_frame
from support.view_cases import (
    RECT,
    SMALL,
    H,
    ViewUser,
    W,
    change_state,
    image_view,
    opened,
    user_pixels,
    view_pixels,
)
from support.wait import clock, wait_until

from splatview_viewer.core.events import PointerLeave, PointerMove
from splatview_viewer.geometry.pan_zoom import Place
from splatview_viewer.kinds.image.passes import ComputeCanvas
from splatview_viewer.screens.offscreen import OffscreenScreen

DTYPES = torch.uint8, torch.float16, torch.bfloat16, torch.float32
FORMS = [
    ("HW", 1),
    ("HWC", 1),
    ("HWC", 3),
    ("HWC", 4),
    ("CHW", 1),
    ("CHW", 3),
    ("CHW", 4),
    ("BGR", 3),
    ("BGR", 4),
]
"""Layouts and their numbers of channels."""
MINIFIED = [
    ("HW", 1, torch.uint8, 0.85),
    ("HWC", 1, torch.float16, 0.5),
    ("HWC", 3, torch.uint8, 0.85),
    ("HWC", 3, torch.uint8, 0.34),
    ("HWC", 3, torch.float32, 0.999),
    ("HWC", 3, torch.float32, 0.21),
    ("HWC", 4, torch.uint8, 0.5),
    ("HWC", 4, torch.bfloat16, 0.85),
    ("CHW", 3, torch.float32, 0.34),
    ("CHW", 4, torch.uint8, 0.999),
    ("BGR", 3, torch.float16, 0.85),
    ("BGR", 4, torch.uint8, 0.34),
]
"""Layouts, channels, dtypes and zooms, such that the shader has each of its forms."""
BACKGROUND = (0.2, 0.4, 0.6)


@pytest.fixture
def image(screen: OffscreenScreen) -> Iterator[Any]:
    view = image_view(screen)
    change_state(view, background=(0.0, 0.0, 0.0))
    yield view
    view.close()


def in_layout(values: torch.Tensor, layout: str) -> torch.Tensor:
    """Return values (H, W, C) as a picture of this layout has them."""
    if layout == "HW":
        return values[..., 0]
    if layout == "CHW":
        return values.permute(2, 0, 1)
    if layout == "BGR":
        channels = [2, 1, 0, 3][: values.shape[2]]
        return values[..., channels]
    return values


@pytest.mark.parametrize(
    ("layout", "channels", "dtype"),
    [
        *((*form, dtype) for form, dtype in zip(FORMS, itertools.cycle(DTYPES))),
        *(("HWC", 3, dtype) for dtype in DTYPES),
    ],
)
def test_every_form_is_drawn_exactly(
    image: Any, screen: OffscreenScreen, layout: str, channels: int, dtype: torch.dtype
) -> None:
    random = torch.Generator().manual_seed(channels)
    values = torch.rand(H, W, channels, generator=random)
    scale = 255
    if dtype == torch.uint8:
        values = (values * 255).round()
        scale = 1
    values = values.to(dtype)
    change_state(image, alpha="ignore")
    laid_out = in_layout(values, layout).contiguous()
    assert image.update(image_frame(laid_out, layout))
    expected = values.float() * scale
    if channels == 1:
        expected = expected.expand(H, W, 3)
    pixels = view_pixels(image, screen)
    np.testing.assert_allclose(pixels, expected[..., :3].numpy(), atol=1)
    assert image.view.value_at(37, 11) == pytest.approx(values[11, 37].tolist(), abs=0)


def test_pictures_from_files_are_drawn_exactly(
    image: Any, screen: OffscreenScreen
) -> None:
    rng = np.random.default_rng(0)
    deep = rng.integers(0, 65536, (H, W, 3), dtype=np.uint16)
    image.update(deep)
    np.testing.assert_allclose(view_pixels(image, screen), np.round(deep / 257), atol=1)
    assert image.view.value_at(5, 9) == tuple(deep[9, 5])
    grey_alpha = rng.integers(0, 256, (H, W, 2), dtype=np.uint8)
    change_state(image, alpha="ignore")
    image.update(grey_alpha)
    grey = np.repeat(grey_alpha[..., :1], 3, axis=2)
    np.testing.assert_array_equal(view_pixels(image, screen), grey)


@pytest.fixture(params=["pixels", "compute"])
def image_by_pass(image: Any, screen: OffscreenScreen, request: Any) -> Any:
    """Return a view that draws by a pixel shader, and one that computes."""
    choose_pass(image, screen, request.param)
    return image


def choose_pass(image: Any, screen: OffscreenScreen, name: str) -> None:
    """Have an image drawn by "pixels" or by "compute" from now on."""
    canvas = ComputeCanvas(screen.ctx) if name == "compute" else None
    image.content.passes.canvas = canvas


def place_of(zoom: float, height: int, width: int) -> Place:
    """Return a place at which the upper left corner of a picture is visible."""
    return Place(zoom * width, (0.3 * W / zoom / width, 0.4 * H / zoom / height))


@pytest.mark.parametrize(("layout", "channels", "dtype", "zoom"), MINIFIED)
def test_minified_pixels_are_averages(
    image: Any,
    screen: OffscreenScreen,
    layout: str,
    channels: int,
    dtype: torch.dtype,
    zoom: float,
) -> None:
    height = 71
    width = 83
    values = torch.rand(
        height, width, channels, generator=torch.Generator().manual_seed(0)
    )
    scale = 1.0
    if dtype == torch.uint8:
        values = (values * 255).round()
        scale = 1 / 255
    values = values.to(dtype)
    place = place_of(zoom, height, width)
    change_state(image, background=BACKGROUND, alpha="background", place=place)
    assert image.update(image_frame(in_layout(values, layout).contiguous(), layout))
    picture = values.float().numpy() * scale
    if channels == 1:
        picture = picture.repeat(3, 2)
    alpha = np.ones((height, width, 1))
    if channels == 4:
        alpha = picture[..., 3:]
    picture = picture[..., :3] * alpha + (1 - alpha) * np.array(BACKGROUND)
    expected = averages(image, picture)
    np.testing.assert_allclose(view_pixels(image, screen), expected * 255, atol=1.01)


def averages(image: Any, picture: np.ndarray) -> np.ndarray:
    """Return an opaque picture as a view minifies it, before `BACKGROUND`."""
    rows, columns = coverages(image, picture)
    sums = np.einsum("yr,xc,rcd->yxd", rows, columns, picture, optimize=True)
    covered = rows.sum(1)[:, None, None] * columns.sum(1)[None, :, None]
    return sums + (1 - covered) * np.array(BACKGROUND)


def coverages(image: Any, picture: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coverage of rows and of columns of a picture in a view."""
    height, width = picture.shape[:2]
    x, y, zoom = image.view.pan_zoom.placed(RECT)
    return coverage(H, height, y, zoom), coverage(W, width, x, zoom)


def coverage(screen: int, picture: int, origin: float, zoom: float) -> np.ndarray:
    """Return the share (screen, picture) of picture pixels in screen pixels.

    Both are counted along one axis.
    """
    edges = (np.arange(screen + 1) - origin) / zoom
    low = edges[:-1, None]
    high = edges[1:, None]
    cells = np.arange(picture)[None]
    overlap = np.minimum(high, cells + 1) - np.maximum(low, cells)
    return np.clip(overlap, 0, None) / (high - low)


def wait_for_hint(image: Any) -> None:
    """Take turns until the values of the picture are measured."""

    def is_measured() -> bool:
        return image.tick(clock())

    wait_until(is_measured)


def _bytes_as_floats(values: torch.Tensor) -> torch.Tensor:
    return values * 255


def _bytes_as_halves(values: torch.Tensor) -> torch.Tensor:
    return (values * 255).half() * (values > 0.7)


def _signed(values: torch.Tensor) -> torch.Tensor:
    return values * 2 - 1


def _integers(values: torch.Tensor) -> torch.Tensor:
    return (values * 255).round()[..., 0]


def _depth(values: torch.Tensor) -> torch.Tensor:
    return values[..., 0] * 20 + 2


def _infinite_in_places(values: torch.Tensor) -> torch.Tensor:
    return torch.where(values > 0.9, torch.inf, values)[..., 0]


@pytest.mark.parametrize(
    ("change", "choice"),
    [
        (_bytes_as_floats, (0.0, 255.0)),
        (_bytes_as_halves, (0.0, 255.0)),
        (_signed, (-1.0, 1.0)),
        (_integers, (0.0, 255.0)),
        (_depth, None),
        (_infinite_in_places, None),
    ],
)
def test_values_out_of_range_are_drawn_by_the_suggested_range(
    image: Any,
    screen: OffscreenScreen,
    choice: Any,
    change: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    random = torch.Generator().manual_seed(0)
    values = change(torch.rand(H, W, 3, generator=random))
    image.update(image_frame(values.contiguous()))
    wait_for_hint(image)
    hint = image.content.hints.hint
    assert hint is not None
    assert hint.choice == choice
    change_state(image, range=choice)
    finite = values[values.isfinite()].float().numpy()
    low, high = choice or np.percentile(finite, (1, 99))
    # Infinite values are farthest.
    shares = np.clip((values.float().numpy() - low) / (high - low), 0, 1)
    expected = (shares * 255).reshape(H, W, -1)
    if expected.shape[2] == 1:
        expected = expected.repeat(3, 2)
    np.testing.assert_allclose(view_pixels(image, screen), expected, atol=1.01)


def test_exposure_and_gamma_change_floats_alone(
    image: Any, screen: OffscreenScreen
) -> None:
    random = torch.Generator().manual_seed(0)
    values = torch.rand(H, W, 3, generator=random) * 3 - 0.2
    image.update(image_frame(values))
    change_state(image, exposure=-1.5, gamma=2.2)
    exposed = (values.clamp(min=0) * 2**-1.5) ** (1 / 2.2)
    expected = exposed.clamp(0, 1).numpy() * 255
    np.testing.assert_allclose(view_pixels(image, screen), expected, atol=1)
    # Bytes are drawn as they are.
    image.update(np.full((H, W, 3), 77, np.uint8))
    assert (view_pixels(image, screen) == 77).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_nan_and_inf_are_magenta(
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
    wait_for_hint(image)
    assert "5 NaN or inf (magenta)" in image.info.details


@pytest.mark.parametrize("zoom", [0.34, 0.85])
def test_minified_nan_is_magenta_wherever_it_is_covered(
    image_by_pass: Any, screen: OffscreenScreen, zoom: float
) -> None:
    picture = np.full((71, 83, 3), 0.5, np.float32)
    picture[20, 25, 2] = np.nan
    picture[0, 0, 0] = np.inf
    change_state(image_by_pass, place=place_of(zoom, 71, 83))
    image_by_pass.update(picture)
    rows, columns = coverages(image_by_pass, picture)
    is_broken = np.outer(rows[:, 20], columns[:, 25]) > 0
    pixels = view_pixels(image_by_pass, screen)
    magenta = (pixels == (255, 0, 255)).all(axis=-1)
    np.testing.assert_array_equal(magenta[10:, 10:], is_broken[10:, 10:])
    # The corner lies over the background in part.
    covers_corner = np.outer(rows[:, 0], columns[:, 0]) > 0
    assert (pixels[covers_corner][:, 1] == 0).all()


@pytest.mark.parametrize(
    ("channels", "dtype", "white"), [(3, np.uint8, 255), (4, np.float32, 1)]
)
def test_views_of_several_sizes_compute_what_pixel_shaders_draw(
    screen: OffscreenScreen, channels: int, dtype: Any, white: int
) -> None:
    random = np.random.default_rng(0)
    picture = (random.random((71, 83, channels)) * white).astype(dtype)
    small: Any
    large: Any
    with opened("image", screen) as (small, large):
        small.update(picture)
        choose_pass(small, screen, "pixels")
        change_state(large, place=place_of(0.85, 71, 83))
        users = [(small, ViewUser(SMALL)), (large, ViewUser(RECT))]
        expected = [user_pixels(view, screen, user) for view, user in users]
        choose_pass(small, screen, "compute")
        for k in (0, 1, 0):
            view, user = users[k]
            pixels = user_pixels(view, screen, user)
            np.testing.assert_allclose(pixels, expected[k], atol=1)


def test_alpha_is_drawn_in_each_mode(image: Any, screen: OffscreenScreen) -> None:
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (H, W, 4), dtype=np.uint8)
    color = picture[..., :3].astype(float)
    alpha = picture[..., 3:] / 255
    change_state(image, background=(1.0, 0.5, 0.0))
    image.update(picture)
    change_state(image, alpha="background")
    expected = color * alpha + (1 - alpha) * (255, 127.5, 0)
    np.testing.assert_allclose(view_pixels(image, screen), expected, atol=1)
    change_state(image, alpha="ignore")
    np.testing.assert_array_equal(view_pixels(image, screen), picture[..., :3])
    change_state(image, alpha="checkerboard")
    picture[..., 3] = 0
    image.update(picture)
    red = view_pixels(image, screen)[..., 0]
    squares = np.add.outer(np.arange(H) // 8, np.arange(W) // 8)
    np.testing.assert_array_equal(red == red[0, 0], squares % 2 == 0)


def test_readout_has_the_original_value(image: Any) -> None:
    values = torch.arange(6 * 8 * 3, dtype=torch.float32).reshape(6, 8, 3) / 10
    image.update(image_frame(values))
    change_state(image, exposure=-4.0)
    assert image.handle(PointerMove(3 * 8 + 4, 2 * 8 + 1), RECT)
    assert image.info.readout == "(3, 2)   5.7  5.8  5.9"
    # Within the same pixel of the picture, nothing changes.
    assert not image.handle(PointerMove(3 * 8 + 5, 2 * 8 + 2), RECT)
    image.update(image_frame((values * 0).to(torch.uint8) + 9))
    assert image.info.readout == "(3, 2)   9  9  9"
    assert image.handle(PointerLeave(), RECT)
    assert image.info.readout == ""


def test_picture_of_another_size_keeps_the_views_in_place(
    screen: OffscreenScreen,
) -> None:
    second: Any
    with opened("image", screen) as (first, second):
        first.update(np.zeros((60, 80, 3), np.uint8))
        change_state(second, place=Place(4.0 * 80, (20 / 80, 30 / 60)))
        first.update(np.zeros((120, 160, 3), np.uint8))
        x, y, zoom = second.view.pan_zoom.placed(RECT)
        assert x == W / 2 - 2.0 * 40
        assert y == H / 2 - 2.0 * 60
        assert zoom == 2.0
        third: Any = first.another_view()
        assert third.view.size == (160, 120)
        third.close()


def test_picture_beyond_the_gpus_textures_is_scaled_and_says_so(
    image: Any, screen: OffscreenScreen
) -> None:
    limit = screen.ctx.info["GL_MAX_TEXTURE_SIZE"]
    values = torch.zeros(8, limit + 2, dtype=torch.uint8)
    values[:, limit:] = 255
    assert image.update(image_frame(values, "HW"))
    note = f"1 pixel in 2 per axis: larger than this GPU's {limit}"
    assert any(note in line for line in image.info.details)
    pixels = view_pixels(image, screen)
    assert pixels.min() == 0
    assert pixels.shape[2] == 3
    assert image.view.value_at(limit // 2, 2) == (255,)
