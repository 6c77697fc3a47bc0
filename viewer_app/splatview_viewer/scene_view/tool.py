"""The base of tools: one thing that a user can do with a scene, in a file of its own.

A view offers events to its tools one after the other; the first that takes one keeps it
from the rest. A tool's changes of the picture are in the view's state, or drawn over
it; the tools of two users know nothing of each other.
`tests/viewer/gaussians/test_inspect.py` runs one conformance suite over all of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from splatview_viewer.core.screen import Rect
from splatview_viewer.scene_view.protocol import SceneView

if TYPE_CHECKING:
    from collections.abc import Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.lane import Lane
    from splatview_viewer.core.view import KeyHelp, Section

V = TypeVar("V", bound=SceneView)
T = TypeVar("T", bound="Tool")

_SECTIONS = (
    "",
    "Show",
    "Scenes",
    "Camera",
    "Training cameras",
    "Near and far",
    "Inspect",
    "Filter",
    "Select",
    "Crop",
    "Save the scene",
    "Compare",
    "Path",
    "Keyframe",
    "Video",
)
"""Titles of the sections of all tabs, from above; others come last. A number may follow
a title."""


ORBIT = "navigate"
"""The name of the tool that is chosen at first: it moves the camera."""


class ToolButton(NamedTuple):
    """The button of a tool that can be chosen, in the strip over the picture."""

    icon: str
    """One of `ui.icons`."""
    title: str
    keys: str
    """The key that chooses it; "" without one."""
    tip: str
    """What a press on the scene does then."""


class Tool(Generic[V]):
    """Does nothing: each tool overrides what it does."""

    name: ClassVar[str]
    """Its key in `SceneView.tools`."""
    keys: ClassVar[Sequence[KeyHelp]] = ()
    """The effects of its keys and the pointer."""
    button: ClassVar[ToolButton | None] = None
    """Its button in the strip of tools; None for a tool that is always at work."""

    def __init__(self, view: V) -> None:
        self.view = view

    @property
    def is_useful(self) -> bool:
        """True if the scene has something for the tool: its keys are listed then."""
        return True

    @property
    def is_chosen(self) -> bool:
        """True while a press on the scene is for it."""
        return self.view.tools.chosen == self.name

    def choose_tool(self) -> None:
        """Do what choosing it in the strip begins with."""

    @property
    def hides_axes(self) -> bool:
        """True while the tool shows something else in place of the scene's axes."""
        return False

    def handle(self, event: Event, rect: Rect) -> bool | None:
        """Take a user's event over the picture in `rect`.

        Returns None for an event that is not for this tool, otherwise whether the
        picture has to be drawn again.
        """
        return None

    def tick(self, now: float) -> bool:
        """Advance to `now` (`time.monotonic()`), in each turn of the loop.

        Returns True when the picture has to be drawn again. Quick when idle.
        """
        return False

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw with OpenGL over the picture in `rect`, for screenshots as well."""

    def draw_over(self, rect: Rect, scale: float) -> bool:
        """Draw lines, words and windows over the picture with imgui.

        Returns True when a picture has to follow.
        """
        return False

    def covered(self, rect: Rect) -> Sequence[Rect]:
        """Return the rectangles of its imgui windows over the picture."""
        return ()

    def bar_height(self) -> float:
        """Return the points that it takes at the picture's lower edge, 0 for no bar."""
        return 0.0

    def bar(self, rect: Rect, scale: float) -> bool:
        """Draw the bar in `rect` with imgui.

        Returns True when a picture has to follow.
        """
        return False

    def lane(self) -> Lane | None:
        """Return its lane of the time area; None without one."""
        return None

    def sections(self) -> Sequence[Section]:
        """Return its parts of the panel."""
        return ()

    def details(self) -> Sequence[str]:
        """Return its part of the status line, in short phrases."""
        return ()

    def close(self) -> None:
        """Give back everything. Idempotent."""


class ToolBar(NamedTuple):
    """The bar of a tool at the lower edge of the picture."""

    tool: Tool
    rect: Rect


class ToolSet(dict[str, Tool]):
    """The tools of a view by name, in the order in which events are offered to them."""

    def __init__(self, view: SceneView, tools: Sequence[Tool]) -> None:
        super().__init__({tool.name: tool for tool in tools})
        self._view = view
        self.chosen = ORBIT
        """The name of the tool that a press on the scene is for."""

    def of(self, kind: type[T]) -> T:
        """Return the tool of a class. Raises KeyError."""
        tool = self[kind.name]
        assert isinstance(tool, kind)
        return tool

    def choose(self, name: str) -> None:
        """Have a press on the scene be for this tool from now on."""
        self.chosen = name
        self[name].choose_tool()

    def handle(self, event: Event, rect: Rect) -> bool:
        """Offer an event to the tools. Returns True to draw the picture again."""
        for tool in self.values():
            needs_redraw = tool.handle(event, rect)
            if needs_redraw is not None:
                return needs_redraw
        return False

    def tick(self, now: float) -> bool:
        """Advance all tools to `now`. Returns True to draw the picture again."""
        needs_redraw = False
        for tool in self.values():
            needs_redraw |= tool.tick(now)
        return needs_redraw

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw what the tools lay over the picture with OpenGL."""
        for tool in self.values():
            tool.draw(framebuffer, rect)

    def draw_over(self, rect: Rect, scale: float) -> bool:
        """Draw bars, lines and windows with imgui. Returns True to draw again."""
        needs_redraw = False
        for bar in self.bars(rect, scale):
            needs_redraw |= bar.tool.bar(bar.rect, scale)
        for tool in self.values():
            needs_redraw |= tool.draw_over(rect, scale)
        return needs_redraw

    def bars(self, rect: Rect, scale: float) -> list[ToolBar]:
        """Return the bars at the lower edge of a picture in `rect`, from below."""
        bars = []
        bottom = rect.y + rect.height
        for tool in self.values():
            height = min(round(tool.bar_height() * scale), bottom - rect.y)
            if height > 0:
                bottom -= height
                bars.append(ToolBar(tool, Rect(rect.x, bottom, rect.width, height)))
        return bars

    @property
    def bars_height(self) -> float:
        """Pixels that the bars take at the lower edge."""
        points = sum(tool.bar_height() for tool in self.values())
        return points * self._view.host.scale

    def above_bars(self, rect: Rect) -> Rect:
        """Return the part of a picture in `rect` that the bars leave."""
        return replace(rect, height=max(rect.height - round(self.bars_height), 1))

    def covered(self, rect: Rect) -> list[Rect]:
        """Return the rectangles of all bars and windows over a picture in `rect`."""
        covered = [bar.rect for bar in self.bars(rect, self._view.host.scale)]
        for tool in self.values():
            covered += tool.covered(rect)
        return covered

    def lanes(self) -> list[Lane]:
        """Return the lanes of all tools, from above."""
        lanes = [tool.lane() for tool in self.values()]
        return [lane for lane in lanes if lane is not None]

    def sections(self) -> list[Section]:
        """Return the parts of the panel, in their order there."""
        return in_order([s for tool in self.values() for s in tool.sections()])

    def details(self) -> list[str]:
        """Return the phrases of all tools for the status line."""
        return [phrase for tool in self.values() for phrase in tool.details()]

    def key_helps(self) -> list[KeyHelp]:
        """Return the keys of the tools that the scene has something for."""
        useful = [tool for tool in self.values() if tool.is_useful]
        return [key for tool in useful for key in tool.keys]

    def close(self) -> None:
        """Close all tools. Idempotent."""
        for tool in self.values():
            tool.close()


def in_order(sections: Sequence[Section]) -> list[Section]:
    """Return sections in their order in the panel."""

    def position(section: Section) -> int:
        title = section.title.rstrip("0123456789 ")
        if title in _SECTIONS:
            return _SECTIONS.index(title)
        return len(_SECTIONS)

    return sorted(sections, key=position)
