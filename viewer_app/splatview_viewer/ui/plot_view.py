"""What views share whose whole picture is drawn with imgui: plots of numbers that streams send anew each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.view import Simple, Steady, Stopwatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import moderngl

    from splatview_viewer.core.view import Value, View
    from splatview_viewer.geometry.controls import Rect

Content = TypeVar("Content", bound="PlotContent")
Settings = TypeVar("Settings")
State = TypeVar("State")


class PlotContent:
    """The newest value of a stream, shared by its views. A subclass fills `kind` and `take`."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        self.changes = 0
        """Counts values, and whatever else changes the picture."""
        self.stopwatch = Stopwatch()

    def read(self, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> Any:
        """Return a checked copy of a frame. Raises ViewerError."""
        raise NotImplementedError

    def take(self, value: Any) -> None:
        """Keep what `read` returned."""
        raise NotImplementedError

    def update(self, value: Value) -> bool:
        """As `View.update`."""
        if getattr(value, "kind", "") != self.kind:
            raise ViewerError(f"{self.kind}: a {type(value).__name__} cannot be shown; only streams of kind "
                              f"{self.kind} can")
        with self.stopwatch("take"):
            found = self.read(value.tensors, value.meta)  # type: ignore[union-attr]
        if not value.intact():  # type: ignore[union-attr]
            return False
        self.take(found)
        self.changes += 1
        return True


class PlotView(Steady, Simple, Generic[Content, Settings, State]):
    """One user's view of it. A subclass fills `kind`, `keys` and `plot`, and gives its `state` to begin with:
    a frozen dataclass of what the user moved."""

    kind: ClassVar[str]

    def __init__(self, content: Content, settings: Settings, state: State) -> None:
        self.content, self.settings, self.state = content, settings, state
        self.pointer: float | None = None
        """Where the pointer is on the horizontal axis."""
        self._told = content.changes

    def beside(self, settings: Settings) -> PlotView[Content, Settings, State]:
        return type(self)(None, settings, beside=self)  # type: ignore[call-arg, arg-type]

    def like(self, other: View) -> None:
        if not isinstance(other, type(self)):
            raise ViewerError(f"{self.kind}: a view of {other.kind} cannot be followed")
        self.state = other.state
        self.settings.take(other.settings)  # type: ignore[attr-defined]

    def update(self, value: Value) -> bool:
        taken = self.content.update(value)
        if taken:
            self._told = self.content.changes
        return taken

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        framebuffer.use()
        framebuffer.clear(*self.settings.background, 1.0,  # type: ignore[attr-defined]
                          viewport=rect.viewport(framebuffer.height))
        self._told = self.content.changes

    def plot(self, scale: float) -> None:
        """Draw into imgui's window that is open, and move `state` and `pointer` as the user does."""
        raise NotImplementedError

    def over(self, rect: Rect, scale: float) -> bool:
        from splatview_viewer.ui.widgets import board

        if self.empty:
            return False
        before = self.state, self.pointer
        pad = min(14 * scale, rect.width // 20), min(10 * scale, rect.height // 20)
        with self.content.stopwatch("plot"), board(f"plots {id(self)}", rect, pad, scroll=True):
            self.plot(scale)
        return before != (self.state, self.pointer)

    def boards(self, rect: Rect) -> Sequence[Rect]:
        return () if self.empty else (rect,)

    def tick(self, now: float) -> bool:
        again = self._told != self.content.changes
        self._told = self.content.changes
        return again

    @property
    def empty(self) -> bool:
        return not self.content.changes

    @property
    def extras(self) -> list[str]:
        return []

    @property
    def timings(self) -> dict[str, float]:
        return dict(self.content.stopwatch.ms)

    def drop(self) -> None:
        self.pointer = None

    def close(self) -> None: ...
