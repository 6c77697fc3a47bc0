"""Pictures that a function draws on a GPU reach viewers without a copy on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.drawn_scene import DrawnScene, paint
from support.reading import stream_of, values
from support.viewer import Viewer
from support.wait import wait_until

from splatview_ipc.control.frame import DeviceTensor, StreamFrame
from splatview_ipc.control.messages import Draw, DrawnCamera
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.subscriber.subscriber import Subscriber
from splatview_viewer.__main__ import main
from splatview_viewer.app.loop import AppOptions
from splatview_viewer.core.events import PointerMove, PointerPress, PointerRelease
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.kinds.rendered.requests import PictureArrays
from splatview_viewer.kinds.rendered.textures import PictureTextures
from splatview_viewer.kinds.rendered.view import RenderedView
from splatview_viewer.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.cuda

EYE = (1.0, 0, 0, 0, 0, 1.0, 0, 0, 0, 0, 1.0, 2.5, 0, 0, 0, 1.0)
CAMERA = DrawnCamera(64, 48, EYE, (50.0, 0, 32, 0, 50, 24, 0, 0, 1))
LARGE_CAMERA = DrawnCamera(1280, 720, EYE, (900.0, 0, 640, 0, 900, 360, 0, 0, 1))


@pytest.fixture
def open_viewer(runtime_dir: Path) -> Iterator[Callable[[tuple[int, int]], Viewer]]:
    with ExitStack() as viewers:

        def build(size: tuple[int, int]) -> Viewer:
            viewer = Viewer(OffscreenScreen(*size), AppOptions(max_fps=500))
            viewers.callback(viewer.close)
            return viewer

        yield build


@pytest.fixture
def trainer(runtime_dir: Path) -> Iterator[DrawnScene]:
    torch.zeros(1, device="cuda")
    with closing(DrawnScene(device="cuda:0")) as scene:
        yield scene


def drag(viewer: Viewer, dx: int) -> None:
    """Drag over the picture of the active pane."""
    r = viewer.user.layout.active.rect
    x = r.x + r.width // 2
    y = r.y + r.height // 2
    viewer.do(PointerPress(x, y), PointerMove(x + dx, y), PointerRelease(x + dx, y))


def is_exact(viewer: Viewer) -> bool:
    """Return whether the active pane shows a picture of its camera, pixel by pixel."""
    view = viewer.shows(RenderedView)
    if view is None or view.picture is None:
        return False
    return view.picture.camera == view.rig.camera(viewer.user.layout.active.rect)


def assert_shown(viewer: Viewer, trainer: DrawnScene, kind: type) -> None:
    """Check the picture on the screen, and what a point in it is."""
    viewer.until(partial(is_exact, viewer))
    view = viewer.until_shows(RenderedView)
    picture = view.picture
    assert picture is not None
    assert isinstance(picture.pixels, kind)
    expected = paint(picture.camera, trainer.points)
    # Tools draw over its edges.
    height, width = expected["depth"].shape
    middle = np.s_[height // 3 : height // 2, width // 3 : width // 2]
    pixels = viewer.picture()[middle]
    assert pixels.std() > 1
    share = (
        (np.abs(pixels - expected["color"][middle].astype(int)) > 1).any(axis=2).mean()
    )
    assert share < 0.1
    rows, columns = np.nonzero(expected["depth"])
    row = int(rows[len(rows) // 2])
    column = int(columns[len(rows) // 2])
    depth = picture.pixels.depth_at(column, row)
    assert depth == pytest.approx(expected["depth"][row, column], rel=1e-6)


@pytest.mark.parametrize("bridge", ["direct", "import", "host"])
def test_pictures_come_by_the_device_ring(
    trainer: DrawnScene,
    open_viewer: Callable[..., Viewer],
    monkeypatch: pytest.MonkeyPatch,
    bridge: str,
) -> None:
    monkeypatch.setenv("SPLATVIEW_INTEROP", bridge)
    viewer = open_viewer((640, 480))
    for dx in (0, 40, -25):
        drag(viewer, dx)
        assert_shown(viewer, trainer, PictureTextures)
    trainer.fault_text = "ValueError: no picture"
    drag(viewer, 10)
    view = viewer.until_shows(RenderedView)

    def has_fault() -> bool:
        return trainer.fault_text in view.fault_text

    viewer.until(has_fault)
    trainer.fault_text = ""
    drag(viewer, 5)
    assert_shown(viewer, trainer, PictureTextures)
    # Another viewer's larger picture needs a larger ring.
    with Subscriber() as other_viewer:
        pictures = stream_of(other_viewer, "scene/pictures")
        for request_number in range(1, 4):
            frame = answer(other_viewer, pictures, request_number, LARGE_CAMERA)
            assert frame.tensors["color"].shape == (720, 1280, 4)
    drag(viewer, 5)
    assert_shown(viewer, trainer, PictureTextures)


def test_memory_that_opengl_cannot_read_is_read_on_the_host(
    trainer: DrawnScene,
    open_viewer: Callable[..., Viewer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reason_against(*_: object) -> str:
        return "OpenGL has no GL_EXT_memory_object"

    monkeypatch.setattr("splatview_ipc.gl.probe.probe", reason_against)
    viewer = open_viewer((640, 480))
    assert_shown(viewer, trainer, PictureArrays)
    drag(viewer, 40)
    assert_shown(viewer, trainer, PictureArrays)


def test_last_picture_stays_after_the_trainer_has_gone(
    trainer: DrawnScene, open_viewer: Callable[..., Viewer]
) -> None:
    viewer = open_viewer((640, 480))
    drag(viewer, 30)
    assert_shown(viewer, trainer, PictureTextures)
    trainer.close()
    viewer.until_run_ended()
    assert_shown(viewer, trainer, PictureTextures)


def test_shot_is_of_exactly_its_camera(trainer: DrawnScene, tmp_path: Path) -> None:
    camera = Camera(
        look_at((2.0, -1.5, -2.5), (0.3, 0.3, 0)), intrinsics(50, 160, 120), 160, 120
    )
    out = tmp_path / "out.png"
    args = ["shot", str(out), "--camera", camera.to_json(), "--size", "160x120"]
    assert main(args) == 0
    expected = paint(camera, trainer.points)["color"]
    np.testing.assert_array_equal(np.asarray(Image.open(out))[..., :3], expected)


def test_fault_reaches_a_viewer_that_comes_after_it(trainer: DrawnScene) -> None:
    """Metadata alone come by a ring on the GPU that is made for them."""
    trainer.fault_text = "ValueError: no picture"
    with Subscriber() as subscriber:
        frame = answer(subscriber, stream_of(subscriber, "scene/pictures"), 1)
        assert frame.meta["trouble"] == trainer.fault_text
    with Subscriber() as subscriber:
        pictures = stream_of(subscriber, "scene/pictures")

        def read() -> StreamFrame | None:
            subscriber.poll()
            return pictures.read()

        frame = wait_until(read, "the last answer")
        assert frame.meta["trouble"] == trainer.fault_text
        assert pictures.sharing == "device-ring"
        trainer.fault_text = ""
        frame = answer(subscriber, pictures, 2)
        assert isinstance(frame.tensors["color"], DeviceTensor)
        assert values(frame)["color"].std() > 1


def answer(
    subscriber: Subscriber,
    pictures: RemoteStream,
    request_number: int,
    camera: DrawnCamera = CAMERA,
) -> StreamFrame:
    """Ask for a picture, and return what came of it."""
    draw = Draw(pictures.info.index, "ab" * 16, request_number, camera)

    pictures.request_picture(draw)

    def read() -> StreamFrame | None:
        subscriber.poll()
        frame = pictures.read()
        if frame is None or frame.meta["request"] != request_number:
            return None
        return frame

    return wait_until(read, f"answer {request_number}")
