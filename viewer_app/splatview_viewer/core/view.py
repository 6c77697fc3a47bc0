"""The base of all views: one user's view of a stream or file of one kind.

`tests/viewer/kinds/test_views.py` runs one conformance suite over all kinds;
`docs/kinds.md` explains the smallest one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Protocol,
    Self,
    TypeVar,
    runtime_checkable,
)

from splatview_ipc.control.frame import StreamFrame
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.handed import HandedOn
from splatview_viewer.core.host import Host

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    import moderngl
    import torch

    from splatview_viewer.core.command import Command
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.handed import HandedPlace
    from splatview_viewer.core.jobs import RunningJob
    from splatview_viewer.core.lane import Lane
    from splatview_viewer.core.readings import Readings
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.undoable import Undoable

Value = Any
"""A frame of a stream, or the content of a file. Each kind checks it by its own rules.
"""
Release = Literal["idle", "away", "closed", "last"]
"""The occasion to release memory. "idle": no view of the data is visible; asked of
one of them. "away": the user of this view is away: its own pictures. "closed": this
view ends. "last": it ends, and so does the data. The last two may be repeated."""
Tab = Literal["look", "data", "compare", "film"]
"""A tab of the panel."""
PICTURE_S = 75.0
"""Seconds for a picture that another program draws, and may compile before."""
TABS: dict[Tab, str] = {
    "look": "Look",
    "data": "Data",
    "compare": "Compare",
    "film": "Film",
}
"""The tabs of the panel in their order, and their names."""
Data = TypeVar("Data")
State = TypeVar("State")

VERTEX = """
#version 330
void main() {  // one triangle over everything
    gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0);
}
"""
BRIDGE_WORDS = {
    "direct": "drawn in place",
    "import": "CUDA copy into memory of OpenGL's",
    "host": "texture upload",
}
"""Transfer of a stream's pixels to OpenGL, by the name of the bridge
(`splatview_ipc.gl`)."""
CANVAS_WORDS = {
    "import": "CUDA draws into memory of OpenGL's",
    "host": "pictures go through the host",
}
"""Transfer of a renderer's pixels to OpenGL, by the name of the canvas."""
WITHOUT_OPENGL = "CUDA draws without OpenGL"
"""The same where they do not go there."""
DRAWN_THERE = "the browser draws"
"""The same where the scene is drawn on another machine."""


@dataclass(frozen=True)
class Section:
    """A part of the panel that opens and closes."""

    title: str
    """"" for the view's own controls, which are always open."""
    draw: Callable[[], bool | None]
    """Draws its controls with imgui; True to draw the picture again."""
    opened: bool = False
    """True to open it at first."""
    tip: str = ""
    """Its content in one sentence."""
    tab: Tab = "look"
    """The tab that it is in."""
    state: str = ""
    """A few words beside its title, so that a closed one still tells."""
    reset: Callable[[], bool | None] | None = None
    """Sets its controls back to their defaults; None where that means nothing."""
    run: str = ""
    """The run whose settings these are, all of which it notes by `note_rows`; "": they
    are those of all entries of a kind."""


@dataclass(frozen=True)
class Visit:
    """Tells what a phone shows while a view looks through a training camera.

    It takes the place of the top bar and of the tabs.
    """

    title: str
    """"Camera 14"."""
    beside: str
    """"of 30"."""
    words: str
    """Facts of it, such as its name and PSNR."""
    draw: Callable[[], bool | None]
    """Draws its part of the sheet with imgui; True to draw the picture again."""
    step: Callable[[int], object]
    """Goes to the next one (1) or the one before (-1)."""
    leave: Callable[[], object]
    """Goes back to where the view was before."""


@dataclass(frozen=True)
class KeyHelp:
    """One line of the list of keys."""

    group: str
    """"Camera", "Picture"."""
    keys: str
    """As a user reads them: "W A S D", "Shift + drag"."""
    does: str


@dataclass(frozen=True)
class Info:
    """Texts about the shown value."""

    details: Sequence[str] = ()
    """Short phrases: size, type, counts, notes."""
    extras: Sequence[str] = ()
    """Rarely needed phrases."""
    readout: str = ""
    """The value under the pointer."""
    path: Sequence[str] = ()
    """Transfer of the data to the screen: upload, renderer."""
    title: str = ""
    """What it shows, where that is not the entry's name: "Difference"."""
    subtitle: str = ""
    """Of what, where that is not the entry's run: "A against B"."""
    facts: Sequence[str] = ()
    """The most important facts in few words, for a pane beside others."""


class Playback(Protocol):
    """Holds what was recorded of an entry, and the version that all its views show."""

    @property
    def step(self) -> int | None:
        """The step of the recorded version that is shown; None: what comes live."""
        ...

    def seek_step(self, step: float) -> None:
        """Show the recorded version nearest to a step."""
        ...

    def live(self) -> None:
        """Show what comes live, or the last recorded version."""
        ...


@dataclass(frozen=True)
class Wants:
    """Needs of a view that its caller looks up in each turn. Cheap."""

    stale: bool = False
    """The writer overwrote the shown frame: hand out the newest one, even if it was
    taken before."""
    busy: bool = False
    """The last value is still being read: no other can be taken."""
    cuda: bool = False
    """It draws with CUDA, or has a worker do so, on the GPU that holds its data."""
    moving: bool = False
    """The user moves the camera just now."""
    pending: bool = False
    """Its next picture is drawn in steps: until that is done it has nothing new to show.
    """
    copied_frame: StreamFrame | None = None
    """A frame that it began to copy in another thread: hand this one out until it is
    taken."""


class ViewPlace(Protocol):
    """The part of a picture that a view shows; made without arguments, all of it."""

    def seen_from(self, rect: Rect) -> Self:
        """Return a place with which any other rectangle shows all that `rect` shows."""
        ...


@runtime_checkable
class PlacedState(Protocol):
    """The state, a dataclass, of a view that shows a part of its picture."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def place(self) -> ViewPlace: ...


class View(Generic[Data, State]):
    """One user's view.

    `take`, `draw`, `release` and a type of state are to be filled in.

    The other methods have no effect by default. All calls come from the thread that
    owns the OpenGL context, in this order:

        view = kind.view(ctx, work)        # over new data, in the state that a user sees first
        other = type(view)(view.data, view.state)      # another user's view of the same data
        view.tick(now)                     # in each turn of the loop in which it is visible
        view.work()                        # in each turn of the loop
        view.take("", value)               # once it returned True for one of them, these follow:
        view.handle(event, rect)           # any number of times
        view.draw(framebuffer, rect)
        view.ui(rect, scale)               # after `draw`, inside an imgui frame
        view.panel(), view.info()          # for the panel and the status line
        view.release(occasion)             # at any time; "closed" and "last" end it

    A picture depends on the data and `state` alone, so following, bookmarks, undo and
    memory are copies of `state`. A state with a field `place`
    (`PlacedState`) is seen whole by followers with other rectangles. The caller draws
    again after each call that changed `state`; the results of `tick`, `handle`, `ui`
    and of a section's `draw` are True for any other reason to draw again.

    A still picture (`app/still.py`) ticks before `take`, and then only once it is drawn:
    what a view finds out in `tick` about a new value is missing there.
    """

    kind: ClassVar[str]
    """The kind of stream it shows."""
    keys: Sequence[KeyHelp] = ()
    """The keys and gestures over its picture."""
    drawn_camera: Any = None
    """The camera of the last picture; None where lines over it depend on none."""
    seen_camera: Any = None
    """The camera of the picture that its user sees, which lines in `ui` are drawn with;
    None: the present one. Set by the caller."""
    has_lines: bool = False
    """The last `ui` drew lines with `seen_camera`."""
    shows_scene: bool = False
    """It shows a scene, which a screen may draw by itself (`hand_on`)."""

    def __init__(self, data: Data, state: State) -> None:
        """Start with a state.

        Args:
            data: shared by all views of a stream or file.
            state: a frozen dataclass of plain values, in the picture's units: only a
                `place` may be for one rectangle, which it names.
        """
        self.data = data
        self.state = state
        self.host = Host()

    def take(self, link: str, value: Value) -> bool:
        """Put a value into `data`; return whether it was still whole.

        The value's memory may change afterwards, unless the view holds the frame
        (`StreamFrame.hold`).

        Args:
            link: "" for its own stream, otherwise the name of a linked one.
            value: a frame of the stream, or the content of the file.

        Returns:
            False when the writer overwrote the frame meanwhile; nothing changes then.

        Raises:
            ViewerError: the value cannot be shown.
            SharingError: the frame is on a GPU and cannot be read here, but could be
                through host memory.
        """
        raise NotImplementedError

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw into a part of a framebuffer, every pixel of it once."""
        raise NotImplementedError

    def draw_on_device(self, rect: Rect, gpu: int | None) -> torch.Tensor | None:
        """Draw with CUDA alone what `draw` would draw into a part of a framebuffer.

        Args:
            rect: the part.
            gpu: CUDA's ordinal of the GPU to draw on; None: any.

        Returns:
            uint8 (height, width, 3), top row first, for what torch's current stream
            does next; it is never written again. None where OpenGL has to draw, which
            `draw`, called next, does.
        """
        return None

    def hand_on(self, rect: Rect) -> HandedOn:
        """Return what a screen needs to draw, by itself, what `draw` would draw.

        Where that is possible nothing is drawn until the next call, which follows
        whenever something may have changed.
        """
        return HandedOn()

    def take_range(self, show: str, ends: tuple[float, float], side: int = 0) -> bool:
        """Take the range of numbers that a screen has measured in a picture of its own.

        Returns whether what is written over the picture has to be drawn again.

        side: 1 for the second of two scenes in one picture.
        """
        return False

    def handing_obstacle(self) -> str:
        """Return why a screen cannot draw its scene, for users; "" as far as it can."""
        return ""

    def take_measurement(self, mean_square: float) -> None:
        """Take what a screen has measured that draws two scenes by itself.

        mean_square: the mean squared difference of their R, G and B in [0, 1].
        """

    def draw_over_handed(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw what lies over a picture that was handed on: colours times their alpha."""

    def awaits_picture(self, rect: Rect) -> bool:
        """Request the exact picture of the present state, from a program that draws it.

        Returns whether it has not come yet. What is drawn exactly (`Host.exact`) has to
        wait until it has; nothing else waits.

        Args:
            rect: where it is to be drawn.
        """
        return False

    @property
    def fault_text(self) -> str:
        """Why its picture cannot be drawn now, for users; "" where it can."""
        return ""

    def await_value(self) -> None:
        """Take note that a new value would be taken now, were the view not busy."""

    def release(self, occasion: Release) -> None:
        """Release what is made again when it is drawn."""
        raise NotImplementedError

    def tick(self, now: float) -> bool:
        """Do what could wait: a sharper picture after a drag, a count of NaNs.

        Quick when idle.
        """
        return False

    def work(self) -> bool:
        """Go on with what a user began and need not watch, such as a film.

        Returns whether to draw the picture again. Quick when idle.
        """
        return False

    def dropped(self, file: Path) -> bool:
        """Take a camera path that was dropped over the picture.

        Returns False for a file that is to be opened by itself.
        """
        return False

    def handle(self, event: Event, rect: Rect) -> bool:
        """Take a user's event over `rect`, where the picture was drawn."""
        return False

    def take_place(self, place: HandedPlace) -> bool:
        """Look from where a screen that draws by itself has moved the camera.

        Returns whether to draw the picture again.
        """
        return False

    def covered(self, rect: Rect) -> Sequence[Rect]:
        """Return the parts of the picture in `rect` that imgui's windows cover.

        They receive the pointer there. Asked for once an event.
        """
        return ()

    def legend_place(self, rect: Rect, scale: float) -> Rect | None:
        """Return where `ui` draws a legend; None where it draws none."""
        return None

    def ui(self, rect: Rect, scale: float) -> bool:
        """Draw axes, text and windows over the picture with imgui.

        Args:
            scale: pixels per point.
        """
        return False

    def writes_about_picture(self) -> bool:
        """Return whether `ui` draws anything that changes with the value or its place.

        False: over another picture with the same `drawn_camera`, the user may see for a
        moment what the last `ui` drew.
        """
        return True

    def panel(self) -> Sequence[Section]:
        """Return the view's parts of the panel."""
        return ()

    def info(self) -> Info:
        """Return texts about the shown value, for the panel."""
        return Info()

    def commands(self) -> Sequence[Command[Any]]:
        """Return what a user can ask it for; each is run with this view."""
        return ()

    def place_from(self, leader: Any) -> Any:
        """Return the place that shows what another view of this kind shows."""
        return leader.state.place

    def state_from(self, leader: Any) -> Any:
        """Return the state that shows what another view of this kind shows, as it does."""
        return leader.state

    def has_own_frame(self, leader: Any) -> bool:
        """Return whether its places are other ones than those of another view.

        So it is for scenes of another scale or direction upward.
        """
        return False

    @property
    def playback(self) -> Playback | None:
        """The record of it; None without."""
        return None

    def find_commands(self, text: str) -> Sequence[Command[Any]]:
        """Return commands for what is searched for, of which there are too many to list.

        Such are training cameras by their numbers. A few dozen are enough.
        """
        return ()

    def undoable_state(self) -> State | None:
        """Return the state without what passes, such as what is under the pointer.

        Undo brings back fields of it. None while the state is not settled, such as
        before the first picture has chosen a camera. Asked for in each turn.
        """
        return self.state

    def restore(self, state: State) -> None:
        """Return to a state that it had, whatever is under way."""
        self.state = state

    def undoable_parts(self) -> Sequence[Undoable]:
        """Return its parts that users change and that have states of their own."""
        return ()

    def visit(self) -> Visit | None:
        """Return what a phone shows in place of all else; None as a rule."""
        return None

    def lanes(self) -> Sequence[Lane]:
        """Return its lanes of the time area; the caller asks in each picture."""
        return ()

    def readings(self) -> Readings | None:
        """Return values at the place that its user chose; None where it has none.

        Asked for in each picture.
        """
        return None

    def compared(self) -> Mapping[str, Any]:
        """Return what it compares in one picture: data by their letters, "A" and "B"."""
        return {}

    def inner_tie(self) -> bool | None:
        """Return whether the two that it compares in one picture move together.

        None: it compares none.
        """
        return None

    def switch_inner_tie(self) -> None:
        """Untie the two that it compares in one picture, or tie them again."""

    def awaits_second(self, kind: str) -> bool:
        """Return whether a file of this kind, opened now, is to be compared with it."""
        return False

    def compare_with(self, data: Any) -> None:
        """Compare what it shows with what other data, of its kind, hold."""

    def jobs(self) -> Sequence[RunningJob]:
        """Return what it works on for its user, such as a film."""
        return ()

    @property
    def timings(self) -> Mapping[str, float]:
        """Milliseconds by stage of the last picture, not nested."""
        return {}

    @property
    def wants(self) -> Wants:
        """The needs of the view that its caller looks up in each turn."""
        return Wants()


class GradualView(View[Data, State]):
    """A view whose jobs work on a picture while others are drawn."""

    @property
    def complete(self) -> bool:
        """True if the last picture showed everything: no job works on more of it."""
        raise NotImplementedError

    @property
    def fault(self) -> str:
        """The reason why the value cannot be drawn; "" unless the view has given up."""
        raise NotImplementedError

    def wait(self, timeout: float) -> None:
        """Wait, at most this many seconds, until another picture would show more.

        For callers that need a complete picture and do nothing else meanwhile.
        """
        raise NotImplementedError


def has_arrived(value: Value) -> bool:
    """Return whether all data of a value is there; a GPU may still write a frame's."""
    return not isinstance(value, StreamFrame) or value.complete


def frame_of(kind: str, value: Value) -> StreamFrame:
    """Return a value that must be a frame of a kind. Raises ViewerError."""
    if not isinstance(value, StreamFrame) or value.kind != kind:
        raise ViewerError(
            f"{kind}: a {type(value).__name__} cannot be shown; only streams of kind "
            f"{kind} can"
        )
    return value


PICTURE_KEYS = (
    KeyHelp("Picture", "Wheel, pinch", "Zoom at the pointer"),
    KeyHelp("Picture", "Drag", "Move"),
    KeyHelp("Picture", "F, double click", "Fit into the window"),
    KeyHelp("Picture", "1", "One pixel for one pixel"),
)


def meta_phrases(meta: Mapping[str, Any], omitted: Collection[str]) -> list[str]:
    """Return a frame's metadata as phrases.

    Args:
        omitted: names of what the view itself shows.
    """
    return [
        f"{name} {_meta_text(value)}"
        for name, value in meta.items()
        if name not in omitted
    ]


def _meta_text(value: Any) -> str:
    if isinstance(value, bool):
        if value:
            return "yes"
        return "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (tuple, list)):
        return ", ".join(f"{v:.4g}" for v in value)
    return str(value)


def bridge_phrases(reasons: Mapping[str, str]) -> list[str]:
    """Return why better ways to OpenGL than the one in use were not taken.

    Args:
        reasons: by the names of the ways; "" for a way that was not tried.
    """
    return [
        f"{name} does not work here: {reason}"
        for name, reason in reasons.items()
        if reason
    ]


class Stopwatch:
    """Milliseconds of the calling thread by stage: `with stopwatch("upload"): ...`."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}

    def __call__(self, stage: str) -> _Stage:
        return _Stage(self.ms, stage)


class _Stage:
    """A stage of a stopwatch: no generator, as each frame has several."""

    def __init__(self, ms: dict[str, float], name: str) -> None:
        self._ms = ms
        self._name = name

    def __enter__(self) -> None:
        self._started_at = time.perf_counter()

    def __exit__(self, *exc: object) -> None:
        self._ms[self._name] = (time.perf_counter() - self._started_at) * 1e3
