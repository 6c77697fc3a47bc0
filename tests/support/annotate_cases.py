"""Results that `annotate` sends, as a viewer reads them, and what a view draws of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from splatview.adapters.overlay import adapted
from splatview_ipc.control.frame import Frame
from splatview_ipc.kinds import check_frame
from splatview_viewer.core.screen import Rect
from support.frames import remote
from support.reading import copied

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import torch

    from splatview_ipc.subscriber.remote_stream import RemoteStream
    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.core.view import ShownView
    from splatview_viewer.kinds.image.overlay import Result
    from splatview_viewer.screens.offscreen import OffscreenScreen


def made(**given: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the frame that `annotate` makes of this, once the receiver's own check has passed it."""
    tensors, meta = adapted(given)
    check_frame("overlay", {k: (str(t.dtype)[6:], tuple(t.shape)) for k, t in tensors.items()}, meta)
    return tensors, meta


def texts(tensor: Any) -> list[str]:
    """Texts of a frame, each ended by a zero byte."""
    whole = bytes(tensor.tolist())
    assert whole == b"" or whole.endswith(b"\0")
    return [text.decode() for text in whole.split(b"\0")[:-1]]


class Overlays:
    """A viewer of overlays."""

    def __init__(self, subscriber: Subscriber, wait_until: Callable[..., Any]):
        self.subscriber = subscriber
        self._wait_until = wait_until

    def streams(self) -> list[RemoteStream]:
        self.subscriber.poll()
        return [s for s in self.subscriber.streams if s.kind == "overlay" and s.run.alive]

    def over(self, name: str, run: str = "") -> RemoteStream:
        """Wait for the overlay of a stream, and open it."""
        stream = self._wait_until(lambda: next((s for s in self.streams() if (s.info.over, s.info.over_run) ==
                                                (name, run)), None), what=f"an overlay over {name} of {run!r}")
        stream.open()
        return stream

    def read(self, stream: RemoteStream, after: int = 0) -> tuple[int, dict[str, Any], dict[str, np.ndarray]]:
        """Wait for a frame after `after`: its version, metadata, copies of its tensors."""
        def newest() -> Any:
            self.subscriber.poll()
            return copied(stream, after)

        return self._wait_until(newest, what=f"a version after {after} of {stream.name}")


def overlay_frame(version: int = 1, time_ns: int = 0, **given: Any) -> Frame:
    """What `annotate` sends for this, computed on this version of the image."""
    tensors, meta = made(**given)
    meta |= {"version": version, "time_ns": time_ns}
    return Frame("overlay", 1, 0, meta, {k: remote(t) for k, t in tensors.items()}, lambda: True, lambda: None)


def result_of(frame: Frame, shown: tuple[int, int] = (64, 48)) -> Result:
    from splatview_viewer.kinds.image.overlay import read_result

    result = read_result(frame, shown)
    assert result is not None
    return result


def seen(view: ShownView, screen: OffscreenScreen) -> np.ndarray:
    """(H, W, 3) int: the image with its overlay, without words."""
    view.draw(screen.framebuffer, Rect(0, 0, *screen.size))
    assert screen.ctx.error == "GL_NO_ERROR"
    return screen.pixels()[..., :3].astype(int)
