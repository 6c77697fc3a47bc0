"""The command `splatview demo`: its options, and their checks."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from splatview.demo import DemoError
from splatview.demo.session import DemoSession
from splatview_ipc.system import entry
from splatview_ipc.system.files import check_output, check_picture


@dataclass(frozen=True)
class Demo:
    """Train a small Gaussian scene in one process and watch it from another.

    Gaussians learn from photographs of a still life, and the viewer shows them while
    they do: in a window where there is a display, else in your browser, and as a
    picture in a file everywhere. Nothing is downloaded.

    Examples:

        splatview demo                         # the still life that comes with it
        splatview demo --data garden           # photographs of your own
        splatview demo --steps 300 --exit      # a quick trial that ends by itself
    """

    steps: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Gradient steps. Default: 1000 without a GPU (about a minute on two cores), 3000
    with one."""
    out: Annotated[Path, tyro.conf.arg(metavar="PICTURE")] = Path("splatview-demo.png")
    """The file of the viewer's picture (.png, .jpg, .webp), which is written again
    and again during the training."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Train on this instead: a COLMAP folder (binary), or a nerfstudio folder with
    transforms.json."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train: gsplat on CUDA, plain torch on the CPU."""
    seed: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """The same seed gives the same training."""
    save: Annotated[Path | None, tyro.conf.arg(metavar="FILE.ply")] = None
    """Write the trained Gaussians to this .ply."""
    size: Annotated[str, tyro.conf.arg(metavar="WxH")] = "1280x720"
    """Width and height of the picture and of the window."""
    window: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show a window. The default where there is a display."""
    web: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show it in a browser, and print the address. The default where there is no
    display."""
    offscreen: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Neither a window nor a browser: pictures alone."""
    port: Annotated[int, tyro.conf.arg(metavar="N")] = 7007
    """The port of --web; if it is taken, the next one that is free. 0: any that is
    free."""
    picture_every: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 20.0
    """Seconds between pictures while training."""
    exit: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """End with the last picture, the viewer too. Otherwise the viewer stays until it is
    closed, or until Ctrl-C."""


def main(args: list[str]) -> int:
    """Run `splatview demo` with these arguments; return the exit status."""
    return run(entry.parse_options(Demo, "splatview demo", args))


def run(options: Demo) -> int:
    """Run the demo to its end.

    Returns:
        0, the exit code of a training that failed, 1 if no picture could be drawn, 2
        for options that cannot be used, 128 + signal when ended early.
    """
    try:
        _check(options)
    except (DemoError, OSError) as error:
        print(f"splatview demo: {error}", file=sys.stderr)
        return 2
    session = DemoSession(options)
    with entry.handle_signals(lambda signal, _: session.signals.append(signal)):
        try:
            return session.run()
        finally:
            session.end()


def _check(options: Demo) -> None:
    """Raise DemoError for options that cannot be used, OSError for files likewise."""
    named = [name for name in ("window", "web", "offscreen") if getattr(options, name)]
    if len(named) > 1:
        screens = " and ".join(f"--{name}" for name in named)
        raise DemoError(f"{screens} exclude each other; name one")
    if not 0 <= options.port <= 65535:
        raise DemoError(
            f"--port {options.port} must be from 1 to 65535, or 0 for any that is free"
        )
    if options.steps is not None and options.steps < 1:
        raise DemoError(f"--steps {options.steps} must be at least 1")
    if options.data is not None and not options.data.exists():
        raise DemoError(f"--data {options.data}: no such file or folder")
    if not options.picture_every > 0:
        raise DemoError(
            f"--picture-every {options.picture_every} must be more than 0 seconds"
        )
    check_picture(options.out)
    if options.save is not None:
        check_output(options.save)
