"""`show`: the viewer inside a notebook."""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from html import escape
from typing import TYPE_CHECKING, Any

from splatview_ipc.system import programs
from splatview_ipc.system.terminal import check_text

if TYPE_CHECKING:
    from typing import IO

    from splatview_ipc.control.registry import ViewerInfo

__all__ = ["Page", "show"]

_LENGTH = re.compile(r"(?:[0-9]{1,5}|[0-9]{0,5}\.[0-9]{1,4})(?:px|%|em|rem|ch|vw|vh|vmin|vmax|cm|mm|in|pt)")
_LOOK = 0.05
"""Seconds between two looks for a viewer that is starting."""
_LAST_WORDS = 2000
_lock = threading.Lock()
_started: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
"""Viewers that this process started, and what they say."""


class Page:
    """A viewer's page. Notebooks show it inline; elsewhere it is its address.

    url: what a browser opens. width, height: as given to `show`. pid: the viewer's process.
    """

    def __init__(self, viewer: ViewerInfo, width: str, height: str):
        self.url = viewer.url
        self.port = viewer.port
        self.pid = viewer.pid
        self.width = width
        self.height = height

    def __repr__(self) -> str:
        return f"splatview: the viewer is at {self.url}{_tunnel(self.url)}"

    def _repr_html_(self) -> str:
        style = f"width: {self.width}; height: {self.height}; border: 0; display: block"
        return (f'<iframe src="{escape(self.url)}" style="{escape(style)}" title="splatview" '
                'allow="clipboard-read; clipboard-write; fullscreen"></iframe>'
                f'<div style="font-size: smaller; opacity: 0.7"><a href="{escape(self.url)}" target="_blank" '
                f'rel="noopener">{escape(self.url)}</a>{escape(_tunnel(self.url))}</div>')

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}


def show(width: int | str = "100%", height: int | str = 600, *, run: str | int | None = None, port: int = 7007,
         timeout: float = 30.0) -> Page:
    """Show the viewer in this notebook: as the last line of a cell, before, while or after something is published.

    width, height: of the frame, in pixels (1 to 99999) or as a CSS length such as "100%", "40em" or "80vh".
    run: follow this run alone: its id, the beginning of it, its name or its process id. Left out: all, as
        `splatview serve` does.
    port: where a viewer that has to be started serves; when it is taken, one of the next. 0: any that is free.
    timeout: seconds that a viewer may take to start.

    A viewer of yours that runs already (`splatview serve --web`) and follows the same is shown; else one is started,
    in a process of its own, which ends with this one. All calls share it. Nothing runs in this process afterwards:
    no thread, and the training is not slowed. In Jupyter, VS Code and the like the returned object is the frame;
    in a terminal it is the address, which a script prints.

    The frame asks for the address from the machine that the browser is on. With the kernel elsewhere, forward the
    port, `ssh -L 7007:127.0.0.1:7007 HOST` (VS Code does so by itself). The address holds the viewer's token, which
    admits connections of other users too. A saved notebook keeps it; it is worth nothing once the viewer has ended.

    Raises ValueError for values that are not legal, and ipc.NoViewerError, with the viewer's last words, when none
    could be started.
    """
    lengths = _length("width", width), _length("height", height)
    if run is not None and (isinstance(run, bool) or not isinstance(run, (str, int)) or not str(run)):
        raise ValueError(f"run {run!r} is not a run's id, name or process id; `splatview status` lists them")
    check_text(str(run), "run")
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise ValueError(f"port {port!r} is not a whole number from 1 to 65535, or 0 for any that is free")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= 3600:
        raise ValueError(f"timeout {timeout!r} is not a number of seconds over 0 up to 3600")
    wanted = None if run is None else str(run)
    with _lock:
        page = Page(_running(wanted) or _start(wanted, port, timeout), *lengths)
    if not hasattr(sys, "ps1"):  # a prompt, Python's or a notebook's, shows what a call returns
        print(page, flush=True)
    return page


def _length(name: str, value: Any) -> str:
    """A CSS length."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 99999:
        return f"{value}px"
    if isinstance(value, str) and _LENGTH.fullmatch(value):
        return value
    raise ValueError(f"{name} {value!r} is neither pixels (1 to 99999) nor a CSS length such as \"100%\", \"40em\", "
                     "\"80vh\"")


def _running(run: str | None, pid: int | None = None) -> ViewerInfo | None:
    from splatview_ipc.control.registry import viewers

    return next((v for v in viewers() if (v.run == run if pid is None else v.pid == pid)), None)


def _start(run: str | None, port: int, timeout: float) -> ViewerInfo:
    from splatview_ipc.control.errors import NoViewerError

    end = time.monotonic() + timeout
    said = tempfile.TemporaryFile(prefix="splatview-")  # a pipe would have to be read as long as the viewer runs
    arguments = ["splatview_viewer", "serve", "--web", "--port", str(port)]
    process = programs.start(*arguments, *([] if run is None else ["--run", run]), stdin=subprocess.DEVNULL,
                             stdout=said, stderr=said)
    try:
        while (viewer := _running(run, process.pid)) is None:
            code = process.poll()
            if code is not None:
                raise NoViewerError(f"the viewer ended with code {code}: {_last_words(said)}")
            if time.monotonic() > end:
                raise NoViewerError(f"the viewer did not serve within timeout={timeout:g} s: {_last_words(said)}")
            time.sleep(_LOOK)
    except BaseException:
        programs.end(process, 2.0)
        said.close()
        raise
    for gone in [s for s in _started if s[0].poll() is not None]:
        gone[1].close()
        _started.remove(gone)
    _started.append((process, said))
    return viewer


def _last_words(said: IO[bytes]) -> str:
    fd = said.fileno()  # the viewer writes at the same position, which must not be moved
    words = os.pread(fd, _LAST_WORDS, max(0, os.fstat(fd).st_size - _LAST_WORDS))
    return words.decode(errors="replace").strip() or "it said nothing"


def _tunnel(url: str) -> str:
    """What to type on the machine of the browser, when this one was reached over ssh."""
    from splatview_ipc.control.registry import ssh_line

    host, _, port = url.split("/")[2].rpartition(":")
    line = ssh_line(host, int(port), os.environ)
    return line and f" (on your own machine: {line})"


@atexit.register
def _end_viewers() -> None:
    while _started:
        process, said = _started.pop()
        programs.end(process, 3.0)
        said.close()


def _after_fork_in_child() -> None:
    """The viewers are the parent's."""
    global _lock
    _lock = threading.Lock()
    _forgotten.extend(_started)
    _started.clear()


_forgotten: list[Any] = []
"""In a forked child: the parent's viewers. Letting go of them would complain that they still run."""
os.register_at_fork(after_in_child=_after_fork_in_child)
