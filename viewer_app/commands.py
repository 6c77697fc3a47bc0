"""The viewer's two commands and their options; what `--help` prints comes from here."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003  (tyro reads the annotations)
from typing import TYPE_CHECKING, Annotated, Union

import tyro

if TYPE_CHECKING:
    from viewer_app.guests import Guests
    from viewer_app.screens.base import Screen


@dataclass(frozen=True)
class Serve:
    """Watch what training runs publish, and files.

    Shows every stream of every run of yours on this machine, as it comes: start it before or after the training,
    restart either at will. Nothing has to be configured. Files can be dropped on the window as well.

    On a machine that you reach over ssh:   splatview serve --web   and open the address that it prints.

    Mouse: wheel zooms, drag moves a picture; over Gaussians, left drag orbits, right drag moves.
    Touch: one finger drags, two zoom and move. Keys: F fits, H or Tab hides the panel, 1 shows a picture pixel by
    pixel.
    """

    files: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[FILE ...]")] = ()
    """Scenes (PLY, compressed PLY, splat, SPZ, SOG, checkpoints) or pictures to show."""
    window: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """In a window. The default where there is a display."""
    web: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """In browsers, as many as like: prints the address to open. The default where there is no display."""
    offscreen: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Nowhere: for --out. See also: splatview shot."""
    port: Annotated[int, tyro.conf.arg(metavar="N")] = 7007
    """Where --web serves; if it is taken, at the next one that is free."""
    host: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """Let --web be reached at this address of the machine from elsewhere as well (0.0.0.0: at all of them). The printed
    URL holds a token then, without which nobody gets in. Default: this machine alone, which is enough for ssh -L."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PNG")] = None
    """Write what is shown, panel included, to this PNG: once a second when it changed, and at the end."""
    run: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """Follow this run alone: its id, the beginning of it, its name or its process id. Default: all."""
    size: Annotated[str, tyro.conf.arg(metavar="WxH")] = "1280x720"
    """Width and height of the window or picture. A browser's are its own."""
    max_fps: Annotated[float, tyro.conf.arg(metavar="N")] = 60.0
    """Never draw more pictures a second than this. Less when nothing changes: an idle viewer draws none."""
    gpu_budget: Annotated[float, tyro.conf.arg(metavar="SHARE")] = 0.1
    """The share of the GPU's time that the viewer takes at most while a run that it shows needs the GPU: 0.1 is a
    tenth, 1 is no limit. Pictures come less often then, and coarser while you move."""
    vsync: bool = True
    """Wait for the display's refresh, so that pictures do not tear."""

    def execute(self) -> None:
        for s in (signal.SIGINT, signal.SIGTERM):  # until the loop takes them over; loading takes a moment
            signal.signal(s, lambda *_: sys.exit(0))
        from viewer_app.app import App, AppOptions
        from viewer_app.errors import ViewerError
        from viewer_app.screens.base import parse_size

        named = [f"--{name}" for name in ("window", "web", "offscreen") if getattr(self, name)]
        if len(named) > 1:
            raise ViewerError(f"serve: {' and '.join(named)} exclude each other; name one")
        if self.host is not None and (self.window or self.offscreen):
            raise ViewerError(f"serve: --host is for --web, and {named[0]} was named")
        if not 0 < self.max_fps <= 1000:
            raise ViewerError(f"serve: --max-fps is {self.max_fps:g}, not a number over 0 up to 1000")
        if not 0 < self.gpu_budget <= 1:
            raise ViewerError(f"serve: --gpu-budget is {self.gpu_budget:g}, not a number over 0 up to 1 (1: no limit)")
        _check_environment("serve")
        if not self.files:
            _check_runs_can_be_found()
        screen = self._open_screen(parse_size(self.size))
        guests = self._open_doors(screen)
        App(screen, AppOptions(files=self.files, run=self.run, max_fps=self.max_fps, out=self.out,
                               watched=guests is None or self.out is not None, gpu_budget=self.gpu_budget),
            guests=guests).serve()

    def _open_screen(self, size: tuple[int, int]) -> Screen:
        import os

        from viewer_app.errors import GraphicsError
        from viewer_app.screens.offscreen import OffscreenScreen

        display = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY")
        if self.window or (display and not (self.offscreen or self.web or self.host)):
            from viewer_app.screens.window import WindowScreen

            try:
                return WindowScreen(*size, vsync=self.vsync)
            except GraphicsError as e:
                if self.window:
                    raise
                print(f"splatview: {e}", file=sys.stderr)
        if self.offscreen and self.out is None:
            print("splatview: take a picture at any time with: splatview shot picture.png", file=sys.stderr)
        return OffscreenScreen(*size)

    def _open_doors(self, screen: Screen) -> Guests | None:
        """Serve browsers, unless pictures are seen on `screen` alone."""
        import os

        if self.offscreen or screen.name == "window":
            return None
        from viewer_app.web.guests import Browsers

        if not (self.web or self.host):
            print("splatview: no display here: the viewer is a page for your browser", file=sys.stderr)
        browsers = Browsers(screen.ctx, screen.wake, host=self.host, port=self.port, run=self.run)
        browsers.say(dict(os.environ))
        return browsers


def _check_environment(command: str) -> None:
    """Raise ViewerError for a variable that names nothing, before anything else is done."""
    from ipc.errors import SharingError
    from ipc.interop.probe import forced_bridge
    from viewer_app.errors import ViewerError

    try:
        forced_bridge()
    except SharingError as e:
        raise ViewerError(f"{command}: {e}") from None


def _check_runs_can_be_found() -> None:
    """Raise ViewerError when the runtime folder cannot be used: without files there would never be anything to show."""
    from ipc import RuntimeFolderError
    from ipc.runs import runtime_folder
    from viewer_app.errors import ViewerError

    try:
        runtime_folder()
    except RuntimeFolderError as e:
        raise ViewerError(f"serve: {e}") from None


@dataclass(frozen=True)
class Shot:
    """One picture of a stream or file, as a PNG. Needs no display, no window and no running viewer.

    What a training run shows:   splatview shot out.png

    One of its streams, large:   splatview shot out.png --stream render --size 1920x1080

    A file, from a place:   splatview shot out.png a.ply --camera '{"position": [0,-1,-4], "look_at": [0,0,0]}'
    """

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT.png")]
    """The PNG file to write. It appears whole or not at all."""
    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")] = None
    """A scene or picture. Default: a stream of a run."""
    stream: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The stream to draw. Default: the only one, or the first; Gaussians before images."""
    run: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """The run that publishes it: its id, the beginning of it, its name or its process id."""
    size: Annotated[str | None, tyro.conf.arg(metavar="WxH")] = None
    """Width and height. Default: the picture's own, or 1280x720 for Gaussians. Pictures are fitted."""
    camera: Annotated[str | None, tyro.conf.arg(metavar="JSON")] = None
    """JSON, or a file that holds it: {"viewmat": 4x4, "K": 3x3} (world to camera, OpenCV axes) or
    {"position": [x,y,z], "look_at": [x,y,z]} with optional "up", "fov". Default: the scene seen whole."""
    background: Annotated[str, tyro.conf.arg(metavar="R,G,B")] = "0,0,0"
    """R,G,B as fractions (0.1,0.2,0.3), or as 0 to 255 if any is over 1. Default: black."""

    def execute(self) -> None:
        from viewer_app.screens.base import parse_size
        from viewer_app.shot import ShotOptions, parse_background, shoot

        _check_environment("shot")
        width, height = shoot(ShotOptions(
            self.out, self.file, self.stream, self.run,
            None if self.size is None else parse_size(self.size), self.camera,
            parse_background(self.background),
        ))
        print(f"{self.out}: {width} x {height}")


Command = Union[
    Annotated[Serve, tyro.conf.subcommand("serve")],
    Annotated[Shot, tyro.conf.subcommand("shot")],
]


def parse(args: list[str]) -> Serve | Shot:
    """The command that these arguments name. Prints help or what is wrong and exits, as command lines do."""
    return tyro.cli(Command, prog="splatview", args=args, description="A window into a running PyTorch process.")  # type: ignore[arg-type,return-value]
