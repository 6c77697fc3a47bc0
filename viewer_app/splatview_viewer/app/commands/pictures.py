"""The commands `splatview shot` and `splatview video`, which need no viewer."""

from __future__ import annotations

from dataclasses import dataclass

# tyro reads the annotations.
from pathlib import Path  # noqa: TC003
from typing import Annotated

import tyro

from splatview_ipc.system.terminal import printable


@dataclass(frozen=True)
class Shot:
    """One picture of a stream or file, as a PNG, JPEG or WebP.

    Needs no display, no window and no running viewer.

    Examples:

        splatview shot out.png                        # what a training shows
        splatview shot out.png --stream render --size 1920x1080
        splatview shot out.png scene.ply --background transparent
        splatview shot out.png scene.ply --camera transforms.json
    """

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT.png")]
    """The picture to write, a .png, .jpg, .jpeg or .webp. It appears whole or not at
    all."""
    file: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")
    ] = None
    """A scene, a picture, a memory snapshot, or a folder of serve --record, whose newest
    snapshot is drawn. Default: a stream of a run."""
    stream: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The stream to draw. Default: the only one, or the first; Gaussians before images.
    """
    run: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """The run that publishes it: its id, the beginning of it, its name or its process
    id."""
    size: Annotated[str | None, tyro.conf.arg(metavar="WxH")] = None
    """Width and height. Default: the picture's own, or 1280x720 for others. Pictures
    are fitted."""
    camera: Annotated[str | None, tyro.conf.arg(metavar="JSON")] = None
    """JSON, or a file that holds it: {"viewmat": 4x4, "K": 3x3} (world to camera,
    OpenCV axes) or {"position": [x,y,z], "look_at": [x,y,z]} with optional "up", "fov";
    or the first camera of a nerfstudio path, a transforms.json or inria's cameras.json.
    Default: the scene seen whole."""
    background: Annotated[str, tyro.conf.arg(metavar="R,G,B")] = "0,0,0"
    """R,G,B as fractions (0.1,0.2,0.3), or as 0 to 255 if any is over 1; or
    transparent. Default: black."""
    show: Annotated[str | None, tyro.conf.arg(metavar="WAY")] = None
    """How Gaussians are shown, as the viewer's Look tab: color, depth, alpha, normals,
    ellipsoids, rings, points or overdraw. Default: color."""
    device: Annotated[str | None, tyro.conf.arg(metavar="N")] = None
    """The device of a memory snapshot: 1 for GPU 1, host for pinned memory. Default:
    the GPU with most events."""

    def execute(self) -> None:
        self.draw(None)

    def draw(self, other: Path | None) -> None:
        """Draw the picture; with a second memory snapshot, below the first."""
        from splatview_viewer.app.shot import shoot

        width, height = shoot(self, other)
        print(f"{printable(self.out)}: {width} x {height}")


@dataclass(frozen=True)
class Video:
    """A film of a scene along a camera path, as an mp4 or a folder of PNGs.

    Needs no display and no running viewer.

    Examples:

        splatview video turn.mp4            # once around what a training shows
        splatview video fly.mp4 scene.ply --path path.json
        splatview video frames/ scene.ply --background transparent    # PNGs

    Paths are made in the viewer (the panel's tab "Film"), in the format that
    nerfstudio's viewer writes and ns-render reads.
    """

    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """NAME.mp4, which appears whole or not at all, or a folder for PNGs."""
    file: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")
    ] = None
    """A scene, or a folder of serve --record, whose newest snapshot is filmed. Default:
    a stream of a run, as it is when this begins."""
    path: Annotated[Path | None, tyro.conf.arg(metavar="JSON")] = None
    """The camera path. Default: once around the scene, in 8 seconds."""
    stream: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The stream to film. Default: the only one, or the first."""
    run: Annotated[str | None, tyro.conf.arg(metavar="RUN")] = None
    """The run that publishes it: its id, the beginning of it, its name or its process
    id."""
    size: Annotated[str | None, tyro.conf.arg(metavar="WxH")] = None
    """Width and height. Default: the path's own, or 1280x720."""
    fps: Annotated[float | None, tyro.conf.arg(metavar="N")] = None
    """Pictures a second. Default: the path's own, or 30."""
    seconds: Annotated[float | None, tyro.conf.arg(metavar="S")] = None
    """How long the film is. Default: as long as the path takes."""
    background: Annotated[str, tyro.conf.arg(metavar="R,G,B")] = "0,0,0"
    """R,G,B as fractions or as 0 to 255, or transparent. Default: black."""

    def execute(self) -> None:
        from splatview_viewer.app.film import film
        from splatview_viewer.core.errors import ViewerError

        for name, value, maximum in (
            ("fps", self.fps, 1000),
            ("seconds", self.seconds, 3600),
        ):
            if value is not None and not 0 < value <= maximum:
                raise ViewerError(
                    f"video: --{name} is {value:g}, not a number over 0 up to {maximum}"
                )
        print(f"{printable(self.out)}: {film(self)} pictures")
