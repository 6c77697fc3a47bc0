"""Pictures of one channel of uint16, such as a depth camera's: colours, legend, values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.frames import image_frame
from support.view_cases import RECT, H, W, change_state, image_view, view_pixels
from support.viewer import PICTURE, Viewer
from support.wait import clock, wait_until

import splatview
from splatview.adapters.images import recognise_image
from splatview_viewer.core.events import PointerMove
from splatview_viewer.scene import color_maps
from splatview_viewer.screens.offscreen import OffscreenScreen

BACKGROUND = 0.2, 0.4, 0.6
METRES = {"unit": "m", "scale": 0.001}


@pytest.fixture
def image(screen: OffscreenScreen) -> Iterator[Any]:
    view = image_view(screen)
    change_state(view, background=BACKGROUND)
    yield view
    view.close()


def depth(seed: int = 0, nearest: int = 500) -> torch.Tensor:
    """Make (H, W) of 3 m behind the nearest, with a hole in the upper left corner."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(nearest, nearest + 3000, (H, W), generator=generator)
    values[:10, :20] = 0
    return values.to(torch.uint16)


def expected_pixels(
    values: torch.Tensor, name: str, low: float, high: float
) -> np.ndarray:
    array = values.numpy().astype(float)
    colors = color_maps.colors(name, (array - low) / (high - low))
    colors[array == 0] = BACKGROUND
    return colors * 255


def percentiles(values: torch.Tensor) -> tuple[float, float]:
    array = values.numpy()
    low, high = np.percentile(array[array > 0], (1, 99))
    return low, high


@pytest.mark.parametrize("layout", ["HW", "HWC", "CHW"])
def test_colors_span_the_range_of_what_was_measured(
    image: Any, screen: OffscreenScreen, layout: str
) -> None:
    values = depth()
    axis = {"HW": None, "HWC": 2, "CHW": 0}[layout]
    laid_out = values if axis is None else values.unsqueeze(axis)
    assert image.update(image_frame(laid_out, layout))
    expected = expected_pixels(values, "turbo", *percentiles(values))
    np.testing.assert_allclose(view_pixels(image, screen), expected, atol=1.5)


def test_range_follows_the_values(image: Any, screen: OffscreenScreen) -> None:
    image.update(image_frame(depth()))
    view_pixels(image, screen)
    later = depth(1, nearest=9000)
    image.update(image_frame(later))

    def is_measured_again() -> bool:
        return image.tick(clock())

    wait_until(is_measured_again)
    expected = expected_pixels(later, "turbo", *percentiles(later))
    np.testing.assert_allclose(view_pixels(image, screen), expected, atol=1.5)


def test_range_by_hand_is_in_the_unit(image: Any, screen: OffscreenScreen) -> None:
    values = depth()
    image.update(image_frame(values, **METRES))
    change_state(image, color_map="magma", measured_range=(1.0, 2.5))
    expected = expected_pixels(values, "magma", 1000, 2500)
    np.testing.assert_allclose(view_pixels(image, screen), expected, atol=1.5)
    assert "1 to 2.5 m" in image.info.details


@pytest.mark.parametrize("value", [0, 700, 65535])
def test_picture_of_one_value_is_drawn(
    image: Any, screen: OffscreenScreen, value: int
) -> None:
    image.update(image_frame(torch.full((H, W), value, dtype=torch.uint16)))
    first = color_maps.table("turbo")[0] if value else np.array(BACKGROUND)
    expected = np.broadcast_to(first * 255, (H, W, 3))
    np.testing.assert_allclose(view_pixels(image, screen), expected, atol=1.5)


def test_minified_holes_take_no_part_in_colors(
    image: Any, screen: OffscreenScreen
) -> None:
    values = torch.full((2 * H, 2 * W), 700, dtype=torch.uint16)
    values[::2] = 0
    image.update(image_frame(values))
    mixed = (color_maps.table("turbo")[0] + np.array(BACKGROUND)) / 2
    pixels = view_pixels(image, screen)
    np.testing.assert_allclose(pixels, np.full((H, W, 3), mixed * 255), atol=1.5)


def test_colors_of_16_bits_stay_colors(image: Any, screen: OffscreenScreen) -> None:
    image.update(image_frame(depth()))
    view_pixels(image, screen)
    generator = torch.Generator().manual_seed(0)
    picture = torch.randint(0, 65536, (H, W, 3), generator=generator)
    image.update(image_frame(picture.to(torch.uint16)))
    expected = picture.numpy() / 257
    np.testing.assert_allclose(view_pixels(image, screen), expected, atol=1)


@pytest.mark.parametrize(
    ("meta", "text"),
    [
        ({}, "1234"),
        ({"unit": "mm"}, "1234 mm"),
        (METRES, "1234   1.234 m"),
        ({"scale": 0.25}, "1234   308.5"),
    ],
)
def test_readout_has_the_stored_value_and_the_unit(
    image: Any, meta: dict[str, Any], text: str
) -> None:
    values = torch.full((H, W), 1234, dtype=torch.uint16)
    values[0, 0] = 0
    image.update(image_frame(values, note="x", **meta))
    image.handle(PointerMove(3, 2), RECT)
    assert image.info.readout == f"(3, 2)   {text}"
    image.handle(PointerMove(0, 0), RECT)
    assert image.info.readout == "(0, 0)   0"
    # Metadata that the view itself shows is not listed.
    assert not any(line.startswith(("unit", "scale")) for line in image.info.details)
    assert "note x" in image.info.details


def has_legend(picture: np.ndarray) -> bool:
    """Return whether some row at the lower right has all colours of the map."""
    bar = picture[-80:, -226:-24]
    colors = color_maps.colors("turbo", np.linspace(0, 1, bar.shape[1])) * 255
    return bool((np.abs(bar - colors).max(axis=(1, 2)) < 25).any())


def test_published_depth_has_a_legend(viewer: Viewer) -> None:
    values = torch.full((H, W), 1234, dtype=torch.uint16)
    splatview.publish(values[None], "depth", meta={**METRES, "step": 3})
    viewer.until(viewer.loaded)
    viewer.do(
        PointerMove(PICTURE.x + PICTURE.width // 2, PICTURE.y + PICTURE.height // 2)
    )
    assert viewer.image.info().readout.endswith("   1234   1.234 m")
    assert has_legend(viewer.picture())
    splatview.publish((values.float() / 65535)[None], "depth")

    def is_replaced() -> bool:
        return "float32" in viewer.image.info().details

    viewer.until(is_replaced)
    assert not has_legend(viewer.picture())


def test_unit_and_scale_are_checked_at_the_call() -> None:
    values = torch.ones(4, 5, dtype=torch.uint16)
    with pytest.raises(ValueError, match="scale is 0; legal are numbers over 0"):
        splatview.publish(values, "depth", meta={"scale": 0})
    with pytest.raises(ValueError, match="unit is 3"):
        splatview.publish(values, "depth", meta={"unit": 3})
    splatview.publish(values.int().float(), "floats", meta={"unit": 3, "scale": 0})


def test_pil_images_of_16_bits_are_taken() -> None:
    picture = Image.fromarray(depth().numpy())
    assert picture.mode == "I;16"
    layout = recognise_image(picture)
    published = layout.match(picture, {})
    assert published is not None
    tensors, _ = published
    assert torch.equal(layout.frame(tensors)["image"], depth())
