"""The way of pictures from a function to the viewers that asked for them."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from splatview.adapters import NamedTensors
from splatview.rendering.function import NOT_WHOLE
from splatview.rendering.host_copy import QueuedHostCopy
from splatview.rendering.trouble import last_lines
from splatview_ipc.control.limits import MAX_NAME
from splatview_ipc.cuda import driver
from splatview_ipc.system.terminal import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from splatview.rendering.draw_clock import DrawClock
    from splatview.rendering.function import DrawnPicture
    from splatview_ipc.control.messages import Draw
    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.publisher.stream_channels import OverlaidStream

POLL_S = 0.001
"""Seconds between two looks at pictures that a GPU still draws."""
_SUFFIX = "/pictures"


@dataclass
class _Answer:
    """An answer to a request, which a GPU may still draw."""

    draw: Draw
    clock: DrawClock
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """The picture, where the function drew it."""
    flags: QueuedHostCopy = field(default_factory=lambda: QueuedHostCopy({}))
    """Whether it is whole; empty where there is none."""
    fault_text: str = ""
    step: float | None = None

    @property
    def is_drawn(self) -> bool:
        return self.clock.is_known and self.flags.has_arrived

    def wait(self) -> None:
        """Wait until it is drawn."""
        self.flags.wait()
        self.clock.wait()


class PictureAnswers:
    """The stream of a scene's pictures. To be used by one thread at a time.

    `put` waits for nothing; `turn` publishes what is drawn, `wait` all. Pictures on a GPU
    are shared there (`transports.device_ring`).
    """

    def __init__(self, publisher: Publisher, over: OverlaidStream) -> None:
        """Make the stream, which viewers may open at once.

        Args:
            publisher: the run that it is to belong to.
            over: the scene. Requests come by
                `publisher.on_request["Draw", answers.stream.name]`.
        """
        name = over.name[: MAX_NAME - len(_SUFFIX)] + _SUFFIX
        self.stream = publisher.stream(name, "picture")
        self.stream.over = over
        self.stream.describe(NamedTensors("picture", ("color",)), copy=True)
        self.last_s = 0.0
        """Seconds that the last picture took that was published."""
        self.last_fault_text = ""
        """Why the last answer has no picture; "" where it has."""
        self._answers: deque[_Answer] = deque()
        self._device = torch.device("cpu")
        """The device of the last picture."""
        self._gpu_stream: torch.cuda.Stream | None = None
        """The stream of copies on that device."""

    @property
    def are_under_way(self) -> bool:
        """True while pictures wait to be published."""
        return bool(self._answers)

    def put(
        self,
        draw: Draw,
        picture: DrawnPicture,
        clock: DrawClock,
        step: float | None = None,
    ) -> None:
        """Have a picture be published once it is drawn.

        Stops the clock.

        Args:
            draw: the request.
            picture: the answer, drawn on the current stream of its GPU. Its tensors must
                not change any more.
            clock: started before the function was called.
            step: of the tensors that were drawn.
        """
        flags = QueuedHostCopy({"is_whole": picture.is_whole})
        clock.stop()
        answer = _Answer(draw, clock, picture.tensors(), flags, step=step)
        self._answers.append(answer)

    def put_fault(self, draw: Draw, fault_text: str, clock: DrawClock) -> None:
        """Answer a request by the reason why there is no picture, for users.

        Stops the clock.
        """
        clock.stop()
        self._answers.append(_Answer(draw, clock, fault_text=fault_text))

    def turn(self, now: float) -> float:
        """Publish what is drawn, in order; return when to be called again.

        Args:
            now: the clock's seconds.

        Raises:
            RuntimeError: the GPU has failed. What was under way is dropped.
        """
        try:
            while self._answers and self._answers[0].is_drawn:
                self._publish(self._answers.popleft())
        except RuntimeError:
            self._answers.clear()
            raise
        return now + POLL_S if self._answers else math.inf

    def wait(self) -> None:
        """Wait for all pictures, and publish them. Raises as `turn` does."""
        try:
            for answer in self._answers:
                answer.wait()
        except RuntimeError:
            self._answers.clear()
            raise
        self.turn(0.0)

    def _publish(self, answer: _Answer) -> None:
        tensors = answer.tensors
        is_whole = answer.flags.tensors.get("is_whole")
        fault_text = answer.fault_text
        if is_whole is not None and not is_whole:
            fault_text = NOT_WHOLE
            tensors = {}
        self.last_s = answer.clock.seconds
        self.last_fault_text = fault_text
        meta: dict[str, Any] = {
            "viewer": answer.draw.viewer,
            "request": answer.draw.number,
            "ms": self.last_s * 1e3,
            "gpu_ms": answer.clock.gpu_s * 1e3,
        }
        if answer.step is not None:
            meta["step"] = answer.step
        if fault_text:
            meta["trouble"] = last_lines(printable_lines(fault_text))
        shape: tuple[int, ...] = ()
        if tensors:
            shape = tuple(tensors["color"].shape)
            self._device = tensors["color"].device
        # Without a picture viewers go on to read where the last one was.
        layout = NamedTensors(
            "picture", tuple(tensors), shape, "uint8", str(self._device)
        )
        self.stream.describe(layout, copy=True)
        with self._copying(tensors):
            self.stream.publish_awaited((tuple(tensors.values()), meta))

    @contextlib.contextmanager
    def _copying(self, tensors: dict[str, torch.Tensor]) -> Iterator[None]:
        """Copy tensors that are drawn beside the other work of their GPU."""
        device = self._device
        if not tensors or device.type != "cuda":
            yield
            return
        # Another thread may capture a CUDA graph.
        with driver.relaxed_capture(), torch.cuda.device(device):
            if self._gpu_stream is None or self._gpu_stream.device != device:
                self._gpu_stream = torch.cuda.Stream(device)
            with torch.cuda.stream(self._gpu_stream):
                yield
                driver.keep_for_current_stream(tensors.values())
