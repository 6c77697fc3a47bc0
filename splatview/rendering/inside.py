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

from splatview.adapters import NamedTensors
from splatview.adapters.tensors import as_tensor
from splatview.rendering.answers import POLL_S, Answers
from splatview.rendering.camera import RenderCamera
from splatview.rendering.draw_clock import DrawClock
from splatview.rendering.function import draw_picture
from splatview.rendering.host_copy import HostCopy
from splatview.rendering.requests import RequestQueue
from splatview.rendering.trouble import trouble_text
from splatview_ipc.kinds.rendered import MAX_POINTS
from splatview_ipc.publisher.stream_channels import OverlaidStream
from splatview_ipc.system.terminal import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.control.messages import Draw
    from splatview_ipc.publisher.publisher import Publisher

_log = logging.getLogger("splatview")

REFRESH_S = 0.1
"""Shortest time between two pictures of a scene that changes before a still camera."""
POINTS_PERIOD_S = 10.0
"""Time between two samples of the scene's points."""
SILENCE_S = 5.0
"""Seconds without a call of `draw` after which viewers are told why nothing comes."""
_MAX_LOGGED = 20
"""Different faults of one function that are logged."""


def sample_points(points: Any) -> torch.Tensor | None:
    """Return at most MAX_POINTS of a scene's points, evenly strided, float32.

    Args:
        points: (N, 3), or a callable that returns them; None: there are none.

    Raises:
        TypeError: no tensor or array.
        ValueError: another shape or dtype.
    """
    import torch

    if callable(points) and not isinstance(points, torch.Tensor):
        points = points()
    if points is None:
        return None
    tensor = as_tensor(points, "points").detach()
    shape = tuple(tensor.shape)
    if len(shape) != 2 or shape[1] != 3 or not tensor.is_floating_point():
        dtype = str(tensor.dtype).removeprefix("torch.")
        raise ValueError(
            f"points has shape {shape} and dtype {dtype}; expected (N, 3), floating "
            "point: the positions of the scene's points"
        )
    if not len(tensor):
        return None
    stride = math.ceil(len(tensor) / MAX_POINTS)
    return tensor[::stride].to(torch.float32, copy=True)


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
        self.name = name
        self.drawn_at = -math.inf
        """When the last picture was begun."""
        self._on_request = on_request
        self._count_calls = count_calls
        self._now = publisher.now
        self._scene_stream = publisher.stream(name, "rendered")
        self._answers = Answers(publisher, OverlaidStream(name))
        self._requests = RequestQueue()
        key = ("Draw", self._answers.stream.name)
        publisher.on_request[key] = self.take_request
        self._function: Callable[..., Any] | None = None
        self._function_name = ""
        self._budget = 1.0
        self._device: torch.device | str = "cpu"
        self._is_busy = False
        """True from the begin of a picture until its time is in the account."""
        self._next_at = -math.inf
        """When the budget allows the next picture."""
        self._points: Any = None
        self._points_at = -math.inf
        """When the points were sampled."""
        self._points_copy: HostCopy | None = None
        """A sample on its way to host memory."""
        self._points_tensors: tuple[torch.Tensor, ...] = ()
        self._scene_trouble = ""
        self._refreshed_at = -math.inf
        """When viewers were told of the scene as it is now."""
        self._shown_call_count = 0
        """Calls of `splatview.draw` by then."""
        self._seen_call_count = 0
        self._silent_since = self._now()
        """The last sign of a script that draws, or of viewers that do not wait."""
        self._logged: set[str] = set()

    def set_function(
        self, function: Callable[..., Any], budget: float, points: Any
    ) -> None:
        """Draw with a function from now on. On the trainer's thread.

        Args:
            function: takes a camera, and controls if it has a second parameter.
            budget: share of the time that pictures may take.
            points: as `sample_points` takes them, whose errors are raised.
        """
        sample = sample_points(points)
        self._device = _device_of(sample)
        self._points = points
        self._budget = budget
        self._function = function
        self._function_name = printable(
            getattr(function, "__name__", type(function).__name__)
        )
        self._points_at = self._now()
        # The worker thread shows it, and the scene with it.
        self._points_copy = HostCopy({} if sample is None else {"points": sample})

    # On the helper thread.

    def take_request(self, draw: Draw) -> None:
        """Take a viewer's request."""
        self._requests.put(draw, self._now())
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
        return is_paused or self._now() >= self._next_at

    def draw(self, controls: Any) -> None:
        """Draw the picture whose turn it is.

        What the function raises is told to the viewer and logged once.
        """
        draw = self._requests.take()
        if draw is None:
            return
        self._is_busy = True
        self.drawn_at = self._now()
        try:
            self._answer(draw, controls)
        except BaseException:  # Ctrl-C, or a GPU that has failed
            self._is_busy = False
            raise

    def _answer(self, draw: Draw, controls: Any) -> None:
        assert self._function is not None
        clock = DrawClock(self._device, self._now)
        try:
            self._refresh_points()
            camera = RenderCamera.of(draw, self._device)
            picture = draw_picture(self._function, (camera,), controls)
            if picture.color.is_cuda:
                self._device = picture.color.device
            self._answers.put(draw, picture, clock)
        except Exception as error:
            trouble = trouble_text(error)
            self._answers.put_trouble(draw, trouble, clock)
            self._log_once(trouble)

    def _refresh_points(self) -> None:
        """Sample the points again, now and then: they move and become more."""
        if self._points is None or self._points_copy is not None:
            return
        if self.drawn_at < self._points_at + POINTS_PERIOD_S:
            return
        self._points_at = self.drawn_at
        sample = sample_points(self._points)
        if sample is not None:
            self._points_copy = HostCopy({"points": sample})

    def _log_once(self, trouble: str) -> None:
        """Log why there is no picture, unless it was logged with other numbers."""
        pattern = re.sub(r"\d+", "#", trouble)
        if pattern in self._logged or len(self._logged) >= _MAX_LOGGED:
            return
        self._logged.add(pattern)
        _log.warning(
            "splatview: %s cannot draw %r, training goes on: %s",
            self._function_name,
            self.name,
            printable_lines(trouble),
        )

    # On the worker thread.

    def tick(self, now: float) -> float:
        """Publish what has arrived; return when to be called again.

        Args:
            now: the clock's seconds.
        """
        due = self._turn_answers(now)
        if self._points_copy is not None:
            due = min(due, self._take_points(self._points_copy, now))
        if not self._scene_stream.readers and not self._answers.stream.readers:
            return due
        if self._is_silent(now):
            self._scene_trouble = (
                f"the script has not called splatview.draw() for {SILENCE_S:g} s: "
                "pictures come when it does"
            )
            self._publish_scene(now)
        elif self._must_refresh(now):
            self._scene_trouble = ""
            self._publish_scene(now)
        return min(due, now + REFRESH_S)

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
            self._next_at = self.drawn_at + self._answers.last_s / self._budget
            if self._answers.last_trouble:
                self._log_once(self._answers.last_trouble)
            self._is_busy = False
        return due

    def _take_points(self, copy: HostCopy, now: float) -> float:
        """Show a sample if it has arrived; return when to be called again."""
        if not copy.has_arrived:
            return now + POLL_S
        self._points_tensors = tuple(copy.tensors.values())
        if self._points_copy is copy:
            self._points_copy = None
        self._publish_scene(now)
        return math.inf

    def _is_silent(self, now: float) -> bool:
        """Return whether viewers are to be told that the script does not draw."""
        call_count = self._count_calls()
        if call_count != self._seen_call_count or self._is_busy or not self._requests:
            self._seen_call_count = call_count
            self._silent_since = now
        return now >= self._silent_since + SILENCE_S and not self._scene_trouble

    def _must_refresh(self, now: float) -> bool:
        """Return whether viewers are to ask for the scene as it is now."""
        if self._is_busy or self._requests:
            return False
        if now < max(self._next_at, self._refreshed_at + REFRESH_S):
            return False
        return (
            bool(self._scene_trouble) or self._count_calls() != self._shown_call_count
        )

    def _publish_scene(self, now: float) -> None:
        """Make the scene as it is now its newest version."""
        self._shown_call_count = self._count_calls()
        self._refreshed_at = now
        meta = {"function": self._function_name}
        if self._scene_trouble:
            meta["trouble"] = self._scene_trouble
        tensors = self._points_tensors
        names = ("points",) if tensors else ()
        shape = tuple(tensors[0].shape) if tensors else ()
        self._scene_stream.describe(NamedTensors("rendered", names, shape), copy=True)
        self._scene_stream.publish_awaited((tensors, meta))

    def close(self) -> None:
        """Draw no more."""
        self._requests.clear()
        self._function = None


def _device_of(sample: torch.Tensor | None) -> torch.device | str:
    """Return the device on which a function most likely wants its camera."""
    import torch

    if sample is not None:
        return sample.device
    if torch.cuda.is_initialized():
        return torch.device("cuda", torch.cuda.current_device())
    return "cpu"
