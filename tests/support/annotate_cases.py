"""What `annotate` sends, as a viewer gets it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from splatview.adapt.overlay import adapted
from splatview.ipc.kinds import check_frame
from support.wait import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import torch

    from splatview.ipc import RemoteStream, Subscriber


def made(**given: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The frame that `annotate` makes of this, once the receiver's own check has passed it."""
    tensors, meta = adapted(given)
    check_frame("overlay", {k: (str(t.dtype)[6:], tuple(t.shape)) for k, t in tensors.items()}, meta)
    return tensors, meta


def texts(tensor: Any) -> list[str]:
    """As the frame's law says: each ended by a zero byte."""
    whole = bytes(tensor.tolist())
    assert whole == b"" or whole.endswith(b"\0")
    return [text.decode() for text in whole.split(b"\0")[:-1]]


class Overlays:
    """A viewer of overlays in another place of this process."""

    def __init__(self, subscriber: Subscriber, wait_until: Callable[..., Any]):
        self.subscriber = subscriber
        self._wait_until = wait_until

    def streams(self) -> list[RemoteStream]:
        self.subscriber.poll()
        return [s for s in self.subscriber.streams if s.kind == "overlay" and s.run.alive]

    def over(self, name: str, run: str = "") -> RemoteStream:
        """The overlay of a stream, opened, as soon as it is there."""
        stream = self._wait_until(lambda: next((s for s in self.streams() if (s.info.over, s.info.over_run) ==
                                                (name, run)), None), what=f"an overlay over {name} of {run!r}")
        stream.open()
        return stream

    def read(self, stream: RemoteStream, after: int = 0) -> tuple[int, dict[str, np.ndarray], dict[str, Any]]:
        """Version, copies of the tensors, and metadata of the newest frame after `after`."""
        end = time.monotonic() + PATIENCE
        while True:
            self.subscriber.poll()
            frame = stream.read(after)
            if frame is not None:
                with frame:
                    tensors = {name: t.array.copy() for name, t in frame.tensors.items()}  # type: ignore[union-attr]
                    if frame.intact():
                        return frame.version, tensors, frame.meta
            assert time.monotonic() < end, f"nothing after {after}: {stream.version}, {stream.fault}"
            time.sleep(0.001)
