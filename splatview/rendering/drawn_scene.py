"""The stream of a scene that a function of this process draws (kind rendered).

Its versions tell viewers when to ask for a picture of the scene as it is now.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from splatview.adapters import NamedTensors
from splatview.adapters.tensors import as_tensor
from splatview.rendering.answers import POLL_S
from splatview.rendering.host_copy import QueuedHostCopy
from splatview_ipc.kinds.rendered import sample_stride

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from splatview_ipc.publisher.publisher import Publisher

REFRESH_S = 0.1
"""Shortest time between two pictures of a scene that changes before a still camera."""
POINTS_PERIOD_S = 10.0
"""Time between two samples of the scene's points."""
SILENCE_S = 5.0
"""Seconds without a call of `draw` after which viewers are told why nothing comes."""


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
    return tensor[:: sample_stride(len(tensor))].to(torch.float32, copy=True)


class DrawnScene:
    """Publishes a sample of the scene's points, and new versions as the script goes on."""

    def __init__(
        self, publisher: Publisher, name: str, count_calls: Callable[[], int]
    ) -> None:
        """Make the stream.

        Args:
            publisher: the run.
            name: the scene's.
            count_calls: returns how often the script has called `splatview.draw`.

        Raises:
            ValueError: another kind of stream has this name.
        """
        self.stream = publisher.stream(name, "rendered")
        self.function_name = ""
        """For users."""
        self._count_calls = count_calls
        self._points: Any = None
        self._points_at = -math.inf
        """When the points were sampled."""
        self._points_copy: QueuedHostCopy | None = None
        """A sample on its way to host memory."""
        self._points_tensors: tuple[torch.Tensor, ...] = ()
        self._silence_text = ""
        self._refreshed_at = -math.inf
        """When viewers were told of the scene as it is now."""
        self._shown_call_count = 0
        """Calls of `splatview.draw` by then."""
        self._seen_call_count = 0
        self._silent_since = math.inf
        """The last sign of a script that draws, or of viewers that do not wait."""

    # On the trainer's thread.

    def set_points(self, points: Any, now: float) -> torch.device | None:
        """Sample points from now on; return their device, None without points.

        Args:
            points: as `sample_points` takes them, whose errors are raised.
            now: the clock's seconds.
        """
        sample = sample_points(points)
        self._points = points
        self._points_at = now
        # The worker thread shows it, and the scene with it.
        self._points_copy = QueuedHostCopy({} if sample is None else {"points": sample})
        return None if sample is None else sample.device

    def refresh_points(self, now: float) -> None:
        """Sample the points again, now and then: they move and become more."""
        if self._points is None or self._points_copy is not None:
            return
        if now < self._points_at + POINTS_PERIOD_S:
            return
        self._points_at = now
        sample = sample_points(self._points)
        if sample is not None:
            self._points_copy = QueuedHostCopy({"points": sample})

    # On the worker thread.

    def show_points(self, now: float) -> float:
        """Show a sample if one has arrived; return when to be called again."""
        copy = self._points_copy
        if copy is None:
            return math.inf
        if not copy.has_arrived:
            return now + POLL_S
        self._points_tensors = tuple(copy.tensors.values())
        if self._points_copy is copy:
            self._points_copy = None
        self._publish(now)
        return math.inf

    def follow_script(self, now: float, is_waiting: bool, refresh_at: float) -> float:
        """Tell viewers of a scene that has changed, or of a script that does not draw.

        Returns when to be called again.

        Args:
            now: the clock's seconds.
            is_waiting: a viewer waits for the script's next call of `splatview.draw`.
            refresh_at: when the budget allows the next picture; math.inf while a viewer
                waits for one.
        """
        call_count = self._count_calls()
        if call_count != self._seen_call_count or not is_waiting:
            self._seen_call_count = call_count
            self._silent_since = now
        is_silent = now >= self._silent_since + SILENCE_S
        has_changed = call_count != self._shown_call_count
        if is_silent and not self._silence_text:
            self._silence_text = (
                f"the script has not called splatview.draw() for {SILENCE_S:g} s: "
                "pictures come when it does"
            )
            self._publish(now)
            return now + REFRESH_S
        must_refresh = has_changed or bool(self._silence_text)
        refresh_at = max(refresh_at, self._refreshed_at + REFRESH_S)
        if must_refresh and now >= refresh_at:
            self._silence_text = ""
            self._publish(now)
        if now < refresh_at:
            return min(refresh_at, now + REFRESH_S)
        return now + REFRESH_S

    def _publish(self, now: float) -> None:
        """Make the scene as it is now the newest version."""
        self._shown_call_count = self._count_calls()
        self._refreshed_at = now
        meta = {"function": self.function_name}
        if self._silence_text:
            meta["trouble"] = self._silence_text
        tensors = self._points_tensors
        names = ("points",) if tensors else ()
        shape = tuple(tensors[0].shape) if tensors else ()
        self.stream.describe(NamedTensors("rendered", names, shape), copy=True)
        self.stream.publish_awaited((tensors, meta))
