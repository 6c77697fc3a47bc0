"""The protocol of a view: what shows one kind of stream, whoever publishes it.

A view belongs to one stream (or file) of one kind and to one user. It keeps its camera, zoom and last whole picture
across updates and across restarts of the trainer. What the stream holds on the GPU it shares with the views that were
made beside it: one upload, one renderer, closed with the last of them. All calls come from the thread that owns the
OpenGL context.
`tests/viewer/kinds/test_views.py` runs one conformance suite over all implementations.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from splatview_viewer.core.host import Desk

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.formats.nerfstudio import Film
    from splatview_viewer.geometry.controls import Rect

    Value = Any
    """A Frame, or what a reader of files gives: a GaussianScene, a picture (H, W, C), a Snapshot."""

VERTEX = """
#version 330
void main() {  // one triangle over everything
    gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0);
}
"""
BRIDGE_WORDS = {"direct": "drawn in place", "import": "CUDA copy into memory of OpenGL's", "host": "texture upload"}
"""How a stream's pixels come to OpenGL, by the name of the bridge (`splatview_ipc.gl`)."""
CANVAS_WORDS = {"import": "CUDA draws into memory of OpenGL's", "host": "pictures go through the host"}
"""How a renderer's pixels come to OpenGL, likewise."""


@dataclass(frozen=True)
class Section:
    """A part of the panel that opens and closes."""

    title: str
    draw: Callable[[], bool]
    """Draws its controls with imgui; True when a setting changed."""
    opened: bool = False
    """Whether it is open at first."""
    tip: str = ""
    """What is behind it, in one sentence."""


@dataclass(frozen=True)
class KeyHelp:
    """One line of the list of keys."""

    group: str
    """What it belongs to: "Camera", "Picture"."""
    keys: str
    """As one reads them: "W A S D", "Shift + drag"."""
    does: str


class View(Protocol):
    kind: ClassVar[str]
    """The kind of stream it shows."""
    desk: Desk
    """What it may ask of whoever shows it; nothing comes of that where nobody has set it."""

    @property
    def stale(self) -> bool:
        """Whether the writer has overwritten what it shows: it wants the newest frame, even one that it had."""
        ...

    @property
    def busy(self) -> bool:
        """Whether it is still reading the last frame, so that it cannot take another."""
        ...

    @property
    def cuda(self) -> bool:
        """Whether it draws with CUDA, on the GPU where its data lies."""
        ...

    @property
    def moving(self) -> bool:
        """Whether its user moves the camera just now."""
        ...

    def beside(self, settings: Any) -> View:
        """Another user's view of the same data, with a camera of its own and these settings (`ViewSettings`' part for
        this kind). What is handed to one is seen in all; nothing is uploaded or loaded for it."""
        ...

    def like(self, other: View) -> None:
        """Look as another view of this kind does: its camera or zoom, of which all is seen though the rectangles may
        differ, and those of its settings that decide the picture. Cheap: called before each drawing to follow somebody,
        until the user of this one moves it. Raises ViewerError for a view of another kind."""
        ...

    def update(self, value: Value) -> bool:
        """Take over a frame of a stream or what a file holds; the memory may change after this returns, unless the
        view holds the frame (`Frame.hold`).

        Returns False when the writer overwrote the frame meanwhile; the view then shows what it showed before.
        Raises ViewerError for a value that it cannot show, SharingError for a frame on a GPU that cannot be read here:
        the same frame could be shown if it came through host memory.
        """
        ...

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw into a part of a framebuffer, every pixel of it once. With nothing to show: the background."""
        ...

    def over(self, rect: Rect, scale: float) -> bool:
        """Draw with imgui what stands over its picture in `rect`: axes, words, windows. Called inside an imgui frame,
        as a rule after `draw`; `scale`: pixels per point. True when the picture has to be drawn again."""
        ...

    def boards(self, rect: Rect) -> Sequence[Rect]:
        """The parts of its picture where imgui's windows lie, to which the pointer belongs there."""
        ...

    def handle(self, event: Event, rect: Rect) -> bool:
        """Take a user's event over `rect`; True when the picture has to be drawn again."""
        ...

    @property
    def takes_films(self) -> bool:
        """Whether `dropped` takes camera paths."""
        ...

    def dropped(self, file: Path, film: Film | None = None) -> bool:
        """A file was dropped over its picture. True: it is a part of what is shown, a camera path for instance, and is
        not to be opened by itself. `film`: the camera path in it, where it has been read already."""
        ...

    def tick(self, now: float) -> bool:
        """Called at every turn of the loop with `time.monotonic()`; True when the picture has to be drawn again.

        For work that can wait: a sharper picture when a drag rests, a count of NaNs. Must be quick when idle. Of views
        of the same data each is told for itself, also of what another one was handed (`update`).
        """
        ...

    def leave(self) -> None:
        """Nobody shows its data for now, neither in this view nor in those beside it: give back what is held only to be
        drawn next. Asked of any one of them; what they show stays."""
        ...

    def drop(self) -> None:
        """Its user is away: give back what is its own and is made again when it is drawn. Camera and settings stay."""
        ...

    def panel(self) -> bool:
        """Draw its controls with imgui, inside a window that is open; True when a setting changed."""
        ...

    @property
    def sections(self) -> Sequence[Section]:
        """More parts of the panel, below `panel`'s."""
        ...

    @property
    def keys(self) -> Sequence[KeyHelp]:
        """What the keys and the pointer do over its picture, for the list that `?` shows."""
        ...

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show yet."""
        ...

    @property
    def details(self) -> list[str]:
        """What is shown, in short phrases: size, type, counts, notes."""
        ...

    @property
    def extras(self) -> list[str]:
        """What only those want to know who look for it."""
        ...

    @property
    def readout(self) -> str:
        """What lies under the pointer, or an empty text."""
        ...

    @property
    def path(self) -> list[str]:
        """How the data came to the screen: way of upload, renderer."""
        ...

    @property
    def timings(self) -> dict[str, float]:
        """Milliseconds by stage of the last update and drawing; for the status line, so few and not nested."""
        ...

    def close(self) -> None:
        """Give back everything that no other view needs. Idempotent."""
        ...


class Plain:
    """For views that draw all of their picture by themselves."""

    def over(self, rect: Rect, scale: float) -> bool:
        return False

    def boards(self, rect: Rect) -> Sequence[Rect]:
        return ()


class Simple:
    """For views with one part in the panel, that ask nobody for anything."""

    desk = Desk()
    takes_films = False

    @property
    def sections(self) -> Sequence[Section]:
        return ()

    def dropped(self, file: Path, film: Film | None = None) -> bool:
        return False


PICTURE_KEYS = (
    KeyHelp("Picture", "Wheel, pinch", "Zoom at the pointer"),
    KeyHelp("Picture", "Drag", "Move"),
    KeyHelp("Picture", "F, double click", "Fit into the window"),
    KeyHelp("Picture", "1", "One pixel for one pixel"),
)


class Steady:
    """For views that draw without CUDA, at once, and from data that are theirs."""

    @property
    def stale(self) -> bool:
        return False

    @property
    def busy(self) -> bool:
        return False

    @property
    def cuda(self) -> bool:
        return False

    @property
    def moving(self) -> bool:
        return False

    def leave(self) -> None: ...


def meta_phrases(meta: Mapping[str, Any], known: Collection[str]) -> list[str]:
    """What the publisher says beside the data, without the names in `known`, which the view itself shows."""
    def text(value: Any) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int):
            return f"{value:,}"
        if isinstance(value, float):
            return f"{value:.4g}"
        if isinstance(value, (tuple, list)):
            return ", ".join(f"{v:.4g}" for v in value)
        return str(value)

    return [f"{name} {text(value)}" for name, value in meta.items() if name not in known]


def bridge_phrases(reasons: Mapping[str, str]) -> list[str]:
    """Why better ways to OpenGL than the one in use were not taken."""
    return [f"{name} does not work here: {why}" for name, why in reasons.items() if why]


class Stopwatch:
    """Milliseconds of the calling thread by stage: `with stopwatch("upload"): ...`."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._stage = ""
        self._start = 0.0

    def __call__(self, stage: str) -> Stopwatch:
        self._stage = stage
        return self

    def __enter__(self) -> Stopwatch:
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.ms[self._stage] = (time.perf_counter() - self._start) * 1e3
