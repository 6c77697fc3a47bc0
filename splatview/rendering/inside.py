"""A function inside the trainer that draws a scene when viewers ask, within a budget.

Three threads take part. The helper thread brings requests (`take_request`). The
trainer's thread draws (`draw`) and waits for no GPU: copies and times are events in its
queue. The worker thread (`tick`) publishes what has arrived, keeps the account of the
time, and tells viewers of a scene that has changed.
"""

from __future__ import annotations

import logging
import math
import re
from typing import TYPE_CHECKING, Any

from splatview.rendering.answers import PictureAnswers
from splatview.rendering.camera import RenderCamera
from splatview.rendering.draw_budget import DrawBudget
from splatview.rendering.draw_clock import DrawClock
from splatview.rendering.drawn_scene import DrawnScene
from splatview.rendering.function import draw_picture
from splatview.rendering.requests import RequestQueue
from splatview.rendering.trouble import text_of_fault
from splatview_ipc.publisher.stream_channels import OverlaidStream
from splatview_ipc.system.terminal import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.control.messages import Draw
    from splatview_ipc.publisher.publisher import Publisher

_log = logging.getLogger("splatview")

_MAX_LOGGED = 20
"""Different faults of one function that are logged."""


class InsideRenderer:
    """One scene that a function of this process draws."""

    def __init__(
        self,
        publisher: Publisher,
        name: str,
        on_request: Callable[[], None],
        count_calls: Callable[[], int],
    ) -> None:
        """Make the streams of the scene.

        Args:
            publisher: the run.
            name: the scene's.
            on_request: called when a viewer has asked, on the helper thread.
            count_calls: returns how often the script has called `splatview.draw`.

        Raises:
            ValueError: another kind of stream has this name.
        """
        self.publisher = publisher
        self.drawn_at = -math.inf
        """When the last picture was begun."""
        self._scene = DrawnScene(publisher, name, count_calls)
        self._on_request = on_request
        self._answers = PictureAnswers(publisher, OverlaidStream(name))
        self._requests = RequestQueue()
        key = ("Draw", self._answers.stream.name)
        publisher.on_request[key] = self.take_request
        self._function: Callable[..., Any] | None = None
        self._budget = DrawBudget()
        self._device: torch.device | str = "cpu"
        self._is_busy = False
        """True from the begin of a picture until its time is in the account."""
        self._logged: set[str] = set()

    def set_function(
        self, function: Callable[..., Any], budget: float, points: Any
    ) -> None:
        """Draw with a function from now on. On the trainer's thread.

        Args:
            function: takes a camera, and controls if it has a second parameter.
            budget: share of the time that pictures may take.
            points: as `drawn_scene.sample_points` takes them, whose errors are raised.
        """
        device = self._scene.set_points(points, self.publisher.now())
        self._device = _default_device() if device is None else device
        self._budget.share = budget
        self._function = function
        self._scene.function_name = printable(
            getattr(function, "__name__", type(function).__name__)
        )

    # On the helper thread.

    def take_request(self, draw: Draw) -> None:
        """Take a viewer's request."""
        self._requests.put(draw, self.publisher.now())
        self._on_request()

    @property
    def has_requests(self) -> bool:
        """True while viewers wait for pictures that were not begun."""
        return bool(self._requests)

    # On the trainer's thread.

    def is_due(self, is_paused: bool = False) -> bool:
        """Return whether a picture may be drawn now.

        Args:
            is_paused: the script waits anyway: nothing counts.
        """
        if self._is_busy or not self._requests:
            return False
        return is_paused or self.publisher.now() >= self._budget.next_at

    def draw(self, controls: Any) -> None:
        """Draw the picture whose turn it is.

        What the function raises is told to the viewer and logged once.
        """
        draw = self._requests.take()
        if draw is None:
            return
        self._is_busy = True
        self.drawn_at = self.publisher.now()
        try:
            self._answer(draw, controls)
        except BaseException:  # Ctrl-C, or a GPU that has failed
            self._is_busy = False
            raise

    def _answer(self, draw: Draw, controls: Any) -> None:
        assert self._function is not None
        clock = DrawClock(self._device, self.publisher.now)
        try:
            self._scene.refresh_points(self.drawn_at)
            camera = RenderCamera.of(draw, self._device)
            picture = draw_picture(self._function, (camera,), controls)
            if picture.color.is_cuda:
                self._device = picture.color.device
            self._answers.put(draw, picture, clock)
        except Exception as error:
            fault_text = text_of_fault(error)
            self._answers.put_fault(draw, fault_text, clock)
            self._log_once(fault_text)

    def _log_once(self, fault_text: str) -> None:
        """Log why there is no picture, unless it was logged with other numbers."""
        pattern = re.sub(r"\d+", "#", fault_text)
        if pattern in self._logged or len(self._logged) >= _MAX_LOGGED:
            return
        self._logged.add(pattern)
        _log.warning(
            "splatview: %s cannot draw %r, training goes on: %s",
            self._scene.function_name,
            self._scene.stream.name,
            printable_lines(fault_text),
        )

    # On the worker thread.

    def tick(self, now: float) -> float:
        """Publish what has arrived; return when to be called again.

        Args:
            now: the clock's seconds.
        """
        due = min(self._turn_answers(now), self._scene.show_points(now))
        if not self._scene.stream.readers and not self._answers.stream.readers:
            return due
        is_waiting = not self._is_busy and bool(self._requests)
        is_idle = not self._is_busy and not self._requests
        refresh_at = math.inf
        if is_idle:
            refresh_at = self._budget.next_at
        return min(due, self._scene.follow_script(now, is_waiting, refresh_at))

    def _turn_answers(self, now: float) -> float:
        """Publish pictures, and take the time of the last one into the account."""
        if not self._is_busy:
            return math.inf
        had_answers = self._answers.are_under_way
        try:
            due = self._answers.turn(now)
        except RuntimeError:
            self._is_busy = False
            raise
        if had_answers and not self._answers.are_under_way:
            self._budget.account(self.drawn_at, self._answers.last_s)
            if self._answers.last_fault_text:
                self._log_once(self._answers.last_fault_text)
            self._is_busy = False
        return due

    def close(self) -> None:
        """Draw no more."""
        self._requests.clear()
        self._function = None


def _default_device() -> torch.device | str:
    """Return the device on which a function most likely wants its camera."""
    import torch

    if torch.cuda.is_initialized():
        return torch.device("cuda", torch.cuda.current_device())
    return "cpu"
