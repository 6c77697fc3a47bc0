"""What views do with frames on a GPU, as far as it can be told without one: which frames are held, for how long, and
what happens when one is overwritten. The tensors' memory is a stand-in on the host; tests/cuda has the real thing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.device_frames import Shared
from support.view_cases import H, W, shown
from support.wait import clock

from splatview.ipc.errors import SharingError
from splatview.ipc.interop.host import HostBridge
from splatview.viewer_app.sources import StreamSource
from splatview.viewer_app.views.image import ImageView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview.ipc.frames import Frame
    from splatview.viewer_app.screens.offscreen import OffscreenScreen


def picture(value: int, **more: Any) -> Shared:
    return Shared("image", {"image": torch.full((H, W, 3), value, dtype=torch.uint8)}, layout="HWC", **more)


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: stream)


class InPlace(HostBridge):
    """Stands in for the bridge that copies nothing."""

    name = "direct"  # type: ignore[misc]
    reasons: dict[str, str] = {}  # noqa: RUF012


@pytest.fixture
def image(screen: OffscreenScreen) -> Iterator[ImageView]:
    v = ImageView(screen.ctx)
    yield v
    v.close()


@pytest.fixture
def in_place(image: ImageView, monkeypatch: pytest.MonkeyPatch) -> ImageView:
    monkeypatch.setattr("splatview.viewer_app.views._image_content.AutoBridge", InPlace)
    return image


# -- images --------------------------------------------------------------------------------------------------


def test_a_gpu_image_goes_through_the_host_where_nothing_else_works(
        image: ImageView, screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():  # a bridge might copy from the stand-in, though it lies on the host
        monkeypatch.setattr("splatview.ipc.interop.probe.probe", lambda ctx,
                            name: {name: "" if name == "host" else "not now"})
    shared = picture(77)
    assert shared.show(image)
    assert (shown(image, screen) == 77).all()
    assert shared.released
    assert image.path == ["texture upload"]
    reasons = " ".join(image.extras)
    for bridge in ("import", "register"):
        assert f"{bridge} does not work here" in reasons


def test_what_is_drawn_in_place_is_held_until_the_next_frame_is_drawn(in_place: ImageView, screen: OffscreenScreen
                                                                     ) -> None:
    first, second = picture(50), picture(90)
    assert first.show(in_place)
    assert (shown(in_place, screen) == 50).all()
    assert not in_place.tick(clock())
    assert not first.released
    assert second.show(in_place)
    assert (shown(in_place, screen) == 90).all()
    in_place.tick(clock())
    assert first.released
    assert not second.released
    assert in_place.path == ["drawn in place"]
    in_place.close()
    assert second.released


def test_a_frame_that_is_overwritten_while_it_is_drawn_is_stale(in_place: ImageView, screen: OffscreenScreen) -> None:
    first, second = picture(50), picture(90)
    first.show(in_place)
    shown(in_place, screen)
    in_place.tick(clock())
    assert not in_place.stale
    shown(in_place, screen)
    first.whole = False
    in_place.tick(clock())
    assert in_place.stale
    assert second.show(in_place)
    assert not in_place.stale


def test_a_frame_that_is_torn_when_it_comes_is_not_taken(in_place: ImageView, screen: OffscreenScreen) -> None:
    first, torn = picture(50), picture(90)
    first.show(in_place)
    torn.whole = False
    assert not torn.show(in_place)
    assert torn.released
    assert (shown(in_place, screen) == 50).all()
    assert not first.released


def test_nan_of_a_gpu_image_are_counted_by_the_gpu(in_place: ImageView, screen: OffscreenScreen,
                                                   wait_until: Callable[..., Any]) -> None:
    values = torch.full((3, 61, 77), 0.5)
    values[0, 3, 5], values[2, 60, 76], values[1, 60, 76] = float("nan"), float("inf"), -float("inf")
    Shared("image", {"image": values}, layout="CHW").show(in_place)
    shown(in_place, screen)
    wait_until(lambda: in_place.tick(clock()))
    assert "3 NaN or inf (magenta)" in in_place.details


class Stream:
    """Stands in for a stream that brings one GPU frame."""

    live = False
    sharing = "device-ring"
    version = 1
    run = SimpleNamespace(alive=True)

    def __init__(self, frame: Frame):
        self.frame = frame
        self.refused = ""

    def read(self, after: int = 0) -> Frame:
        return self.frame

    def refuse(self, reason: str) -> None:
        self.refused = reason


def test_a_frame_that_cannot_come_to_opengl_is_asked_for_in_another_way(image: ImageView,
                                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise SharingError("no such luck")

    monkeypatch.setattr("splatview.ipc.interop.probe.AutoBridge.put", fail)
    stream = Stream(picture(5).frame)
    source = StreamSource(stream)  # type: ignore[arg-type]
    assert not source.feed(image)
    assert stream.refused == "no such luck"
    assert image.empty
    assert source.has_news()
