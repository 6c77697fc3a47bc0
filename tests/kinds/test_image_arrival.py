"""Pictures that are read in place without CUDA: memory that nothing was written into yet is not drawn. The tensors'
memory is a stand-in on the host; tests/cuda has the real thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.view_cases import H, W, shown
from support.wait import clock

from splatview.ipc.frames import DeviceTensor, Frame, Piece
from splatview.ipc.interop.host import HostBridge
from splatview.viewer_app.views.image import ImageView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.viewer_app.screens.offscreen import OffscreenScreen


class Memory:
    """What stands in for GPU memory that OpenGL can import."""

    gpu = "0" * 32
    pieces = (Piece(-1, 1 << 21),)

    def __init__(self, value: int):
        self.values = torch.full((H, W, 3), value, dtype=torch.uint8)

    def tensor(self, *_: Any) -> torch.Tensor:
        return self.values


class Version:
    """A frame in place, whose data may be there or not."""

    def __init__(self, memory: Memory):
        self.arrived = self.released = False
        tensor = DeviceTensor("uint8", (H, W, 3), memory.values.stride(), memory, 0)  # type: ignore[arg-type]
        self.frame = Frame("image", 1, 1, {"layout": "HWC"}, {"image": tensor}, lambda: True, self._release,
                           lambda stream: None, lambda: self.arrived)

    def _release(self) -> None:
        self.released = True

    def show(self, view: ImageView) -> bool:
        """As a source does."""
        with self.frame:
            return view.update(self.frame)


class InPlace(HostBridge):
    """Stands in for the bridge that copies nothing."""

    name = "direct"  # type: ignore[misc]
    reasons: dict[str, str] = {}  # noqa: RUF012


@pytest.fixture
def view(screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch) -> Iterator[ImageView]:
    monkeypatch.setattr("splatview.viewer_app.views._image_content.AutoBridge", InPlace)
    monkeypatch.setattr("splatview.ipc.interop.host.host_array", lambda tensor: (tensor.memory.values.numpy(), "uint8"))
    made = ImageView(screen.ctx)
    yield made
    made.close()


def test_what_has_not_arrived_is_not_drawn(view: ImageView, screen: OffscreenScreen) -> None:
    first = Version(Memory(50))
    assert not first.show(view)
    assert first.released
    assert view.empty
    first = Version(Memory(50))
    first.arrived = True
    assert first.show(view)
    assert (shown(view, screen) == 50).all()
    assert not view.tick(clock() + 60), "there is nothing more to wait for"
    other = Version(Memory(90))
    assert not other.show(view)
    assert (shown(view, screen) == 50).all()
    other = Version(Memory(90))
    other.arrived = True
    assert other.show(view)
    assert (shown(view, screen) == 90).all()


def test_the_first_version_in_a_place_decides(view: ImageView) -> None:
    """A trainer that is always ahead of its GPU: none of its newest versions has arrived when it is looked at."""
    memory = Memory(50)
    first = Version(memory)
    assert not first.show(view)
    assert not Version(memory).show(view)
    first.arrived = True
    assert Version(memory).show(view)


def test_the_next_version_in_the_same_place_is_taken_and_drawn_again_when_it_arrives(view: ImageView) -> None:
    memory = Memory(50)
    first, second = Version(memory), Version(memory)
    first.arrived = True
    assert first.show(view)
    assert second.show(view)
    now = clock()
    assert not view.tick(now)
    second.arrived = True
    assert view.tick(now)
    assert not view.tick(now + 60)
