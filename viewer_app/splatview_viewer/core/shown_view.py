"""A view with what surrounds every view: the data taken so far, its rectangle, the views beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.settings import BACKDROP
from splatview_viewer.core.view import Info

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import moderngl

    from splatview_viewer.core import view as base
    from splatview_viewer.core.events import Event
    from splatview_viewer.core.host import Host
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Section, Value


@dataclass
class _Shared:
    """The state of the data that views beside each other share."""

    views: int = 0
    taken: bool = False


class ShownView:
    """A view as the workspace, a viewport, a still picture holds it.

    It draws the backdrop until data came, passes events and imgui on from then, tells of changes of the state, follows
    other views of its kind, and ends the data with the last view of it.
    """

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

    def beside(self) -> ShownView:
        state = self.view.state
        if hasattr(state, "place"):  # all of the picture is seen at first
            state = replace(state, place=type(state.place)())
        return ShownView(type(self.view)(self.view.data, state), self._shared)

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
