"""One conformance suite over all views, then what each shows: pixels compared, on a real OpenGL context."""

from __future__ import annotations

import pkgutil
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from frames import cloud, frame_of, gaussian_frame, image_frame

import viewer_app.views
from viewer_app.cameras import Camera, intrinsics, look_at
from viewer_app.controls import Rect
from viewer_app.errors import ViewerError
from viewer_app.events import Key, PointerLeave, PointerMove, PointerPress, PointerRelease, Wheel
from viewer_app.scene import GaussianScene
from viewer_app.screens.offscreen import OffscreenScreen
from viewer_app.state import ViewSettings
from viewer_app.views import KINDS, make_view
from viewer_app.views.gaussians import GaussianView
from viewer_app.views.image import ImageView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipc import Frame
    from viewer_app.views.base import View

W, H = 64, 48
RECT = Rect(0, 0, W, H)
SAMPLES: dict[str, Callable[..., Frame]] = {
    "image": lambda **more: image_frame(torch.rand(20, 30, 3, generator=torch.Generator().manual_seed(1)), **more),
    "gaussians": lambda **more: gaussian_frame(**more),
}
OTHERS: dict[str, Callable[..., Frame]] = {
    "image": lambda **more: image_frame(torch.zeros(7, 9, dtype=torch.uint8), **more),
    "gaussians": lambda **more: gaussian_frame(cloud(50, seed=3), **more),
}


@pytest.fixture(scope="module")
def module_screen() -> Iterator[OffscreenScreen]:
    screen = OffscreenScreen(W, H)
    yield screen
    screen.close()


@pytest.fixture
def screen(module_screen: OffscreenScreen) -> Iterator[OffscreenScreen]:
    module_screen.resize(W, H, 1.0)
    module_screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    yield module_screen
    assert module_screen.ctx.error == "GL_NO_ERROR"


def shown(view: View, screen: OffscreenScreen, rect: Rect | None = None) -> np.ndarray:
    """(H, W, 3) int: what the view draws."""
    view.draw(screen.framebuffer, rect or Rect(0, 0, *screen.size))
    return screen.pixels()[..., :3].astype(int)


# -- every view ----------------------------------------------------------------------------------------------


@pytest.fixture(params=KINDS)
def view(request: pytest.FixtureRequest, screen: OffscreenScreen) -> Iterator[View]:
    v = make_view(request.param, screen.ctx, ViewSettings())
    yield v
    v.close()


def test_no_view_was_missed() -> None:
    modules = {m.name for m in pkgutil.iter_modules(viewer_app.views.__path__) if not m.name.startswith("_")}
    assert modules - {"base"} == set(KINDS) == set(SAMPLES)


def test_it_is_empty_at_first(view: View, screen: OffscreenScreen) -> None:
    assert view.empty
    assert view.details == []
    assert view.readout == ""
    pixels = shown(view, screen)
    assert (pixels == pixels[0, 0]).all()
    assert not view.tick(time.monotonic())


def test_it_shows_a_frame(view: View, screen: OffscreenScreen) -> None:
    assert view.update(SAMPLES[view.kind]())
    assert not view.empty
    pixels = shown(view, screen)
    assert pixels.std() > 10
    assert view.details
    assert view.path
    assert all(isinstance(ms, float) and ms >= 0 for ms in view.timings.values())
    np.testing.assert_array_equal(shown(view, screen), pixels)


def test_it_draws_all_of_its_rectangle_and_nothing_else(view: View, screen: OffscreenScreen) -> None:
    view.update(SAMPLES[view.kind]())
    rect = Rect(11, 5, 30, 21)
    marker = np.array([3, 250, 7])
    screen.framebuffer.clear(3 / 255, 250 / 255, 7 / 255, 1.0)
    pixels = shown(view, screen, rect)
    inside = np.zeros((H, W), bool)
    inside[5:26, 11:41] = True
    assert (pixels[~inside] == marker).all()
    assert not (pixels[inside] == marker).all(axis=-1).any()


def test_a_part_shows_what_the_whole_would(view: View, screen: OffscreenScreen) -> None:
    view.update(SAMPLES[view.kind]())
    part = shown(view, screen, Rect(11, 5, 30, 21))[5:26, 11:41]
    if isinstance(view, GaussianView):
        view.frame()
    screen.resize(30, 21)
    np.testing.assert_allclose(shown(view, screen), part, atol=1)


def test_a_torn_frame_changes_nothing(view: View, screen: OffscreenScreen) -> None:
    view.update(SAMPLES[view.kind]())
    before = shown(view, screen)
    details = view.details
    assert not view.update(OTHERS[view.kind](intact=False))
    np.testing.assert_array_equal(shown(view, screen), before)
    assert view.details == details
    assert view.update(OTHERS[view.kind]())
    assert (shown(view, screen) != before).any()


def test_a_first_frame_that_is_torn_leaves_it_empty(view: View) -> None:
    assert not view.update(SAMPLES[view.kind](intact=False))
    assert view.empty


def test_memory_may_change_after_an_update(view: View, screen: OffscreenScreen) -> None:
    frame = SAMPLES[view.kind]()
    view.update(frame)
    before = shown(view, screen)
    for tensor in frame.tensors.values():
        tensor.array[...] = 0
    if isinstance(view, GaussianView):
        view.settings.sh_degree = 0  # so that it draws anew
    np.testing.assert_array_equal(shown(view, screen), before)


def test_it_refuses_what_it_cannot_show(view: View) -> None:
    wrong: Any = np.zeros((2, 3, 4, 5)) if view.kind == "image" else np.zeros((5, 5, 3), np.uint8)
    with pytest.raises(ViewerError):
        view.update(wrong)
    assert view.empty


def test_metadata_is_shown(view: View) -> None:
    view.update(SAMPLES[view.kind](step=12_000, loss=0.25, note="warm up"))
    assert {"step 12,000", "loss 0.25", "note warm up"} <= set(view.details)


def test_tiny_rectangles(view: View, screen: OffscreenScreen) -> None:
    view.update(SAMPLES[view.kind]())
    for rect in (Rect(0, 0, 1, 1), Rect(63, 47, 1, 1), Rect(0, 0, W, 1), Rect(5, 0, 1, H)):
        shown(view, screen, rect)


def test_close_is_idempotent(view: View) -> None:
    view.update(SAMPLES[view.kind]())
    view.close()
    view.close()


def test_other_kinds_have_no_view(screen: OffscreenScreen) -> None:
    with pytest.raises(ViewerError, match="legal are image, gaussians"):
        make_view("scalars", screen.ctx, ViewSettings())


# -- images --------------------------------------------------------------------------------------------------


@pytest.fixture
def image(screen: OffscreenScreen) -> Iterator[ImageView]:
    v = ImageView(screen.ctx)
    v.settings.background = (0.0, 0.0, 0.0)
    yield v
    v.close()


FORMS = [(layout, c) for layout in ("HW", "HWC", "CHW") for c in (1, 3, 4) if layout != "HW" or c == 1]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("layout", "channels"), FORMS)
def test_every_form_is_exact(image: ImageView, screen: OffscreenScreen, dtype: torch.dtype, layout: str,
                             channels: int) -> None:
    values = torch.rand(H, W, channels, generator=torch.Generator().manual_seed(channels))
    values = (values * 255).round().to(dtype) if dtype == torch.uint8 else values.to(dtype)
    laid = {"HW": values[..., 0], "HWC": values, "CHW": values.permute(2, 0, 1)}[layout]
    image.settings.alpha = "ignore"
    assert image.update(image_frame(laid.contiguous(), layout))
    expected = values.float() if dtype != torch.uint8 else values.float() / 255
    expected = (expected * 255).round().int().numpy()
    expected = np.repeat(expected, 3, axis=2) if channels == 1 else expected[..., :3]
    np.testing.assert_allclose(shown(image, screen), expected, atol=1)
    x, y = 37, 11
    assert image.value_at(x, y) == pytest.approx(values[y, x].tolist(), abs=0)


def test_pictures_from_files_are_exact(image: ImageView, screen: OffscreenScreen) -> None:
    rng = np.random.default_rng(0)
    deep = rng.integers(0, 65536, (H, W, 3), dtype=np.uint16)
    image.update(deep)
    np.testing.assert_allclose(shown(image, screen), np.round(deep / 257), atol=1)
    assert image.value_at(5, 9) == tuple(deep[9, 5])
    grey_alpha = rng.integers(0, 256, (H, W, 2), dtype=np.uint8)
    image.settings.alpha = "ignore"
    image.update(grey_alpha)
    np.testing.assert_array_equal(shown(image, screen), np.repeat(grey_alpha[..., :1], 3, axis=2))


def test_the_first_row_is_on_top_and_red_is_red(image: ImageView, screen: OffscreenScreen) -> None:
    picture = np.zeros((H, W, 3), np.uint8)
    picture[0, 0] = 255, 0, 0
    picture[0, -1] = 0, 255, 0
    picture[-1, 0] = 0, 0, 255
    image.update(picture)
    pixels = shown(image, screen)
    assert pixels[0, 0].tolist() == [255, 0, 0]
    assert pixels[0, -1].tolist() == [0, 255, 0]
    assert pixels[-1, 0].tolist() == [0, 0, 255]
    assert pixels[-1, -1].tolist() == [0, 0, 0]


def test_magnified_pixels_are_squares(image: ImageView, screen: OffscreenScreen) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image.update(picture)
    np.testing.assert_array_equal(shown(image, screen), np.kron(picture, np.ones((8, 8, 1), int)))


@pytest.mark.parametrize(("height", "width"), [(96, 128), (144, 192), (200, 300), (48 * 8, 64 * 8), (61, 77)])
def test_minified_pixels_are_averages(image: ImageView, screen: OffscreenScreen, height: int, width: int) -> None:
    picture = np.random.default_rng(0).random((height, width, 3)).astype(np.float32)
    image.settings.background = (0.2, 0.4, 0.6)
    image.update(picture)
    x, y, zoom = image.pan_zoom.placed(RECT)
    rows, columns = _coverage(H, height, y, zoom), _coverage(W, width, x, zoom)
    expected = np.einsum("yr,xc,rcd->yxd", rows, columns, picture, optimize=True)
    expected += (1 - rows.sum(1)[:, None, None] * columns.sum(1)[None, :, None]) * np.array(image.settings.background)
    np.testing.assert_allclose(shown(image, screen), expected * 255, atol=1.01)


def _coverage(screen: int, picture: int, origin: float, zoom: float) -> np.ndarray:
    """(screen, picture) share of each picture pixel in each screen pixel, along one axis."""
    edges = (np.arange(screen + 1) - origin) / zoom
    low, high = edges[:-1, None], edges[1:, None]
    cells = np.arange(picture)[None]
    return np.clip(np.minimum(high, cells + 1) - np.maximum(low, cells), 0, None) / (high - low)


def test_far_minified_pixels_are_close_to_averages(image: ImageView, screen: OffscreenScreen) -> None:
    y, x = np.mgrid[0:2400, 0:3200] / 3200
    picture = np.stack([x, y, 0.5 + 0.3 * np.sin(9 * x * y)], -1).astype(np.float32)
    image.update(picture)
    expected = picture.reshape(48, 50, 64, 50, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(shown(image, screen), expected * 255, atol=1.5)


def test_aspect_is_kept(image: ImageView, screen: OffscreenScreen) -> None:
    image.update(np.full((10, 40, 3), 255, np.uint8))
    white = (shown(image, screen) == 255).all(axis=-1)
    assert white.any(axis=0).all()
    rows = np.flatnonzero(white.all(axis=1))
    assert (rows[0], rows[-1]) == (16, 31)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 40), (40, 1)])
def test_the_smallest_pictures(image: ImageView, screen: OffscreenScreen, height: int, width: int) -> None:
    image.update(np.full((height, width, 3), 255, np.uint8))
    assert (shown(image, screen) == 255).all(axis=-1).any()


def test_exposure_and_gamma(image: ImageView, screen: OffscreenScreen) -> None:
    values = torch.rand(H, W, 3, generator=torch.Generator().manual_seed(0)) * 3 - 0.2
    image.update(image_frame(values))
    image.settings.exposure, image.settings.gamma = -1.5, 2.2
    expected = (values.clamp(min=0) * 2**-1.5) ** (1 / 2.2)
    np.testing.assert_allclose(shown(image, screen), expected.clamp(0, 1).numpy() * 255, atol=1)
    image.update(np.full((H, W, 3), 77, np.uint8))
    assert (shown(image, screen) == 77).all()  # bytes are shown as they are


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_nan_and_inf_stand_out(image: ImageView, screen: OffscreenScreen, dtype: torch.dtype, layout: str) -> None:
    values = torch.full((H, W, 3), 0.5)
    values[3, 5, 1], values[7, 9, 0], values[7, 10] = float("nan"), float("inf"), -float("inf")
    laid = values if layout == "HWC" else values.permute(2, 0, 1)
    image.update(image_frame(laid.to(dtype).contiguous(), layout))
    pixels = shown(image, screen)
    magenta = (pixels == (255, 0, 255)).all(axis=-1)
    assert np.argwhere(magenta).tolist() == [[3, 5], [7, 9], [7, 10]]
    assert "5 NaN or inf (magenta)" in image.details


def test_one_nan_is_seen_in_a_large_picture(image: ImageView, screen: OffscreenScreen) -> None:
    picture = np.full((H * 6, W * 6), 0.5, np.float32)
    picture[100, 200] = np.nan
    image.update(picture)
    assert np.argwhere((shown(image, screen) == (255, 0, 255)).all(axis=-1)).tolist() == [[100 // 6, 200 // 6]]


def test_counting_nans_waits_but_is_not_forgotten(image: ImageView, wait_until: Callable[..., Any]) -> None:
    clean = torch.zeros(8, 8)
    broken = clean.clone()
    broken[2, :3] = float("nan")
    image.update(image_frame(clean))
    image.update(image_frame(broken))  # at once: not counted yet
    assert not any("NaN" in d for d in image.details)
    wait_until(lambda: image.tick(time.monotonic()))
    assert "3 NaN or inf (magenta)" in image.details
    assert not image.tick(time.monotonic() + 60)


def test_alpha(image: ImageView, screen: OffscreenScreen) -> None:
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (H, W, 4), dtype=np.uint8)
    color, alpha = picture[..., :3].astype(float), picture[..., 3:] / 255
    image.settings.background = (1.0, 0.5, 0.0)
    image.update(picture)
    image.settings.alpha = "background"
    np.testing.assert_allclose(shown(image, screen), color * alpha + (1 - alpha) * (255, 127.5, 0), atol=1)
    image.settings.alpha = "ignore"
    np.testing.assert_array_equal(shown(image, screen), picture[..., :3])
    image.settings.alpha = "checkerboard"
    picture[..., 3] = 0
    image.update(picture)
    squares = shown(image, screen)
    assert len(np.unique(squares)) == 2
    assert (squares[:8, :8] == squares[0, 0]).all()
    assert (squares[:8, 8:16] != squares[0, 0]).all()
    assert (squares[8:16, 8:16] == squares[0, 0]).all()


def test_the_readout_names_the_original_value(image: ImageView) -> None:
    values = torch.arange(6 * 8 * 3, dtype=torch.float32).reshape(6, 8, 3) / 10
    image.update(image_frame(values))
    image.settings.exposure = -4.0
    assert image.handle(PointerMove(3 * 8 + 4, 2 * 8 + 1), RECT)
    assert image.readout == "(3, 2)   5.7  5.8  5.9"
    assert not image.handle(PointerMove(3 * 8 + 5, 2 * 8 + 2), RECT)  # the same pixel
    image.update(image_frame((values * 0).to(torch.uint8) + 9))
    assert image.readout == "(3, 2)   9  9  9"
    assert image.handle(PointerLeave(), RECT)
    assert image.readout == ""


def test_the_readout_follows_zoom_and_is_empty_outside(image: ImageView) -> None:
    image.update(np.arange(48, dtype=np.uint8).reshape(6, 8))
    image.handle(PointerMove(63, 0), RECT)
    assert image.readout == "(7, 0)   7"
    for _ in range(8):
        image.handle(Wheel(63, 0, 1), RECT)
    assert image.readout == "(7, 0)   7"
    image.handle(PointerMove(200, 0), RECT)
    assert image.readout == ""


def test_zoomed_pictures_lie_where_the_maths_says(image: ImageView, screen: OffscreenScreen) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (H, W, 3), dtype=np.uint8)
    image.update(picture)
    image.pan_zoom.set_zoom(4.0, RECT)
    image.pan_zoom.center = (20.0, 30.0)
    expected = np.kron(picture[24:36, 12:28], np.ones((4, 4, 1), int))
    np.testing.assert_array_equal(shown(image, screen), expected)


def test_planes_too_tall_for_one_texture(image: ImageView, screen: OffscreenScreen) -> None:
    image._limit = 100  # the planes of H=48 take 144 rows
    values = torch.randint(0, 256, (3, H, W), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    image.update(image_frame(values, "CHW"))
    np.testing.assert_array_equal(shown(image, screen), values.permute(1, 2, 0).numpy())


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_pictures_larger_than_a_texture_are_thinned(image: ImageView, screen: OffscreenScreen, layout: str) -> None:
    image._limit = 100
    values = torch.randint(0, 256, (3 * H, 3 * W, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    laid = values if layout == "HWC" else values.permute(2, 0, 1).contiguous()
    image.update(image_frame(laid, layout))
    screen.resize(96, 72)
    pixels = shown(image, screen)
    assert image.size == (96, 72)
    np.testing.assert_array_equal(pixels, values[::2, ::2].numpy())
    assert any("larger than" in d for d in image.details)
    image.handle(PointerMove(10.5, 20.5), Rect(0, 0, 96, 72))
    assert image.readout.startswith("(20, 40)   " + "  ".join(str(v) for v in values[40, 20].tolist()))


def test_forms_may_change_between_frames(image: ImageView, screen: OffscreenScreen) -> None:
    for shape, layout in (((4, 6, 3), "HWC"), ((3, 9, 5), "CHW"), ((7, 7), "HW"), ((4, 6, 3), "HWC")):
        values = torch.randint(0, 256, shape, dtype=torch.uint8)
        assert image.update(image_frame(values, layout))
        shown(image, screen)
        x = values.permute(1, 2, 0) if layout == "CHW" else values.reshape(*values.shape[:2], -1)
        assert image.value_at(3, 2) == tuple(x[2, 3].tolist())


# -- Gaussians -----------------------------------------------------------------------------------------------


@pytest.fixture
def gaussians(screen: OffscreenScreen) -> Iterator[GaussianView]:
    v = GaussianView(screen.ctx)
    yield v
    v.close()


def ball(positions: list[tuple[float, float, float]], colors: list[tuple[float, float, float]],
         size: float = 0.2) -> dict[str, torch.Tensor]:
    n = len(positions)
    return {"means": torch.tensor(positions), "quats": torch.tensor([[1.0, 0, 0, 0]]).repeat(n, 1),
            "scales": torch.full((n, 3), float(np.log(size))), "opacities": torch.full((n,), 8.0),
            "rgb": torch.tensor(colors)}


FRONT = Camera(look_at((0, 0, -4), (0, 0, 0)), intrinsics(50, W, H), W, H)


def test_x_is_right_and_y_is_down(gaussians: GaussianView, screen: OffscreenScreen) -> None:
    scene = ball([(0, -1, 0), (1, 0, 0), (-1, 0, 0)], [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
    gaussians.update(gaussian_frame(scene, color="rgb"))
    gaussians.use_camera(FRONT)
    pixels = shown(gaussians, screen)
    middles = [np.argwhere(pixels[..., c] > 128).mean(axis=0) for c in range(3)]
    assert middles[0][0] < H / 2 - 8  # red above
    assert middles[1][1] > W / 2 + 8  # green on the right
    assert middles[2][1] < W / 2 - 8


def test_a_scene_is_seen_whole_at_first_sight(gaussians: GaussianView, screen: OffscreenScreen) -> None:
    tensors = cloud()
    tensors["means"] = tensors["means"] * torch.tensor([0.4, 2.0, 0.4]) + torch.tensor([50.0, -7.0, 3.0])
    tensors["scales"] -= 1.0
    tensors["means"][0] = torch.tensor([1e5, 0.0, 0.0])  # a floater
    tensors["means"][1, 0] = float("nan")
    gaussians.settings.show = "alpha"
    gaussians.update(gaussian_frame(tensors))
    seen = np.argwhere(shown(gaussians, screen)[..., 0] > 40)
    (top, left), (bottom, right) = seen.min(axis=0), seen.max(axis=0)
    assert 0 < top < bottom < H - 1
    assert 0 < left < right < W - 1
    assert bottom - top > H * 0.6
    assert abs((top + bottom) / 2 - H / 2) < 5
    assert "1 skipped (NaN or inf)" in gaussians.details


def test_updates_keep_the_camera_and_f_frames_again(gaussians: GaussianView, screen: OffscreenScreen) -> None:
    gaussians.update(gaussian_frame())
    shown(gaussians, screen)
    gaussians.handle(Wheel(20, 20, 3.0), RECT)
    camera = gaussians.orbit.camera(W, H).viewmat
    tensors = cloud()
    tensors["means"] += 0.5
    gaussians.update(gaussian_frame(tensors, version=2))
    shown(gaussians, screen)
    np.testing.assert_array_equal(gaussians.orbit.camera(W, H).viewmat, camera)
    assert gaussians.handle(Key("f"), RECT)
    shown(gaussians, screen)
    assert np.abs(gaussians.orbit.camera(W, H).viewmat - camera).max() > 0.1


def test_a_scene_that_begins_empty_is_framed_later(gaussians: GaussianView, screen: OffscreenScreen) -> None:
    gaussians.update(gaussian_frame({k: v[:0] for k, v in cloud().items()}))
    assert (shown(gaussians, screen) == 0).all()
    tensors = cloud()
    tensors["means"] += 100.0
    gaussians.update(gaussian_frame(tensors))
    assert shown(gaussians, screen).max() > 50


def as_frame(variant: str) -> Frame:
    """The same scene in another dress."""
    t = cloud()
    match variant:
        case "float16" | "bfloat16" | "float64":
            return gaussian_frame({k: v.to(getattr(torch, variant)) for k, v in t.items()})
        case "activated":
            return gaussian_frame(t | {"scales": t["scales"].exp(), "opacities": t["opacities"].sigmoid()},
                                  activated=True)
        case "rgb":
            rgb = t["sh0"] * 0.28209479 + 0.5
            return gaussian_frame({k: v for k, v in t.items() if k != "sh0"} | {"rgb": rgb},
                                  color="rgb")
        case "rgb_logit":
            rgb = (t["sh0"] * 0.28209479 + 0.5).clamp(1e-4, 1 - 1e-4)
            return gaussian_frame({k: v for k, v in t.items() if k != "sh0"} | {"rgb": torch.logit(rgb)},
                                  color="rgb_logit")
        case "shN":
            return gaussian_frame(t | {"shN": torch.zeros(len(t["means"]), 15, 3)}, sh_degree=3)
    raise AssertionError(variant)


@pytest.mark.parametrize(("variant", "tolerance"), [("float64", 1), ("float16", 10), ("bfloat16", 24), ("activated", 1),
                                                    ("rgb", 1), ("rgb_logit", 1), ("shN", 1)])
def test_every_form_of_a_scene_looks_the_same(gaussians: GaussianView, screen: OffscreenScreen, variant: str,
                                              tolerance: int) -> None:
    gaussians.update(gaussian_frame())
    gaussians.use_camera(FRONT)
    expected = shown(gaussians, screen)
    assert expected.max() > 100
    assert gaussians.update(as_frame(variant))
    np.testing.assert_allclose(shown(gaussians, screen), expected, atol=tolerance)


def test_an_unknown_colour_space_is_refused(gaussians: GaussianView) -> None:
    with pytest.raises(ViewerError, match="'hsv'"):
        gaussians.update(gaussian_frame(color="hsv"))


def test_the_background_shines_through(gaussians: GaussianView, screen: OffscreenScreen) -> None:
    tensors = ball([(0, 0, 0)], [(1, 1, 1)])
    tensors["opacities"][:] = 0.0  # half transparent
    tensors["background"] = torch.tensor([0.0, 0.0, 1.0])
    gaussians.update(gaussian_frame(tensors, color="rgb"))
    gaussians.use_camera(FRONT)
    pixels = shown(gaussians, screen)
    assert pixels[0, 0].tolist() == [0, 0, 255]  # the stream's own
    assert pixels[H // 2, W // 2] == pytest.approx([127, 127, 255], abs=6)
    gaussians.settings.background = (1.0, 0.0, 0.0)
    pixels = shown(gaussians, screen)
    assert pixels[0, 0].tolist() == [255, 0, 0]
    assert pixels[H // 2, W // 2] == pytest.approx([255, 127, 127], abs=6)


def test_depth_and_alpha(gaussians: GaussianView, screen: OffscreenScreen) -> None:
    gaussians.update(gaussian_frame(ball([(-1, 0, -1), (1, 0, 1)], [(1, 1, 1), (0, 0, 0)], 0.3), color="rgb"))
    gaussians.use_camera(FRONT)
    gaussians.settings.show = "alpha"
    alpha = shown(gaussians, screen)
    near, far = (24, int(32 - 51.45 / 3)), (24, int(32 + 51.45 / 5))
    assert alpha[near].min() > 240
    assert alpha[far].min() > 240  # black, but there
    assert alpha[0, 0].tolist() == [0, 0, 0]
    gaussians.settings.show = "depth"
    depth = shown(gaussians, screen)
    assert depth[near].max() < 80  # dark is near
    assert depth[far][0] > depth[far][2] + 60  # red is far
    assert "depth 3 to 5" in gaussians.details


def test_orthographic(gaussians: GaussianView, screen: OffscreenScreen) -> None:
    scene = ball([(-0.8, 0, -2), (0.8, 0, 2)], [(1, 0, 0), (0, 1, 0)])
    gaussians.update(gaussian_frame(scene, color="rgb"))
    gaussians.use_camera(FRONT)
    areas = [(shown(gaussians, screen)[..., c] > 100).sum() for c in (0, 1)]
    assert areas[0] > 2 * areas[1]  # the near one is larger
    gaussians.orbit.model = "ortho"
    gaussians._camera = None
    areas = [(shown(gaussians, screen)[..., c] > 100).sum() for c in (0, 1)]
    assert abs(areas[0] - areas[1]) <= 4


def test_the_sh_degree_can_be_limited(gaussians: GaussianView, screen: OffscreenScreen) -> None:
    tensors = cloud()
    plain = gaussian_frame(tensors)
    gaussians.update(plain)
    gaussians.use_camera(FRONT)
    expected = shown(gaussians, screen)
    rest = torch.randn(len(tensors["means"]), 8, 3, generator=torch.Generator().manual_seed(0)) * 0.3
    gaussians.update(gaussian_frame(tensors | {"shN": rest}, sh_degree=2))
    assert np.abs(shown(gaussians, screen) - expected).max() > 10
    assert "SH 2 of 2" in gaussians.details
    gaussians.settings.sh_degree = 0
    np.testing.assert_allclose(shown(gaussians, screen), expected, atol=1)


def test_dragging_is_coarse_and_rest_is_sharp(gaussians: GaussianView, screen: OffscreenScreen,
                                              wait_until: Callable[..., Any]) -> None:
    screen.resize(256, 192)
    rect = Rect(0, 0, 256, 192)
    gaussians.update(gaussian_frame())
    gaussians.settings.coarse_ms = 1e-6  # everything takes longer than that
    shown(gaussians, screen)
    gaussians.handle(PointerPress(100, 100), rect)
    gaussians.handle(PointerMove(110, 100), rect)
    coarse = shown(gaussians, screen)
    assert any("while moving" in d for d in gaussians.details)
    gaussians.handle(PointerRelease(110, 100), rect)
    wait_until(lambda: gaussians.tick(time.monotonic()))
    sharp = shown(gaussians, screen)
    assert not any("while moving" in d for d in gaussians.details)
    assert not gaussians.tick(time.monotonic() + 60)
    assert (sharp != coarse).any()
    assert np.abs(sharp - coarse).mean() < 25  # the same picture, only coarser


def test_nothing_is_drawn_anew_while_nothing_changes(gaussians: GaussianView, screen: OffscreenScreen) -> None:
    gaussians.update(gaussian_frame())
    shown(gaussians, screen)
    first = gaussians._picture
    shown(gaussians, screen)
    assert gaussians._picture is first
    gaussians.handle(PointerMove(5, 5), RECT)  # no button is down
    shown(gaussians, screen)
    assert gaussians._picture is first
    gaussians.handle(Wheel(5, 5, 1), RECT)
    gaussians._moved_at = -1e9
    before = gaussians._drawn
    shown(gaussians, screen)
    assert gaussians._drawn != before


def test_scenes_from_files_are_shown(gaussians: GaussianView, screen: OffscreenScreen) -> None:
    t = {k: v.numpy() for k, v in cloud().items()}
    scene = GaussianScene(t["means"], t["quats"], t["scales"], t["opacities"], t["sh0"],
                          np.empty((400, 0, 3), np.float32), notes=("from a test",))
    assert gaussians.update(scene)
    assert shown(gaussians, screen).max() > 50
    assert "from a test" in gaussians.details


def test_frame_of_refuses_nothing() -> None:
    """The helper itself: bfloat16 arrives as the upper halves of float32."""
    tensor = frame_of("image", {"image": torch.tensor([[1.5]], dtype=torch.bfloat16)}).tensors["image"]
    assert tensor.dtype == "bfloat16"
    assert tensor.array.tolist() == [[0x3FC0]]
