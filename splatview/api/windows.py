"""What the windows of a process share: the names of their streams, a display, and those that nobody holds any more."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from splatview.api import session as publishing
from splatview_ipc.control import limits
from splatview_ipc.system import programs

if TYPE_CHECKING:
    import subprocess

    from splatview_ipc import Publisher
    from splatview_ipc.shm.window_page import WindowPage

PATIENCE = 5.0
"""Seconds that a window has to close by itself."""
_names: set[str] = set()
"""Of the streams that windows have now."""
_lock = threading.RLock()
# What the garbage collector finds is only written down: it may run anywhere, in the helper thread as well.
unnamed: deque[tuple[int, tuple[str, str]]] = deque()
"""Streams of windows that nobody holds any more: their process's id and their names."""
_ending: deque[subprocess.Popen[Any]] = deque()
"""Processes of such windows, which were asked to end."""
_parents: list[Any] = []
"""In a forked child: the parent's processes. Letting go of them would complain that they still run."""


def take_names(title: str) -> tuple[str, str]:
    """Names for a window's image and its scene, which no other stream of this process has. Those of windows that are
    gone are used again."""
    tidy()
    publisher = publishing.session().run()
    base = " ".join("".join(c for c in title if c.isprintable() and c != "/").split())
    base = "window" if base in ("", "splatview") else base[: limits.MAX_NAME - 20]
    number = 1
    with _lock:
        while True:
            name = base if number == 1 else f"{base} {number}"
            both = name, f"{name} scene"
            if not _names.intersection(both) and _free(publisher, both[0], "image") and (
                    _free(publisher, both[1], "gaussians")):
                _names.update(both)
                return both
            number += 1


def _free(publisher: Publisher | None, name: str, kind: str) -> bool:
    """Whether a run has no stream of this name, or one that shows nothing any more."""
    stream = None if publisher is None else publisher.streams.get(name)
    return stream is None or (stream.kind == kind and stream.tally.newest is None)


def give_back(names: tuple[str, str]) -> None:
    """Let go of what two streams show, and of their names."""
    for name in names:
        publishing.forget(name)
    with _lock:
        _names.difference_update(names)


def check_display() -> None:
    """Raise RuntimeError where there is certainly no display."""
    wayland, x11 = os.environ.get("WAYLAND_DISPLAY"), os.environ.get("DISPLAY")
    way_out = ("Without one, splatview serve --web shows the same in a browser, and Xvfb is a display that nobody sees "
               "(xvfb-run python ...)")
    if not (wayland or x11):
        raise RuntimeError("no window can be opened: there is no display (neither DISPLAY nor WAYLAND_DISPLAY is "
                           f"set). {way_out}")
    local = re.fullmatch(r"(?:unix)?:(\d+)(?:\.\d+)?", x11 or "")
    if wayland or local is None:
        return
    path = f"/tmp/.X11-unix/X{local[1]}"
    for address in ("\0" + path, path):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as knock:
            knock.settimeout(1.0)
            try:
                knock.connect(address)
                return
            except TimeoutError:
                return  # it is there, and busy
            except OSError:
                continue
    raise RuntimeError(f"no window can be opened: nothing answers at DISPLAY={x11!r}. {way_out}")


def failure(process: subprocess.Popen[Any], page: WindowPage) -> str:
    """Why a window is gone that its user did not close; "" where nothing went wrong."""
    from splatview_ipc.shm.window_page import CLOSED, FAILED

    if page.state == FAILED:
        return page.reason
    code = process.poll()
    if page.state == CLOSED or code in (None, 0):
        return ""
    return f"the window's process ended by itself, with code {code}"


def abandon(process: subprocess.Popen[Any], page: WindowPage, owner: int) -> None:
    """Nobody holds a window any more."""
    if os.getpid() != owner:
        _parents.append(process)
    elif process.poll() is None:
        process.terminate()
        _ending.append(process)
    page.close()


def disown(process: Any) -> None:
    """In a forked child: a process that is the parent's is looked at no more."""
    _parents.append(process)


def tidy() -> None:
    """See to what was left behind since."""
    while unnamed:
        owner, names = unnamed.popleft()
        if owner == os.getpid():
            give_back(names)
    for _ in range(len(_ending)):
        process = _ending.popleft()
        if process.poll() is None:
            _ending.append(process)


@atexit.register
def _at_exit() -> None:
    while _ending:
        programs.end(_ending.popleft(), PATIENCE)


def _after_fork_in_child() -> None:
    """The windows are the parent's."""
    global _lock
    _lock = threading.RLock()
    _names.clear()
    unnamed.clear()
    _parents.extend(_ending)
    _ending.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
