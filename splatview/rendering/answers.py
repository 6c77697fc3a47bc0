"""The way of pictures from a function to the viewers that asked for them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from splatview.adapters import NamedTensors
from splatview.rendering.function import NOT_WHOLE
from splatview.rendering.host_copy import QueuedHostCopy
from splatview.rendering.trouble import last_lines
from splatview_ipc.control.limits import MAX_NAME
from splatview_ipc.system.terminal import printable_lines

if TYPE_CHECKING:
    from splatview.rendering.draw_clock import DrawClock
    from splatview.rendering.function import DrawnPicture
    from splatview_ipc.control.messages import Draw
    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.publisher.stream_channels import OverlaidStream

POLL_S = 0.001
"""Seconds between two looks at pictures that are on their way from a GPU."""
_SUFFIX = "/pictures"


@dataclass
class _Answer:
    """An answer to a request, which may be on its way from a GPU."""

    draw: Draw
    clock: DrawClock
    copy: QueuedHostCopy = field(default_factory=lambda: QueuedHostCopy({}))
    fault_text: str = ""
    step: float | None = None

    @property
    def has_arrived(self) -> bool:
        return self.clock.is_known and self.copy.has_arrived


class PictureAnswers:
    """The stream of a scene's pictures. To be used by one thread at a time.

    `put` waits for nothing; `turn` publishes what has come to host memory, `wait` all.
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
        """Queue a picture's copy to host memory, to be published.

        Stops the clock.

        Args:
            draw: the request.
            picture: the answer. It is read on the current stream of its GPU.
            clock: started before the function was called.
            step: of the tensors that were drawn.
        """
        tensors = {**picture.tensors(), "is_whole": picture.is_whole}
        copy = QueuedHostCopy(tensors)
        clock.stop()
        self._answers.append(_Answer(draw, clock, copy, step=step))

    def put_fault(self, draw: Draw, fault_text: str, clock: DrawClock) -> None:
        """Answer a request by the reason why there is no picture, for users.

        Stops the clock.
        """
        clock.stop()
        self._answers.append(_Answer(draw, clock, fault_text=fault_text))

    def turn(self, now: float) -> float:
        """Publish what has arrived, in order; return when to be called again.

        Args:
            now: the clock's seconds.

        Raises:
            RuntimeError: the GPU has failed. What was under way is dropped.
        """
        try:
            while self._answers and self._answers[0].has_arrived:
                self._publish(self._answers.popleft())
        except RuntimeError:
            self._answers.clear()
            raise
        return now + POLL_S if self._answers else math.inf

    def wait(self) -> None:
        """Wait for all pictures, and publish them. Raises as `turn` does."""
        for answer in self._answers:
            answer.copy.wait()
            answer.clock.wait()
        self.turn(0.0)

    def _publish(self, answer: _Answer) -> None:
        tensors = dict(answer.copy.tensors)
        is_whole = tensors.pop("is_whole", None)
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
        }
        if answer.step is not None:
            meta["step"] = answer.step
        if fault_text:
            meta["trouble"] = last_lines(printable_lines(fault_text))
        shape = tuple(tensors["color"].shape) if tensors else ()
        layout = NamedTensors("picture", tuple(tensors), shape, "uint8")
        self.stream.describe(layout, copy=True)
        self.stream.publish_awaited((tuple(tensors.values()), meta))
