"""The options that the commands of every viewer share, and the screens they open."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass

# tyro reads the annotations.
from pathlib import Path  # noqa: TC003
from typing import TYPE_CHECKING, Annotated

import tyro

from splatview_ipc.system import entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.screen import Screen
    from splatview_viewer.recording.options import RecordOptions
    from splatview_viewer.web.browsers import Browsers


@dataclass(frozen=True)
class ViewerOptions:
    """The options of every viewer."""

    window: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """In a window. The default where there is a display."""
    web: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """In browsers, any number of them: prints the address to open. The default where there
    is no display."""
    offscreen: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """In neither: --out alone is written. See also: splatview shot."""
    port: Annotated[int, tyro.conf.arg(metavar="N")] = 7007
    """The port of --web; if it is taken, the next one that is free."""
    host: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Let --web be reached at this address of the machine from elsewhere as well
    (0.0.0.0: at all of them). Default: this machine alone, which is enough for ssh -L.
    Every connection needs the token in the printed URL."""
    allow_host: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")
    ] = ()
    """Answer --web by this name as well: that of a reverse proxy in front of it, such
    as viewer.example.org. May be given more than once. The token is needed all the
    same."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PICTURE")] = None
    """Write what is shown, panel included, to this .png, .jpg or .webp: once a second
    when it changed, and at the end."""
    size: Annotated[str, tyro.conf.arg(metavar="WxH")] = "1280x720"
    """Width and height of the window or picture. A browser's are its own."""
    max_fps: Annotated[float, tyro.conf.arg(metavar="N")] = 60.0
    """Never draw more pictures a second than this. Less when nothing changes: an idle
    viewer draws none."""
    gpu_budget: Annotated[float, tyro.conf.arg(metavar="SHARE")] = 0.1
    """The share of the GPU's time that the viewer takes at most while a run that it
    shows needs the GPU: 0.1 is a tenth, 1 is no limit. Pictures come less often then,
    and coarser while you move."""
    vsync: bool = True
    """Wait for the display's refresh, so that pictures do not tear."""

    def _serve(
        self,
        command: str,
        files: tuple[Path, ...],
        run: str | None,
        record: RecordOptions | None = None,
        *,
        compares: bool = False,
    ) -> None:
        """Open the viewer, and show files and runs until it is closed.

        `run` and `record` as in AppOptions.

        Args:
            command: its name, for messages.
            files: to show.
            run: that is followed.
            record: what is recorded.
            compares: the first file is shown with the second at first.
        """
        signals = list[int]()
        with entry.handle_signals(lambda signal, _: signals.append(signal)):
            self._check(command)
            if not files:
                _check_runs_can_be_found(run)
            from splatview_viewer.app import loop
            from splatview_viewer.core.host import Memo, memo_file
            from splatview_viewer.core.screen import parse_size
            from splatview_viewer.workspace.file_source import (
                FileSource,
                check_files,
                entries_of,
            )

            size = parse_size(self.size)
            paths = entries_of(files)
            check_files(paths)
            # They are read while the screen is being opened.
            sources = tuple(FileSource(path) for path in paths)
            screen = self._make_screen(size)
            with ExitStack() as stack:
                browsers = self._serve_pages(screen, run)
                if browsers is not None:
                    stack.callback(browsers.close)
                    browsers.print_address(dict(os.environ))
                options = loop.AppOptions(
                    files=sources,
                    run=run,
                    max_fps=self.max_fps,
                    out=self.out,
                    watched=browsers is None or self.out is not None,
                    gpu_budget=self.gpu_budget,
                    memo=Memo(memo_file()),
                    record=record,
                    compares=compares,
                )
                app = loop.App(screen, options, browsers=browsers)
                stack.pop_all()
            loop.run(app, signals)

    def _make_screen(self, size: tuple[int, int]) -> Screen:
        """Return the first screen that the options ask for and this machine has."""
        for make in SCREENS:
            screen = make(self, size)
            if screen is not None:
                return screen
        raise AssertionError("the last maker returns a screen")

    def _serve_pages(self, screen: Screen, run: str | None) -> Browsers | None:
        """Start the server of pages, where the screen itself is not seen."""
        from splatview_viewer.screens.offscreen import OffscreenScreen

        if self.offscreen or not isinstance(screen, OffscreenScreen):
            return None
        from splatview_viewer.web.browsers import Browsers

        if not self.for_browsers:
            print(
                "splatview: no display here: the viewer is a page for your browser",
                file=sys.stderr,
            )
        return Browsers(
            screen.ctx,
            screen.wake,
            host=self.host,
            port=self.port,
            allow_hosts=self.allow_host,
            run=run,
        )

    @property
    def for_browsers(self) -> bool:
        """True where an option asks for pages, which then take a window's place."""
        return bool(self.web or self.host or self.allow_host)

    def _check(self, command: str) -> None:
        """Raise ViewerError where options exclude each other or are out of range."""
        from splatview_viewer.core.errors import ViewerError

        self._check_screens(command)
        if self.allow_host:
            from splatview_viewer.web.address import allowed_host

            for name in self.allow_host:
                allowed_host(name)
        if not 0 < self.max_fps <= 1000:
            raise ViewerError(
                f"{command}: --max-fps is {self.max_fps:g}, not a number over 0 up to "
                "1000"
            )
        if not 0 < self.gpu_budget <= 1:
            raise ViewerError(
                f"{command}: --gpu-budget is {self.gpu_budget:g}, not a number over 0 "
                "up "
                "to 1 (1: no limit)"
            )
        if self.out is not None:
            from splatview_ipc.system.files import check_picture
            from splatview_viewer.formats.pictures import check_writable

            check_writable(self.out, check_picture)

    def _check_screens(self, command: str) -> None:
        """Raise ViewerError where options for several screens are named."""
        from splatview_viewer.core.errors import ViewerError

        screens = {
            "--window": self.window,
            "--web": self.web,
            "--offscreen": self.offscreen,
        }
        named = [option for option, is_named in screens.items() if is_named]
        if len(named) > 1:
            raise ViewerError(
                f"{command}: {' and '.join(named)} exclude each other; name one"
            )
        if not (self.window or self.offscreen):
            return
        web_options = {
            "--host": self.host is not None,
            "--allow-host": bool(self.allow_host),
        }
        for option, is_named in web_options.items():
            if is_named:
                raise ViewerError(
                    f"{command}: {option} is for --web, and {named[0]} was named"
                )
        if self.window and not _has_display():
            raise ViewerError(
                f"{command}: --window: there is no display here (DISPLAY and "
                "WAYLAND_DISPLAY are not set); leave --window out, for a page in your "
                "browser"
            )


def _window(options: ViewerOptions, size: tuple[int, int]) -> Screen | None:
    """Open a window, if the options ask for one or there is a display."""
    needs_no_window = options.offscreen or options.for_browsers or not _has_display()
    if not options.window and needs_no_window:
        return None
    from splatview_viewer.core.errors import GraphicsError
    from splatview_viewer.screens.window import WindowScreen

    try:
        return WindowScreen(*size, vsync=options.vsync)
    except GraphicsError as e:
        if options.window:
            raise
        print(f"splatview: {e}", file=sys.stderr)
        return None


def _has_display() -> bool:
    """Return whether the environment names a display, be it reachable or not."""
    return bool(os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY"))


def _offscreen(options: ViewerOptions, size: tuple[int, int]) -> Screen:
    """Open a screen that is not seen, for browsers and pictures."""
    from splatview_viewer.screens.offscreen import OffscreenScreen

    if options.offscreen and options.out is None:
        print(
            "splatview: take a picture at any time with: splatview shot picture.png",
            file=sys.stderr,
        )
    return OffscreenScreen(*size)


SCREENS: tuple[Callable[[ViewerOptions, tuple[int, int]], Screen | None], ...] = (
    _window,
    _offscreen,
)
"""Makers of screens, in the order in which they are tried. They return None where the
options do not ask for theirs; the last one never does."""


def _check_runs_can_be_found(run: str | None) -> None:
    """Raise ViewerError when the runtime folder cannot be used.

    Without files there would never be anything to show. Prints which runs there are
    where `run` has not started.
    """
    from splatview_ipc.control.errors import RuntimeFolderError
    from splatview_ipc.control.missing_runs import explain_missing_run
    from splatview_ipc.control.run_folder import runtime_folder
    from splatview_viewer.core.errors import ViewerError

    try:
        folder = runtime_folder()
    except RuntimeFolderError as e:
        raise ViewerError(f"serve: {e}") from None
    explanation = ""
    if run is not None:
        explanation = explain_missing_run(folder, run)
    if explanation:
        print(
            f"splatview: serve: no run {run!r} yet; {explanation}; waiting for it",
            file=sys.stderr,
            flush=True,
        )
