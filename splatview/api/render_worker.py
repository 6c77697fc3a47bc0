"""Scenes that a function of another process draws: `publish(..., render=...)`.

Two streams of this run belong to such a scene: the tensors, which the render worker
alone reads, and what viewers see of it (`kinds.rendered`). The worker runs while viewers
look: it is started when the first one opens the scene, again after it has died, and
ended when no viewer has looked for a while.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from splatview.api.session import session
from splatview.api.worker_output import WorkerOutput
from splatview.rendering.loading import check_name
from splatview.rendering.trouble import last_lines
from splatview.rendering.worker_settings import WorkerReport, WorkerSettings
from splatview_ipc.control.limits import MAX_NAME
from splatview_ipc.system.child_program import ChildProgram
from splatview_ipc.system.terminal import printable_lines

if TYPE_CHECKING:
    from splatview.adapters.named_tensors import NamedTensorsLayout
    from splatview_ipc.publisher.channel import Published
    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.publisher.stream import Stream


class FunctionNames(NamedTuple):
    """Names of functions that a worker imports, "package.module:function"."""

    render: str
    """The one that draws."""
    module: str
    """The one that makes the module; "": there is none."""


class TimeLimits(NamedTuple):
    """Seconds that a function may take until its worker is ended."""

    picture_s: float
    first_s: float
    """For what may compile: an import, and a worker's first picture."""


TIME_LIMITS = TimeLimits(10.0, 60.0)
IDLE_S = 60.0
"""Seconds without a viewer after which the worker ends."""
_POLL_S = 0.5
"""Period of looking after a worker that runs."""
_FIRST_PAUSE_S = 0.5
_MAX_PAUSE_S = 10.0
"""Pauses before a worker that died is started again: they double until one draws."""
_END_TIMEOUT_S = 2.0
_OUR_FOLDER = os.path.join("splatview", "rendering", "")


class RenderWorker:
    """The program that draws one scene, while it is looked at."""

    def __init__(self, scene: RenderedScene, settings: WorkerSettings) -> None:
        """Note what the program needs; `tick` starts it."""
        self.scene = scene
        self._settings = settings
        self._lock = threading.Lock()
        """Held while the program is started or ended."""
        self._is_closed = False
        self._program: ChildProgram | None = None
        self._output = WorkerOutput(settings.scene)
        self._last_seen_at = 0.0
        """When a viewer was known to look."""
        self._start_at = 0.0
        self._pause_s = _FIRST_PAUSE_S

    def tick(self, now: float) -> float:
        """Start or end the program if that is due; return when to be called again.

        On the session's worker thread.
        """
        with self._lock:
            if self._is_closed:
                return math.inf
            return self._start_or_end(now)

    def _start_or_end(self, now: float) -> float:
        is_seen = self.scene.is_seen
        if is_seen:
            self._last_seen_at = now
        program = self._program
        if program is None:
            if not is_seen:
                return math.inf
            if now >= self._start_at:
                self._start()
                return now + _POLL_S
            return self._start_at
        if not program.is_running():
            self._take_end(program, now)
            return self._start_at
        if now >= self._last_seen_at + IDLE_S:
            self._end()
            return math.inf
        return now + _POLL_S

    def _start(self) -> None:
        self._output.begin()
        path = [os.path.abspath(entry) for entry in sys.path]
        settings = msgspec.structs.replace(self._settings, path=tuple(path))
        program = ChildProgram(
            "splatview.rendering.worker",
            # What the function's module publishes when it is imported is the trainer's
            # matter.
            env={**os.environ, "SPLATVIEW_DISABLE": "1"},
            pipes=True,
            on_output=self._take_report,
            on_error=self._output.take,
        )
        self._program = program
        # A program that ended at once is noticed by the next tick.
        with contextlib.suppress(OSError, ValueError):
            assert program.stdin is not None
            program.stdin.write(msgspec.json.encode(settings).decode() + "\n")
            program.stdin.flush()

    def _take_report(self, line: str) -> None:
        """Take a line of the worker's stdout. On a thread of its own."""
        try:
            report = msgspec.json.decode(line, type=WorkerReport)
        except msgspec.DecodeError:
            return
        if report.has_drawn:
            self._pause_s = _FIRST_PAUSE_S
        if report.is_changed or report.fault_text != self.scene.fault_text:
            self.scene.tell_viewers(report.fault_text)

    def _take_end(self, program: ChildProgram, now: float) -> None:
        """Tell viewers that the program has ended, and why; start another later."""
        code = program.exit_code or 0
        self._end()
        pause_s = self._pause_s
        self._start_at = now + pause_s
        self._pause_s = min(2 * pause_s, _MAX_PAUSE_S)
        lines = list(self._output.lines)
        reason = f"{_reason_of_end(code, lines, self._settings)}; it is started again"
        self._output.log_end(reason)
        self.scene.tell_viewers(last_lines("\n".join([reason, *_calls_of(lines)])))

    def _end(self) -> None:
        program = self._program
        self._program = None
        if program is not None:
            program.end(_END_TIMEOUT_S)

    def close(self) -> None:
        """End the program for good. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._end()


def _reason_of_end(code: int, lines: list[str], settings: WorkerSettings) -> str:
    """Return why a worker has ended, for users."""
    function = settings.function
    if any(line.startswith("Timeout (") for line in lines):
        return (
            f"{function} took longer than {settings.limit_s:g} s "
            f"({settings.first_limit_s:g} s for the first picture), and was ended"
        )
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"{function} was ended by {signal.Signals(-code).name}"
    return f"the program that draws with {function} ended with code {code}"


def _calls_of(lines: list[str]) -> list[str]:
    """Return the calls of the user's function in what `faulthandler` wrote at the end.

    All lines where it did not write that.
    """
    calls: list[str] = []
    for line in lines:
        if not line.startswith("  File "):
            calls.clear()
        elif f"{_OUR_FOLDER}worker.py" in line:
            return calls[::-1] or lines
        elif _OUR_FOLDER not in line and "importlib" not in line:
            calls.append(line)
    return lines


class RenderedScene:
    """A scene that a function draws: its streams and its worker."""

    def __init__(
        self,
        publisher: Publisher,
        name: str,
        functions: FunctionNames,
        limits: TimeLimits | None = None,
    ) -> None:
        """Make the streams; the first value is still to be described."""
        from splatview_ipc.publisher.stream_channels import OverlaidStream

        self.functions = functions
        self.fault_text = ""
        """Why nothing can be drawn now; "": it can."""
        limits = limits or TIME_LIMITS
        self._scene_stream = publisher.stream(name, "rendered")
        self._tensors_stream = _tensors_stream(publisher, name)
        self._tensors_stream.over = OverlaidStream(name)
        self._tensors: Any = None
        self._points: Any = ()
        self._caller_meta: dict[str, Any] | None = None
        self._meta: dict[str, Any] = {}
        self.worker = RenderWorker(
            self,
            WorkerSettings(
                run=publisher.run_id,
                run_name=publisher.folder.description.name,
                scene=name,
                function=functions.render,
                module=functions.module,
                limit_s=limits.picture_s,
                first_limit_s=limits.first_s,
            ),
        )
        publisher.on_request["Open", name] = _wake

    @property
    def is_seen(self) -> bool:
        """True while a viewer has it open."""
        return self._scene_stream.readers > 0

    def describe(
        self, layout: NamedTensorsLayout, tensors: Any, copy: bool | None, live: bool
    ) -> None:
        """Set the layout of the tensors to come, which look like these, and options."""
        from splatview.adapters.named_tensors import rendered_layout

        self._layout = layout
        self._tensors_stream.describe(layout, copy, live)
        positions = None
        if layout.positions is not None:
            positions = tensors[layout.positions]
        is_copied = positions is not None and str(positions.dtype) != "torch.float32"
        self._scene_stream.describe(rendered_layout(positions), is_copied or copy)
        self._tensors = None

    def publish(self, published: Published) -> None:
        """Make tensors of the described layout the newest version. Never waits."""
        tensors, meta = published
        if tensors is not self._tensors:
            index = self._layout.positions
            self._points = () if index is None else (tensors[index],)
            self._tensors = tensors
        if meta is not self._caller_meta:
            self._take_meta(meta)
        # In this order: viewers ask for a picture of the second one's version.
        self._tensors_stream.publish(published)
        self._scene_stream.publish((self._points, self._meta))

    def _take_meta(self, meta: dict[str, Any]) -> None:
        """Make the metadata that viewers see."""
        self._caller_meta = meta
        scene_meta = {**meta, "function": self.functions.render}
        if self.fault_text:
            scene_meta["trouble"] = self.fault_text
        self._meta = scene_meta

    def tell_viewers(self, fault_text: str) -> None:
        """Have viewers ask for pictures again, and see why there are none.

        On any thread.

        Args:
            fault_text: for users; "": pictures can be drawn.
        """
        self.fault_text = printable_lines(fault_text)
        self._take_meta(self._caller_meta or {})
        if self._scene_stream.newest is not None:
            self._scene_stream.publish_awaited((self._points, self._meta))


def _wake(message: Any) -> None:
    session().wake()


def _tensors_stream(publisher: Publisher, name: str) -> Stream:
    """Return the stream of the tensors of a scene."""
    suffix = "/tensors"
    return publisher.stream(name[: MAX_NAME - len(suffix)] + suffix, "tensors")


def checked_functions(render: Any, module: Any) -> FunctionNames:
    """Return the options `render` and `module` of `publish`, once they are checked."""
    if render is None:
        raise TypeError(
            f"module={module!r} without render: give the function that draws as well, "
            'render="package.module:function"'
        )
    check_name("render", render)
    if module is not None:
        check_name("module", module)
    return FunctionNames(render, module or "")


def rendered_scene(
    publisher: Publisher, name: str, functions: FunctionNames
) -> RenderedScene:
    """Return the scene of a name; make it, or one with other functions, if need be.

    Under the session's lock.
    """
    current = session()
    if f"renderer {name}" in current.features:
        raise ValueError(
            f"scene {name!r} is drawn by a function of this script, "
            f"@splatview.renderer({name!r}); publish with render= under another name"
        )
    feature = f"render {name}"
    worker: RenderWorker | None = current.features.get(feature)
    if worker is not None and worker.scene.functions == functions:
        return worker.scene
    scene = RenderedScene(publisher, name, functions)
    if worker is not None:
        worker.close()
    current.add(feature, scene.worker)
    return scene
