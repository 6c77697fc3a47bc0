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

_CSS_LENGTH = re.compile(
    r"(?:[0-9]{1,5}|[0-9]{0,5}\.[0-9]{1,4})(?:px|%|em|rem|ch|vw|vh|vmin|vmax|cm|mm|in|pt)"
)
_MAX_PIXELS = 99999
_POLL_PERIOD_S = 0.05


class Page:
    """A viewer's page. Notebooks show it inline; elsewhere it is its address.

    url: the address for a browser. width, height: as given to `show`. pid: the viewer's
    process.
    """

    def __init__(self, viewer: RunningViewer, width: str, height: str) -> None:
        self.url = viewer.url
        self.port = viewer.port
        self.pid = viewer.pid
        self.width = width
        self.height = height

    def __repr__(self) -> str:
        return f"splatview: the viewer is at {self.url}{_tunnel_advice(self.url)}"

    def _repr_html_(self) -> str:
        url = escape(self.url)
        style = f"width: {self.width}; height: {self.height}; border: 0; display: block"
        return (
            f'<iframe src="{url}" style="{escape(style)}" title="splatview" '
            'allow="clipboard-read; clipboard-write; fullscreen"></iframe>'
            '<div style="font-size: smaller; opacity: 0.7">'
            f'<a href="{url}" target="_blank" rel="noopener">{url}</a>'
            f"{escape(_tunnel_advice(self.url))}</div>"
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
    """Show the viewer in this notebook: the call is the last line of a cell.

    It may come before, while or after something is published. A viewer of yours that runs
    already (`splatview serve --web`) and follows the same is shown; else one is started,
    in a process of its own, which ends with this one. All calls share it. Nothing runs in
    this process afterwards: no thread, and the training is not slowed. In Jupyter, VS
    Code and the like the returned object is the frame; in a terminal it is the address,
    which a script prints.

    The frame asks for the address from the machine that the browser is on. With the
    kernel elsewhere, forward the port, `ssh -L 7007:127.0.0.1:7007 HOST` (VS Code does so
    by itself). The address holds the viewer's token, which every connection needs, and
    which admits other users. A saved notebook keeps it; it is worth nothing once the
    viewer has ended.

    Args:
        width: of the frame, in pixels (1 to 99999) or as a CSS length such as "100%",
            "40em" or "80vh".
        height: likewise.
        run: follow this run alone: its id, the beginning of it, its name or its process
            id. None: all, as `splatview serve` does.
        port: where a viewer that has to be started serves; when it is taken, one of the
            next. 0: any that is free.
        timeout: seconds that a viewer may take to start.

    Raises:
        TypeError: an argument is of another type.
        ValueError: an argument is not legal.
        splatview.errors.NoViewerError: none could be started; with the last lines that
            it wrote.
    """
    frame_width = _css_length("width", width)
    frame_height = _css_length("height", height)
    run = checks.run(run)
    port = checks.integer("port", port, 0, 65535)
    timeout = checks.real("timeout", timeout, 0.001, 3600)
    with session().starting():
        viewer = _viewer_of_run(run) or _start_viewer(run, port, timeout)
    page = Page(viewer, frame_width, frame_height)
    is_interactive = hasattr(sys, "ps1")
    if not is_interactive:
        # A prompt, Python's or a notebook's, shows what a call returns.
        print(page, flush=True)
    return page


def _start_viewer(run: str | None, port: int, timeout: float) -> RunningViewer:
    """Start a viewer that serves browsers. Raises NoViewerError.

    The arguments are those of `show`.
    """
    from splatview_ipc.control.errors import NoViewerError
    from splatview_ipc.system.child_program import ChildProgram

    deadline = time.monotonic() + timeout
    arguments = ["serve", "--web", "--port", str(port)]
    if run is not None:
        arguments += ["--run", run]
    program = ChildProgram("splatview_viewer", *arguments)
    try:
        while (viewer := _viewer_of_process(program.pid)) is None:
            if not program.is_running():
                raise NoViewerError(
                    f"the viewer ended with code {program.exit_code}: "
                    f"{program.last_error_lines()}"
                )
            if time.monotonic() > deadline:
                raise NoViewerError(
                    f"the viewer did not serve within timeout={timeout:g} s: "
                    f"{program.last_error_lines()}"
                )
            time.sleep(_POLL_PERIOD_S)
    except BaseException:
        program.end(2.0)
        raise
    session().programs.append(program)
    return viewer


def _css_length(name: str, value: Any) -> str:
    """Return a number of pixels, or a CSS length, as a CSS length. Raises ValueError."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if is_number and 1 <= value <= _MAX_PIXELS:
        return f"{value}px"
    if isinstance(value, str) and _CSS_LENGTH.fullmatch(value):
        return value
    raise ValueError(
        f"{name} {checks.short_repr(value)} is neither pixels (1 to {_MAX_PIXELS}) nor a CSS length such "
        'as "100%", "40em", "80vh"'
    )


def _viewer_of_run(run: str | None) -> RunningViewer | None:
    """Return a viewer that serves browsers and follows this run; None for all runs."""
    from splatview_ipc.control.registry import list_viewers

    return next((viewer for viewer in list_viewers() if viewer.run == run), None)


def _viewer_of_process(pid: int) -> RunningViewer | None:
    """Return the viewer of a process once it serves browsers."""
    from splatview_ipc.control.registry import list_viewers

    return next((viewer for viewer in list_viewers() if viewer.pid == pid), None)


def _tunnel_advice(url: str) -> str:
    """Return a command for the machine of the browser.

    It is "" unless this machine was reached over ssh.
    """
    from splatview_ipc.control.registry import ssh_forward_command

    host, _, port = url.split("/")[2].rpartition(":")
    line = ssh_forward_command(host, int(port), os.environ)
    return line and f" (on your own machine: {line})"
