"""`show`: the viewer inside a notebook."""

from __future__ import annotations

import os
import re
import sys
import time
from html import escape
from typing import TYPE_CHECKING, Any

from splatview.adapters import checks
from splatview.api.session import public, session

if TYPE_CHECKING:
    from splatview_ipc.control.registry import RunningViewer

_LENGTH = re.compile(
    r"(?:[0-9]{1,5}|[0-9]{0,5}\.[0-9]{1,4})(?:px|%|em|rem|ch|vw|vh|vmin|vmax|cm|mm|in|pt)"
)
_LOOK_S = 0.05


class Page:
    """A viewer's page. Notebooks show it inline; elsewhere it is its address.

    url: what a browser opens. width, height: as given to `show`. pid: the viewer's process.
    """

    def __init__(self, viewer: RunningViewer, width: str, height: str):
        self.url = viewer.url
        self.port = viewer.port
        self.pid = viewer.pid
        self.width = width
        self.height = height

    def __repr__(self) -> str:
        return f"splatview: the viewer is at {self.url}{_tunnel(self.url)}"

    def _repr_html_(self) -> str:
        style = f"width: {self.width}; height: {self.height}; border: 0; display: block"
        return (
            f'<iframe src="{escape(self.url)}" style="{escape(style)}" title="splatview" '
            'allow="clipboard-read; clipboard-write; fullscreen"></iframe>'
            f'<div style="font-size: smaller; opacity: 0.7"><a href="{escape(self.url)}" target="_blank" '
            f'rel="noopener">{escape(self.url)}</a>{escape(_tunnel(self.url))}</div>'
        )


@public(answers=True)
def show(
    width: int | str = "100%",
    height: int | str = 600,
    *,
    run: str | int | None = None,
    port: int = 7007,
    timeout: float = 30.0,
) -> Page:
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
    port, `ssh -L 7007:127.0.0.1:7007 HOST` (VS Code does so by itself). The address holds the viewer's token,
    which every connection needs, and which admits other users. A saved notebook keeps it; it is worth nothing once the
    viewer has ended.

    Raises ValueError for values that are not legal, and ipc.NoViewerError, with the viewer's last words, when none
    could be started.
    """
    lengths = _length("width", width), _length("height", height)
    run = checks.run(run)
    port = checks.integer("port", port, 0, 65535)
    timeout = checks.real("timeout", timeout, 0.001, 3600)
    with session().starting():
        viewer = _running(run) or _start_viewer(run, port, timeout)
    page = Page(viewer, *lengths)
    if not hasattr(
        sys, "ps1"
    ):  # a prompt, Python's or a notebook's, shows what a call returns
        print(page, flush=True)
    return page


def _start_viewer(run: str | None, port: int, timeout: float) -> RunningViewer:
    """Start a viewer that serves browsers; arguments as those of `show`. Raises NoViewerError."""
    from splatview_ipc.control.errors import NoViewerError
    from splatview_ipc.system.child_program import ChildProgram

    end = time.monotonic() + timeout
    program = ChildProgram(
        "splatview_viewer",
        "serve",
        "--web",
        "--port",
        str(port),
        *([] if run is None else ["--run", run]),
    )
    try:
        while (viewer := _running(run, program.pid)) is None:
            if not program.running():
                raise NoViewerError(
                    f"the viewer ended with code {program.exit_code}: {program.last_words()}"
                )
            if time.monotonic() > end:
                raise NoViewerError(
                    f"the viewer did not serve within timeout={timeout:g} s: "
                    f"{program.last_words()}"
                )
            time.sleep(_LOOK_S)
    except BaseException:
        program.end(2.0)
        raise
    session().programs.append(program)
    return viewer


def _length(name: str, value: Any) -> str:
    """Return a CSS length."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 99999:
        return f"{value}px"
    if isinstance(value, str) and _LENGTH.fullmatch(value):
        return value
    raise ValueError(
        f'{name} {value!r} is neither pixels (1 to 99999) nor a CSS length such as "100%", "40em", '
        '"80vh"'
    )


def _running(run: str | None, pid: int | None = None) -> RunningViewer | None:
    from splatview_ipc.control.registry import viewers

    return next(
        (v for v in viewers() if (v.run == run if pid is None else v.pid == pid)), None
    )


def _tunnel(url: str) -> str:
    """Return what to type on the machine of the browser, when this one was reached over ssh."""
    from splatview_ipc.control.registry import ssh_line

    host, _, port = url.split("/")[2].rpartition(":")
    line = ssh_line(host, int(port), os.environ)
    return line and f" (on your own machine: {line})"
