"""Two pictures in one: where each is seen, how far they are apart, and what is given back."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from view_cases import module_screen, screen_fixture  # noqa: F401

from splatview.viewer_app.comparing.compositor import PairCompositor
from splatview.viewer_app.controls import Rect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.viewer_app.screens.offscreen import OffscreenScreen

W, H = 64, 48
ALL = Rect(0, 0, W, H)


@pytest.fixture
def pair(screen: OffscreenScreen) -> Iterator[PairCompositor]:
    made = PairCompositor(screen.ctx)
    yield made
    made.close()


def put(pair: PairCompositor, side: int, picture: np.ndarray) -> None:
    """Have (H, W, 3) float32, top row first, be one of the two."""
    target = pair.target(side, picture.shape[1], picture.shape[0])
    rgba = np.dstack([picture, np.ones(picture.shape[:2])]).astype(np.float32)
    target.color_attachments[0].write(np.ascontiguousarray(rgba[::-1]).tobytes())  # type: ignore[union-attr]


def random_pictures(width: int = W, height: int = H) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    first = rng.random((height, width, 3), np.float32)
    return first, np.clip(first + rng.normal(0, 0.05, first.shape), 0, 1).astype(np.float32)


def seen(screen: OffscreenScreen, rect: Rect = ALL) -> np.ndarray:
    pixels = screen.pixels()[..., :3].astype(int)
    return pixels[rect.y : rect.y + rect.height, rect.x : rect.x + rect.width]


def bytes_of(picture: np.ndarray) -> np.ndarray:
    return np.rint(picture.astype(np.float64) * 255).astype(int)


@pytest.mark.parametrize("at", [0.0, 0.25, 0.5, 1.0])
def test_a_line_splits_them(pair: PairCompositor, screen: OffscreenScreen, at: float) -> None:
    first, second = random_pictures()
    put(pair, 0, first)
    put(pair, 1, second)
    pair.draw(screen.framebuffer, ALL, "split", at)
    line = round(at * W)
    wanted = np.concatenate([first[:, :line], second[:, line:]], axis=1)
    np.testing.assert_allclose(seen(screen), bytes_of(wanted), atol=1)


def test_nothing_is_rounded_on_the_way(pair: PairCompositor, screen: OffscreenScreen) -> None:
    bytes_ = np.random.default_rng(3).integers(0, 256, (H, W, 3))
    put(pair, 0, (bytes_ / 255).astype(np.float32))
    put(pair, 1, np.zeros((H, W, 3)))
    pair.draw(screen.framebuffer, ALL, "blend", 0.0)
    np.testing.assert_array_equal(seen(screen), bytes_)


def test_only_its_rectangle_is_drawn(pair: PairCompositor, screen: OffscreenScreen) -> None:
    part = Rect(10, 6, 20, 30)
    first, second = random_pictures(part.width, part.height)
    put(pair, 0, first)
    put(pair, 1, second)
    pair.draw(screen.framebuffer, part, "split", 1.0)
    np.testing.assert_allclose(seen(screen, part), bytes_of(first), atol=1)
    around = np.ones((H, W), bool)
    around[6:36, 10:30] = False
    assert (seen(screen)[around] == (0, 255, 0)).all()


def test_halves_side_by_side(pair: PairCompositor, screen: OffscreenScreen) -> None:
    first, second = random_pictures(W // 2)
    put(pair, 0, first)
    put(pair, 1, second)
    pair.draw(screen.framebuffer, ALL, "side")
    np.testing.assert_allclose(seen(screen), bytes_of(np.concatenate([first, second], axis=1)), atol=1)


def test_a_blend_is_between_them(pair: PairCompositor, screen: OffscreenScreen) -> None:
    first, second = random_pictures()
    put(pair, 0, first)
    put(pair, 1, second)
    pair.draw(screen.framebuffer, ALL, "blend", 0.25)
    np.testing.assert_allclose(seen(screen), bytes_of(0.75 * first + 0.25 * second), atol=1)


def test_a_difference_is_black_where_there_is_none_and_brighter_with_more(
        pair: PairCompositor, screen: OffscreenScreen) -> None:
    first = np.full((H, W, 3), 0.5, np.float32)
    second = first.copy()
    second[:, 16:32] += 0.05
    second[:, 32:48] -= 0.1
    second[:, 48:] += 0.25
    put(pair, 0, first)
    put(pair, 1, second)
    pair.draw(screen.framebuffer, ALL, "difference", gain=4.0)
    columns = seen(screen)[:, [8, 24, 40, 56]].sum(axis=2)
    assert (columns[0] == columns).all()
    assert columns[0, 0] <= 8  # the map begins with something next to black
    assert (np.diff(columns[0]) > 60).all()
    assert columns[0, 3] > 500
    by_gain = seen(screen)[0, 40].tolist()
    pair.draw(screen.framebuffer, ALL, "difference", gain=8.0)
    assert seen(screen)[0, 24].tolist() == pytest.approx(by_gain, abs=1)


@pytest.mark.parametrize("size", [(W, H), (1, 1), (17, 16), (33, 47)])
def test_psnr_is_numpys(pair: PairCompositor, size: tuple[int, int]) -> None:
    first, second = random_pictures(*size)
    put(pair, 0, first)
    put(pair, 1, second)
    wanted = -10 * math.log10(((first.astype(np.float64) - second) ** 2).mean())
    assert pair.psnr() == pytest.approx(wanted, abs=1e-3)


def test_psnr_is_torchs_on_what_is_shown(pair: PairCompositor) -> None:
    import torch

    first, second = random_pictures()
    put(pair, 0, first)
    put(pair, 1, second)
    mse = torch.nn.functional.mse_loss(torch.from_numpy(first), torch.from_numpy(second))
    assert pair.psnr() == pytest.approx(float(-10 * torch.log10(mse)), abs=1e-3)


def test_psnr_in_a_part(pair: PairCompositor) -> None:
    first, second = random_pictures()
    second[:, :32] = first[:, :32]
    put(pair, 0, first)
    put(pair, 1, second)
    assert pair.psnr(Rect(0, 0, 32, H)) == math.inf
    box = Rect(20, 5, 31, 18)
    part = np.s_[5:23, 20:51]
    wanted = -10 * math.log10(((first[part].astype(np.float64) - second[part]) ** 2).mean())
    assert pair.psnr(box) == pytest.approx(wanted, abs=1e-3)
    assert pair.psnr(Rect(-5, -5, 500, 500)) == pytest.approx(pair.psnr(), abs=1e-9)
    assert pair.psnr(Rect(70, 0, 10, 10)) is None


def test_psnr_without_waiting_is_the_one_before(pair: PairCompositor) -> None:
    first, second = random_pictures()
    put(pair, 0, first)
    put(pair, 1, second)
    assert pair.psnr(wait=False) is None
    was = pair.psnr(wait=False)
    assert was == pytest.approx(pair.psnr(), abs=1e-9)
    put(pair, 1, first)
    assert pair.psnr(wait=False) == was
    assert pair.psnr(wait=False) == math.inf


def test_where_nothing_can_be_said_psnr_is_none(pair: PairCompositor) -> None:
    assert pair.psnr() is None
    first, _ = random_pictures()
    put(pair, 0, first)
    assert pair.psnr() is None
    put(pair, 1, random_pictures(20, 20)[0])
    assert pair.psnr() is None
    put(pair, 1, np.full((H, W, 3), np.nan))
    assert pair.psnr() is None


def test_a_part_of_large_targets_lies_where_it_was_drawn(pair: PairCompositor, screen: OffscreenScreen) -> None:
    first, second = random_pictures()
    put(pair, 0, first)
    put(pair, 1, second)
    part = Rect(7, 5, 40, 30)
    pair.draw(screen.framebuffer, part, "split", 0.5, part=part)
    wanted = np.concatenate([first[:, :27], second[:, 27:]], axis=1)[5:35, 7:47]
    np.testing.assert_allclose(seen(screen, part), bytes_of(wanted), atol=1)


def test_bytes_stay_bytes(pair: PairCompositor, screen: OffscreenScreen) -> None:
    bytes_ = np.random.default_rng(4).integers(0, 256, (H, W, 4), dtype=np.uint8)
    for side in (0, 1):
        target = pair.target(side, W, H, "f1")
        target.color_attachments[0].write(np.ascontiguousarray(bytes_[::-1]).tobytes())  # type: ignore[union-attr]
    pair.draw(screen.framebuffer, ALL, "split", 0.3)
    np.testing.assert_array_equal(seen(screen), bytes_[..., :3])
    assert pair.psnr() == math.inf
    assert pair.target(0, W, H) is not pair.target(0, W, H, "f1")


def test_a_target_stays_until_its_size_changes(pair: PairCompositor) -> None:
    assert pair.target(0, W, H) is pair.target(0, W, H)
    assert pair.target(0, W, H) is not pair.target(1, W, H)
    assert pair.target(0, 30, 20).size == (30, 20)


def test_what_it_cannot_draw_it_refuses(pair: PairCompositor, screen: OffscreenScreen) -> None:
    with pytest.raises(ValueError, match="both pictures"):
        pair.draw(screen.framebuffer, ALL, "split")
    with pytest.raises(ValueError, match=r"'flip'.*split, difference"):
        pair.draw(screen.framebuffer, ALL, "flip")  # type: ignore[arg-type]


def test_it_gives_back_everything_and_begins_anew(pair: PairCompositor, screen: OffscreenScreen) -> None:
    first, second = random_pictures()
    for _ in range(2):
        put(pair, 0, first)
        put(pair, 1, second)
        pair.draw(screen.framebuffer, ALL, "split")
        assert pair.psnr() is not None
        pair.close()
        pair.close()
        assert pair.psnr() is None
