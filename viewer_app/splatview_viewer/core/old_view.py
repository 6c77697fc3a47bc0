"""The protocol of views that shell, workspace and compare call, and the adapter to it from `core.view.View`.

Both end with the last kind that implements this protocol by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.host import Host
from splatview_viewer.core.settings import BACKDROP
from splatview_viewer.core.view import Info

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import moderngl

    from splatview_viewer.core import view as base
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import KeyHelp, Section, Value


class View(Protocol):
    kind: ClassVar[str]
    """The kind of stream it shows."""
    host: Host
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

    def beside(self) -> View:
        """Another user's view of the same data, with a camera of its own. What is handed to one is seen in all;
        nothing is uploaded or loaded for it."""
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

    def dropped(self, file: Path, film: Any = None) -> bool:
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


class Simple:
    """For views with one part in the panel that draw without CUDA, at once, and from data that are theirs."""

    host = Host()
    stale = busy = cuda = takes_films = False

    @property
    def moving(self) -> bool:
        return False

    @property
    def sections(self) -> Sequence[Section]:
        return ()

    def dropped(self, file: Path, film: Any = None) -> bool:
        return False

    def leave(self) -> None: ...


@dataclass
class _Shared:
    """The state of the data that views beside each other share."""

    views: int = 0
    taken: bool = False


class Adapted:
    """A `core.view.View` behind the protocol above. `shared`: of the view beside it; None: its data is new."""

    opening = ""
    """No file: the view opens files through its host."""

    def __init__(self, view: base.View[Any, Any], shared: _Shared | None = None) -> None:
        self.view = view
        self.kind, self.content = view.kind, view.data
        self._shared = shared or _Shared()
        self._shared.views += 1
        self.rect: Rect | None = None
        """The rectangle that it was used in last."""
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        """Members that views of one kind have."""
        return getattr(self.view, name)

    @property
    def host(self) -> Host:
        return self.view.host

    @host.setter
    def host(self, host: Host) -> None:
        self.view.host = host

    @property
    def stale(self) -> bool:
        return self.view.wants.stale

    @property
    def busy(self) -> bool:
        return self.view.wants.busy

    @property
    def cuda(self) -> bool:
        return self.view.wants.cuda

    @property
    def moving(self) -> bool:
        return self.view.wants.moving

    @property
    def empty(self) -> bool:
        return not self._shared.taken

    def beside(self) -> Adapted:
        state = self.view.state
        if hasattr(state, "place"):  # all of the picture is seen at first
            state = replace(state, place=type(state.place)())
        return Adapted(type(self.view)(self.view.data, state), self._shared)

    def like(self, other: Any) -> None:
        if self.kind != other.kind:
            raise ViewerError(f"{self.kind}: a view of {other.kind} cannot be followed")
        state = other.view.state
        if other.rect is not None and hasattr(state, "place"):
            state = replace(state, place=state.place.seen_from(other.rect))
        self.view.state = state

    def update(self, value: Value) -> bool:
        taken = self.view.take("", value)
        self._shared.taken |= taken
        return taken

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        self.rect = rect
        if self._shared.taken:
            self.view.draw(framebuffer, rect)
            return
        framebuffer.use()
        framebuffer.clear(*BACKDROP, 1.0, viewport=rect.viewport(framebuffer.height))

    def over(self, rect: Rect, scale: float) -> bool:
        return not self.empty and self._draws_again(partial(self.view.ui, rect, scale))

    def boards(self, rect: Rect) -> Sequence[Rect]:
        return () if self.empty else self.view.wants.boards

    def handle(self, event: Event, rect: Rect) -> bool:
        self.rect = rect
        return not self.empty and self._draws_again(partial(self.view.handle, event, rect))

    @property
    def takes_films(self) -> bool:
        return getattr(self.view, "takes_films", False)

    def dropped(self, file: Path, film: Any = None) -> bool:
        view: Any = self.view
        return self.takes_films and view.dropped(file, film)

    def tick(self, now: float) -> bool:
        return self._draws_again(partial(self.view.tick, now))

    def _draws_again(self, call: Callable[[], bool | None]) -> bool:
        """Call a method that may change the state."""
        before = self.view.state
        return bool(call()) or self.view.state != before

    @property
    def keys(self) -> Sequence[KeyHelp]:
        return self.view.keys

    def panel(self) -> bool:
        return any([section.draw() for section in self._sections if not section.title])

    @property
    def sections(self) -> Sequence[Section]:
        return [section for section in self._sections if section.title]

    @property
    def _sections(self) -> list[Section]:
        return [replace(s, draw=partial(self._draws_again, s.draw)) for s in self.view.panel()]

    @property
    def info(self) -> Info:
        return Info() if self.empty else self.view.info()

    @property
    def details(self) -> list[str]:
        return [*self.info.details]

    @property
    def extras(self) -> list[str]:
        return [*self.info.extras]

    @property
    def readout(self) -> str:
        return self.info.readout

    @property
    def path(self) -> list[str]:
        return [*self.info.path]

    @property
    def timings(self) -> dict[str, float]:
        return {**self.info.timings}

    def leave(self) -> None:
        self.view.release("idle")

    def drop(self) -> None:
        self.view.release("away")

    def close(self) -> None:
        self._shared.views -= not self._closed
        self._closed = True
        self.view.release("closed" if self._shared.views else "last")
