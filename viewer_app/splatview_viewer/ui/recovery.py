"""Recovery of imgui and ImPlot from faults while a picture is drawn.

Each part of a picture is drawn inside `Faults.guard`. A part that raises is shown as
failed, with its reason; windows, groups, tables, stacks of styles and plots that it
left open are closed.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from imgui_bundle import imgui, implot

from splatview_viewer.core.errors import error_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger("splatview")

_MAX_LOGGED = 64
"""Different faults that one object logs."""


def prepare() -> None:
    """Have the current imgui context report mistakes by exceptions alone.

    They are written neither on stdout nor over the picture.
    """
    io = imgui.get_io()
    io.config_error_recovery_enable_tooltip = False
    # That message is for programmers, and would lie over the picture.
    io.config_debug_highlight_id_conflicts = False
    imgui.get_current_context().debug_log_flags = 0


class recovering:  # noqa: N801
    """Close what an exception leaves open in imgui and ImPlot, and raise it again.

    Outside a frame of imgui's there is nothing to close. It is a class, as a frame has
    fifty of them.
    """

    __slots__ = ("_state",)

    def __enter__(self) -> None:
        self._state: imgui.internal.ErrorRecoveryState | None = None
        context = imgui.get_current_context()
        if context is not None and context.within_frame_scope:
            self._state = imgui.internal.ErrorRecoveryState()
            imgui.internal.error_recovery_store_state(self._state)

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: object
    ) -> None:
        state = self._state
        if state is None or kind is None or not issubclass(kind, Exception):
            return
        with _no_asserts():
            if implot.internal.get_current_plot() is not None:
                implot.end_plot()
            _restore_window_to_end()
            imgui.internal.error_recovery_try_to_recover_state(state)


def end_window() -> None:
    """End a window; a mistake that imgui finds there is logged, and costs nothing else.

    Unlike one that is raised, which the parts after the window would pay for.
    """
    _end_by(imgui.end)


def end_frame() -> None:
    """End the frame of the current context, also where something was left open."""
    _end_by(imgui.render)


def _end_by(end: Callable[[], None]) -> None:
    """Call a function of imgui's that ends something, once more after a mistake."""
    try:
        end()
    # imgui raises this for a mistake, such as what was left open.
    except RuntimeError as e:
        _log_mistake(str(e))
        with _no_asserts():
            _restore_window_to_end()
            end()


def _restore_window_to_end() -> None:
    """Put back what a failed `imgui.end()` took, so that the window can be ended.

    imgui takes the window's clip rectangle and focus scope before it raises, and would
    take those of the window below the next time, from when on no frame can be ended.
    """
    context = imgui.get_current_context()
    context.within_end_child_id = 0
    context.within_end_popup_id = 0
    window_stack = context.current_window_stack
    if not len(window_stack):
        return
    window_data = window_stack[len(window_stack) - 1]
    least_scopes = window_data.stack_sizes_in_begin.size_of_focus_scope_stack
    if len(context.focus_scope_stack) > least_scopes:
        return
    clip = window_data.window.inner_clip_rect
    imgui.push_clip_rect(clip.min, clip.max, True)
    imgui.internal.push_focus_scope(window_data.window.id_)


@cache
def _log_mistake(message: str) -> None:
    """Log a mistake of a drawing, once: most are made again in each frame."""
    log.error("imgui: %s", message)


@contextmanager
def _no_asserts() -> Iterator[None]:
    """Have imgui close what is open without an exception for each."""
    io = imgui.get_io()
    previous = io.config_error_recovery_enable_assert
    io.config_error_recovery_enable_assert = False
    try:
        yield
    finally:
        io.config_error_recovery_enable_assert = previous


class _Guard:
    """Notes what one part raises; a class, as a frame has fifty of them."""

    __slots__ = ("_faults", "_part_name", "_recovering")

    def __init__(self, faults: Faults, part_name: str) -> None:
        self._faults = faults
        self._part_name = part_name
        self._recovering = recovering()

    def __enter__(self) -> None:
        self._recovering.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: object,
    ) -> bool:
        if kind is None:
            self._faults.end_part(self._part_name, None)
            return False
        self._recovering.__exit__(kind, error, trace)
        if not isinstance(error, Exception):
            return False
        self._faults.end_part(self._part_name, error)
        return True


class Faults:
    """The faults of the parts of one picture, each logged once."""

    def __init__(self, owner: str) -> None:
        """Start without errors. Lines of the log begin with `owner`."""
        self.owner = owner
        self._reasons: dict[str, str] = {}
        self._logged: set[tuple[str, str]] = set()

    def guard(self, part_name: str) -> _Guard:
        """Note what a part raises instead of raising it.

        A part that does not raise has no fault any more.
        """
        return _Guard(self, part_name)

    def end_part(self, part_name: str, error: BaseException | None) -> None:
        """Note that a part was drawn, or failed by an error."""
        if error is None:
            self._reasons.pop(part_name, None)
            return
        reason = error_text(error)
        self._reasons[part_name] = reason
        self._log(part_name, reason)

    def reason(self, part_name: str) -> str:
        """Return why a part failed the last time; "" where it did not."""
        return self._reasons.get(part_name, "")

    def _log(self, part_name: str, reason: str) -> None:
        """Log a fault, once and up to a bounded number."""
        fault = (part_name, reason)
        if fault in self._logged or len(self._logged) >= _MAX_LOGGED:
            return
        self._logged.add(fault)
        log.warning(
            "%s: %s failed: %s",
            self.owner,
            part_name,
            reason,
            exc_info=log.isEnabledFor(logging.DEBUG),
        )
