"""Scenes that a function draws: whose pictures are shown, when they are asked for, and
that what is kept of them is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support import drawn_scene
from support.drawn_scene import DrawnScene, answer, paint, scene_frame
from support.frames import cloud, frame_of, gaussian_frame
from support.view_cases import change_state, scene_view, view_pixels
from support.viewer import Viewer
from support.wait import wait_until

import splatview
from splatview_ipc.kinds.controls import Control, encode
from splatview_viewer.__main__ import main
from splatview_viewer.compare.pair import PairView
from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.core.host import Host
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.formats.camera_paths import Film
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.gpu.governor import Governor
from splatview_viewer.kinds import make_view
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.kinds.rendered.requests import PictureRequest, PictureRequests
from splatview_viewer.kinds.rendered.trouble import wrapped_lines
from splatview_viewer.kinds.rendered.view import RenderedView
from splatview_viewer.render.cameras.photos import PhotoTexture
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.scene_view.psnr_meter import PsnrMeter
from splatview_viewer.screens.offscreen import OffscreenScreen
from splatview_viewer.shell import viewport
from splatview_viewer.shell.kept_pictures import transparent_picture

W = 160
H = 120
RECT = Rect(0, 0, W, H)


def camera_at(x: float) -> Camera:
    return Camera(look_at((x, -1.5, -2.5), (0.3, 0.3, 0)), intrinsics(50, W, H), W, H)


@pytest.fixture
def view(screen: OffscreenScreen) -> Iterator[Any]:
    screen.resize(W, H)
    with closing(make_view("rendered", screen.ctx)) as scene_view:
        scene_view.update(scene_frame())
        yield scene_view


def drag(viewer: Viewer, dx: int) -> None:
    """Drag over the picture of the active pane."""
    r = viewer.user.layout.active.rect
    x = r.x + r.width // 2
    y = r.y + r.height // 2
    viewer.do(PointerPress(x, y), PointerMove(x + dx, y), PointerRelease(x + dx, y))


def rect_pixels(viewer: Viewer) -> np.ndarray:
    """Return the pixels of the active pane's picture."""
    r = viewer.user.layout.active.rect
    return viewer.picture()[r.y : r.y + r.height, r.x : r.x + r.width]


def is_exact(viewer: Viewer) -> bool:
    """Return whether the active pane shows a picture of its camera, pixel by pixel."""
    view = viewer.shows(RenderedView)
    if view is None or view.picture is None:
        return False
    return view.picture.camera == view.rig.camera(viewer.user.layout.active.rect)


# -- pictures --------------------------------------------------------------------------


@pytest.mark.parametrize("has_alpha", [False, True])
def test_picture_is_as_gaussians_from_the_same_camera(
    view: Any, screen: OffscreenScreen, has_alpha: bool
) -> None:
    background = (0.2, 0.5, 0.7)
    gaussians = scene_view(screen, GlRenderer(screen.ctx), background=background)
    with closing(gaussians):
        gaussians.update(gaussian_frame(cloud(300, seed=5)))

        def draw(camera: Camera, _: np.ndarray) -> dict[str, np.ndarray]:
            gaussians.view.rig.use_camera(camera)
            if not has_alpha:
                pixels = view_pixels(gaussians, screen, RECT).astype(np.uint8)
                return {"color": pixels}
            rgba = transparent_picture(gaussians, screen.ctx, (W, H))
            assert rgba is not None
            alpha = rgba[..., 3:] / 255
            color = (rgba[..., :3] * alpha + 0.5).astype(np.uint8)
            return {"color": color, "alpha": np.ascontiguousarray(rgba[..., 3])}

        change_state(view, background=background)
        view.view.rig.use_camera(camera_at(2.0))
        view.draw(screen.framebuffer, RECT)
        answer(view.content, draw=draw)
        pixels = view_pixels(view, screen, RECT)
        gaussians.view.rig.use_camera(camera_at(2.0))
        expected = view_pixels(gaussians, screen, RECT)
    assert expected.std() > 10
    np.testing.assert_allclose(pixels, expected, atol=2 if has_alpha else 1)


def answer_slowly(view: Any, now: float) -> None:
    """Answer the request that was made at a time 0.1 s later."""
    request = view.content.requests.next_request(0, now)
    view.content.requests.next_request(0, now + 0.1)
    painted = paint(drawn_scene.camera_of(request.camera), view.content.sample.means)
    tensors = {name: torch.from_numpy(array) for name, array in painted.items()}
    meta = {"viewer": request.viewer, "request": request.number}
    assert view.content.requests.take(frame_of("picture", tensors, **meta))
    view.tick(now + 0.1)


def test_last_picture_is_shown_until_the_next_has_come(
    view: Any, screen: OffscreenScreen
) -> None:
    view.view.rig.use_camera(camera_at(1.0))
    first = view_pixels(view, screen, RECT)
    view.tick(1.0)
    view.view.rig.use_camera(camera_at(2.0))
    view.draw(screen.framebuffer, RECT)
    np.testing.assert_array_equal(screen.pixels()[..., :3], first)
    assert view.wants.pending
    assert not view.tick(1.0)
    answer(view.content, 1.0)
    assert not view.wants.pending
    assert view.tick(1.0)
    assert (view_pixels(view, screen, RECT) != first).any()
    # What does not come is not waited for.
    view.view.rig.use_camera(camera_at(1.0))
    view.draw(screen.framebuffer, RECT)
    assert view.wants.pending
    view.tick(5.0)
    assert not view.wants.pending


def test_picture_of_a_slow_function_is_moved_along_by_its_depth(
    view: Any, screen: OffscreenScreen
) -> None:
    points = view.content.sample.means
    first, second = paint(camera_at(1.0), points), paint(camera_at(1.3), points)
    view.tick(1.0)
    view.view.rig.use_camera(camera_at(1.0))
    view.draw(screen.framebuffer, RECT)
    answer_slowly(view, 1.0)
    np.testing.assert_array_equal(view_pixels(view, screen, RECT), first["color"])
    view.view.rig.use_camera(camera_at(1.3))
    view.draw(screen.framebuffer, RECT)
    moved = screen.pixels()[..., :3].astype(float)
    assert not view.wants.pending
    assert view.view.drawn_camera == view.view.rig.camera_of_scene(RECT)
    assert "moved along for now" in view.info.details
    error_moved = np.abs(moved - second["color"]).mean()
    error_plain = np.abs(first["color"].astype(float) - second["color"]).mean()
    assert error_moved < 0.3 * error_plain
    # At rest it is as the function drew it.
    answer_slowly(view, 2.0)
    np.testing.assert_array_equal(view_pixels(view, screen, RECT), second["color"])
    assert "moved along for now" not in view.info.details


def test_slow_function_draws_fewer_pixels_while_the_camera_moves(
    view: Any, screen: OffscreenScreen
) -> None:
    content = view.content
    view.tick(1.0)
    view.draw(screen.framebuffer, RECT)
    request = content.requests.next_request(0, 1.0)
    assert (request.camera.width, request.is_draft) == (W, False)
    # A quarter of a second.
    content.requests.next_request(0, 1.25)
    painted = paint(drawn_scene.camera_of(request.camera), content.sample.means)
    tensors = {name: torch.from_numpy(array) for name, array in painted.items()}
    meta = {"viewer": request.viewer, "request": request.number}
    assert content.requests.take(frame_of("picture", tensors, **meta))
    view.tick(1.25)
    drag_events = (PointerPress(80, 60), PointerMove(90, 60), PointerRelease(90, 60))
    for event in drag_events:
        view.handle(event, RECT)
    view.draw(screen.framebuffer, RECT)
    draft = content.requests.next_request(0, 1.25)
    assert draft.is_draft
    assert W // 4 <= draft.camera.width < W
    answer(content, 1.3)
    # At rest it is drawn in full, without a picture in between.
    view.tick(2.0)
    assert content.requests.next_request(0, 3.0).camera.width == W


def test_camera_at_rest_leaves_time_to_the_training(
    view: Any, screen: OffscreenScreen
) -> None:
    content = view.content
    view.tick(1.0)
    view.draw(screen.framebuffer, RECT)
    request = content.requests.next_request(0, 1.0)
    content.requests.next_request(0, 1.2)
    assert content.requests.take(answer_frame(request))
    # The points have moved, and with them how near the camera sees.
    view.update(scene_frame(1))
    view.tick(1.3)
    assert content.requests.next_request(0, 1.3) is None
    view.tick(2.1)
    assert content.requests.next_request(0, 2.1) is not None


def test_control_that_its_user_sets_is_seen_at_once(
    view: Any, screen: OffscreenScreen
) -> None:
    content = view.content
    content.note_controls(1, is_answer=False)
    view.tick(1.0)
    view.draw(screen.framebuffer, RECT)
    request = content.requests.next_request(0, 1.0)
    content.requests.next_request(0, 1.2)
    assert content.requests.take(answer_frame(request))
    # The script changes one in each step: that leaves time to the training.
    view.tick(1.3)
    assert not content.note_controls(1, is_answer=True)
    assert content.note_controls(2, is_answer=False)
    view.tick(1.3)
    assert content.requests.next_request(0, 1.3) is None
    assert content.note_controls(3, is_answer=True)
    view.tick(1.6)
    assert content.requests.next_request(0, 1.6) is not None


def test_point_under_a_pixel_is_found_by_depth_or_by_the_sample(
    view: Any, screen: OffscreenScreen
) -> None:
    camera = camera_at(2.0)
    view.view.rig.use_camera(camera)
    end = np.array([1.0, 0, 0])
    local = camera.to_local(end)
    x, y = local[:2] / local[2] * camera.focal_lengths + (W / 2, H / 2)
    # Before there is a picture, the sample counts.
    for _ in range(2):
        point = view.view.pick_later(camera, x, y)().point
        np.testing.assert_allclose(point, end, atol=0.02)
        assert view.view.pick_later(camera, 1.0, H - 1.0)() is None
        view_pixels(view, screen, RECT)


def test_long_lines_of_trouble_are_wrapped() -> None:
    lines = wrapped_lines("Traceback:\n  " + "word " * 20 + "\nValueError: no", 30)
    assert max(map(len, lines)) <= 30
    assert lines[0] == "Traceback:"
    assert lines[1].startswith("  word")
    assert lines[-1] == "ValueError: no"


# -- requests --------------------------------------------------------------------------


def answer_frame(request: Any, **changes: Any) -> Any:
    color = torch.zeros(H, W, 3, dtype=torch.uint8)
    meta = {"viewer": request.viewer, "request": request.number, **changes}
    return frame_of("picture", {} if "trouble" in meta else {"color": color}, **meta)


def test_views_are_served_in_turn_one_request_at_a_time() -> None:
    requests = PictureRequests()
    first = requests.open()
    second = requests.open()
    for x in range(3):
        first.want(PictureRequest(camera_at(x), 1), 0.0)
    second.want(PictureRequest(camera_at(9), 1), 0.0)
    request = requests.next_request(4, 0.0)
    assert request is not None
    assert request.index == 4
    # The newest camera counts.
    assert np.allclose(request.camera.viewmat, camera_at(2).viewmat.ravel())
    assert requests.next_request(4, 0.5) is None
    first.want(PictureRequest(camera_at(3), 1), 0.5)
    # Those of others are not taken, nor what was overwritten.
    assert requests.take(answer_frame(request, viewer="another"))
    torn = frame_of("picture", {}, intact=False, viewer=request.viewer, request=1)
    assert not requests.take(torn)
    assert first.picture is None
    assert requests.take(answer_frame(request))
    assert first.picture is not None
    next_turn = requests.next_request(4, 0.5)
    assert next_turn is not None
    assert np.allclose(next_turn.camera.viewmat, camera_at(9).viewmat.ravel())
    # Without an answer the next one is asked for after a second; a late one counts.
    assert requests.next_request(4, 1.4) is None
    second_try = requests.next_request(4, 1.6)
    assert second_try is not None
    assert second_try.number > next_turn.number
    assert requests.take(answer_frame(next_turn))
    assert not second.is_waiting
    requests.close(first)
    assert requests.next_request(4, 9.0) is None


def test_worker_is_asked_as_often_as_the_share_of_the_gpu_allows() -> None:
    now = 0.0
    governor = Governor(0.1, clock=lambda: now)
    governor.account.shared = True
    requests = PictureRequests(governor=governor)
    inbox = requests.open()
    asked_at = []
    while now < 4.0:
        inbox.want(PictureRequest(camera_at(now), 1), now)
        request = requests.next_request(0, now)
        now += 0.03
        if request is None:
            continue
        asked_at.append(now)
        assert requests.next_request(0, now) is None
        frame = answer_frame(request, gpu_ms=30.0)
        assert requests.take(frame, is_worker=len(asked_at) < 9)
    # 30 ms and a turn to them, in a tenth of the time.
    gaps = np.diff(asked_at)
    assert gaps[2:8].mean() == pytest.approx(0.304, abs=0.031)
    # A function inside the trainer has a budget of its own.
    assert gaps[9:].max() < 0.04
    assert requests.budget.draft_scale(camera_at(0)) < 1


def test_what_a_function_cannot_draw_is_asked_for_again_after_a_second() -> None:
    requests = PictureRequests()
    inbox = requests.open()
    inbox.want(PictureRequest(camera_at(1), 1), 0.0)
    request = requests.next_request(0, 0.0)
    assert requests.take(answer_frame(request, trouble="ValueError: no"))
    assert inbox.fault_text == "ValueError: no"
    assert requests.next_request(0, 0.5) is None
    request = requests.next_request(0, 1.5)
    assert requests.take(answer_frame(request))
    assert not inbox.fault_text


# -- exact pictures --------------------------------------------------------------------


def test_exact_picture_is_never_of_another_camera(
    view: Any, screen: OffscreenScreen
) -> None:
    copy = view.view.bare_copy()
    copy.rig.use_camera(camera_at(1.0))
    assert copy.awaits_picture(RECT)
    answer(view.content)
    assert not copy.awaits_picture(RECT)
    copy.draw(screen.framebuffer, RECT)
    expected = paint(camera_at(1.0), view.content.sample.means)["color"]
    np.testing.assert_array_equal(screen.pixels()[..., :3], expected)
    copy.rig.use_camera(camera_at(2.0))
    with pytest.raises(RendererError, match="has not drawn"):
        copy.draw(screen.framebuffer, RECT)
    # Another version of the scene makes another picture.
    copy.rig.use_camera(camera_at(1.0))
    view.update(scene_frame(1))
    assert copy.awaits_picture(RECT)
    copy.release("closed")


def test_exact_picture_of_what_is_on_the_screen_is_not_drawn_again(
    view: Any, screen: OffscreenScreen
) -> None:
    assert view.view.awaits_picture(RECT)
    view_pixels(view, screen, RECT)
    assert not view.view.awaits_picture(RECT)
    assert not view.view.awaits_picture(RECT)
    view.update(scene_frame(1))
    assert view.view.awaits_picture(RECT)


def test_film_waits_for_its_pictures(
    view: Any, screen: OffscreenScreen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    view.view.host = Host(name="scene")
    view_pixels(view, screen, RECT)
    tool = view.view.path
    for x in (-1.0, 1.0):
        view.view.rig.use_camera(camera_at(x))
        tool.add_key()
    tool.film = Film(tool.path, 64, 48, 2.0)
    tool.film_maker.as_frames = True
    tool.film_maker.start()

    def is_done() -> bool:
        view.work()
        answer(view.content)
        return tool.film_maker.filming is None

    wait_until(is_done)
    (folder,) = tmp_path.iterdir()
    files = sorted(folder.iterdir())
    assert len(files) == 4
    for index, file in enumerate(files):
        camera = tool.path.camera_at(index / 2, 64, 48)
        expected = paint(camera, view.content.sample.means)["color"]
        np.testing.assert_array_equal(np.asarray(Image.open(file)), expected)


def test_psnr_is_measured_of_the_camera_of_a_photograph(
    view: Any, screen: OffscreenScreen
) -> None:
    photo = paint(camera_at(1.0), view.content.sample.means)["color"]
    texture = PhotoTexture(screen.ctx)
    with closing(texture), closing(PsnrMeter(view.view, texture)) as meter:
        assert not meter.begin(camera_at(1.0), photo)
        answer(view.content)
        assert meter.begin(camera_at(1.0), photo)
        psnr = meter.result()
    assert psnr is not None
    assert psnr > 60


# -- a trainer in another run ----------------------------------------------------------


@pytest.fixture
def trainer(runtime_dir: Path) -> Iterator[DrawnScene]:
    with closing(DrawnScene()) as scene:
        yield scene


def test_user_moves_around_a_scene_and_keeps_pictures_of_it(
    trainer: DrawnScene,
    open_viewer: Callable[..., Viewer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    viewer = open_viewer((640, 480))
    view = viewer.until_shows(RenderedView)
    viewer.until(partial(is_exact, viewer))
    first = viewer.picture()
    drag(viewer, 40)
    viewer.until(partial(is_exact, viewer))
    assert (viewer.picture() != first).any()
    assert "drawn by shapes:draw" in view.info().details
    # The last good picture stays behind what is written about trouble.
    trainer.fault_text = "Traceback:\nValueError: no picture"
    drag(viewer, 40)

    def has_fault() -> bool:
        return bool(view.fault_text)

    viewer.until(has_fault)
    picture_with_fault = viewer.picture()
    trainer.fault_text = ""
    drag(viewer, 1)
    viewer.until(partial(is_exact, viewer))
    assert not view.fault_text
    assert (viewer.picture() != picture_with_fault).any()
    # A picture to keep is as large as the screen, and of a request of its own.
    viewer.user.layout.active.keep_picture()

    def is_kept() -> bool:
        return bool(list(tmp_path.glob("*.png")))

    viewer.until(is_kept)
    (file,) = tmp_path.glob("*.png")
    with Image.open(file) as picture:
        assert picture.size == (640, 480)
    assert trainer.requests[-1].camera.width == 640
    # A function that does not draw is awaited for a time, and the user is told.
    trainer.publisher.on_request.clear()
    drag(viewer, 40)
    monkeypatch.setattr(viewport, "PICTURE_S", 0.0)
    viewer.user.layout.active.keep_picture()

    def is_given_up() -> bool:
        texts = [toast.text for toast in viewer.user.state.toasts]
        return "The picture is not kept: it did not come within 0 s" in texts

    viewer.until(is_given_up)
    assert not view.writes_about_picture()
    # As if it had been asked in vain for some time.
    view.data.requests.sent_at += 3
    assert view.tick(view.data.now + 3)
    assert view.writes_about_picture()
    viewer.do()


@pytest.fixture
def beside(
    trainer: DrawnScene, open_viewer: Callable[..., Viewer]
) -> tuple[Viewer, dict[str, str]]:
    """Return a viewer that shows Gaussians around the same points, and keys by name."""
    splats = cloud(100)
    splats["means"] = torch.from_numpy(np.tile(trainer.points, (5, 1))[:100])
    splatview.publish(splats, "splats")
    viewer = open_viewer((500, 320), panel=False)
    viewer.until_listed("splats", "scene")
    keys = {entry.name: entry.key for entry in viewer.state.entries}
    viewer.user.select(keys["splats"])
    gaussians = viewer.until_shows(GaussianView)
    gaussians.rig.use_camera(camera_at(1.5))
    gaussians.change(background=(0.2, 0.2, 0.4))
    viewer.do()
    return viewer, keys


def test_function_is_compared_with_gaussians_from_one_camera(
    trainer: DrawnScene, beside: tuple[Viewer, dict[str, str]]
) -> None:
    viewer, keys = beside
    viewer.user.mark()
    viewer.do()
    rect = viewer.user.layout.active.rect
    alone = rect_pixels(viewer)
    viewer.user.compare("pair", keys["scene"])

    def drawn_view() -> RenderedView:
        pair = viewer.shows(PairView)
        assert pair is not None
        assert isinstance(pair.views[1].view, RenderedView)
        return pair.views[1].view

    def has_picture() -> bool:
        pair = viewer.shows(PairView)
        if pair is None or len(pair.views) < 2:
            return False
        picture = drawn_view().picture
        return picture is not None and picture.camera == drawn_view().rig.camera(rect)

    viewer.until(has_picture)
    left = np.s_[:, : rect.width // 2 - 20]
    right = np.s_[:, rect.width // 2 + 20 :]
    pixels = rect_pixels(viewer)
    np.testing.assert_array_equal(pixels[left], alone[left])
    camera = drawn_view().rig.camera(rect)
    assert camera is not None
    expected = paint(camera, trainer.points)["color"]
    np.testing.assert_array_equal(pixels[right], expected[right])
    # A function that draws what the Gaussians show is no different from them.

    def draw(camera: Camera, _: np.ndarray) -> dict[str, np.ndarray]:
        return {"color": alone.astype(np.uint8)}

    pair = viewer.shows(PairView)
    assert pair is not None
    pair.change(mode="difference")
    viewer.user.mark()
    viewer.do()
    middle = np.s_[rect.height // 4 : rect.height // 2, 20:-20]
    assert rect_pixels(viewer)[middle].max() > 200
    trainer.draw = draw
    trainer.publish()

    def is_black() -> bool:
        # Bytes are half a step off at most, four times.
        return rect_pixels(viewer)[middle].max() < 10

    viewer.until(is_black)


def test_pane_beside_gaussians_moves_with_them(
    beside: tuple[Viewer, dict[str, str]],
) -> None:
    viewer, keys = beside
    gaussians = viewer.until_shows(GaussianView)
    viewer.user.show_beside(keys["scene"])

    def other_view() -> RenderedView | None:
        pane_view = viewer.user.layout.all[1].view
        if not isinstance(pane_view, ShownView) or pane_view.empty:
            return None
        assert isinstance(pane_view.view, RenderedView)
        return pane_view.view

    def has_picture() -> bool:
        view = other_view()
        return view is not None and view.picture is not None

    viewer.until(has_picture)
    drawn = other_view()
    assert drawn is not None
    for dx in (40, -70):
        drag(viewer, dx)
        orbit = gaussians.state.place.orbit
        assert drawn.state.place.orbit == orbit


def test_shot_is_of_exactly_its_camera(
    trainer: DrawnScene, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Controls of the script change nothing.
    controls: Any = trainer.publisher.stream("controls", "controls")
    packed = encode([Control("on", "checkbox", True)])
    tensor = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
    controls.describe(
        drawn_scene.FrameLayout("controls", ("controls",), (len(packed),))
    )
    controls.publish_awaited(((tensor,), {}))
    camera = camera_at(2.0)
    out = tmp_path / "out.png"
    args = ["shot", str(out), "--camera", camera.to_json(), "--size", f"{W}x{H}"]
    assert main(args) == 0
    expected = paint(camera, trainer.points)["color"]
    np.testing.assert_array_equal(np.asarray(Image.open(out))[..., :3], expected)
    trainer.fault_text = "ValueError: no picture"
    assert main(args) == 2
    assert "cannot be drawn: ValueError: no picture" in capsys.readouterr().err
