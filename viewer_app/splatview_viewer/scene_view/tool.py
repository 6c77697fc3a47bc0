"""The base class of tools over a scene, and the set of the tools of a view.

Each tool is a subclass of `Tool` in a file of its own. A view offers events to its tools
one after the other; the first that takes an event keeps it from the rest. A tool changes
the picture through the view's state, or draws over it; the tools of two users do not
share anything. `tests/viewer/gaussians/test_inspect.py` runs one conformance suite over
all tools.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from splatview_viewer.core.events import Key
from splatview_viewer.core.screen import Rect
from splatview_viewer.scene_view.protocol import SceneView
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.lane import Lane
    from splatview_viewer.core.view import KeyHelp, Section, Visit

V = TypeVar("V", bound=SceneView)
T = TypeVar("T", bound="Tool")

_SECTIONS = (
    "",
    "Show",
    "Drawing",
    "Scenes",
    "Camera",
    "Training cameras",
    "Near and far",
    "Controls",
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
"""Titles of the sections of all tabs, from the top.

"" stands for the view's own controls. Sections with other titles come last. A number may
follow a title.
"""


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
    """One thing that a user can do with a scene, such as measuring or cropping.

    A tool reacts to keys and the pointer, draws over the picture, and adds sections to
    the panel. Subclasses override the methods they need; here none has an effect.
    """

    name: ClassVar[str]
    """The tool's key in `SceneView.tools`."""
    keys: ClassVar[Sequence[KeyHelp]] = ()
    """Help texts for the tool's keys and gestures."""
    button: ClassVar[ToolButton | None] = None
    """Its button in the strip of tools; None for a tool that is always at work."""

    escape_layer: ClassVar[int] = 0
    """Escape ends what a tool of a lower layer began before that of a higher one."""

    def __init__(self, view: V) -> None:
        self.view = view

    @property
    def is_useful(self) -> bool:
        """True if the tool can be used with this scene, so that its keys are listed."""
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
        """React to a user's event over the picture in `rect`.

        Returns:
            None to leave the event to other tools, otherwise whether the picture has to
            be drawn again.
        """
        return None

    def tick(self, now: float) -> bool:
        """Advance to `now` (`time.monotonic()`), in each turn of the loop.

        It has to be quick when there is nothing to do.

        Returns:
            whether the picture has to be drawn again.
        """
        return False

    @property
    def paints(self) -> bool:
        """True while `draw` may draw something.

        Pictures that pass OpenGL by are shown only while no tool paints over them.
        """
        return False

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw with OpenGL over the picture in `rect`, also into screenshots."""

    def note_picture(self) -> None:
        """Take note that a picture was drawn."""

    def draw_over(self, rect: Rect, scale: float) -> bool:
        """Draw lines, texts and windows over the picture with imgui.

        Returns:
            whether the picture has to be drawn again.
        """
        return False

    def covered(self, rect: Rect) -> Sequence[Rect]:
        """Return the rectangles of the tool's imgui windows over the picture."""
        return ()

    def bar_height(self) -> float:
        """Return the height of the tool's bar at the lower edge, in points; 0: none."""
        return 0.0

    def bar(self, rect: Rect, scale: float) -> bool:
        """Draw the tool's bar in `rect` with imgui.

        Returns:
            whether the picture has to be drawn again.
        """
        return False

    def visit(self) -> Visit | None:
        """Return what a phone shows in place of all else; None as a rule."""
        return None

    def lane(self) -> Lane | None:
        """Return its lane of the time area; None without one."""
        return None

    def sections(self) -> Sequence[Section]:
        """Return the tool's sections of the panel."""
        return ()

    def details(self) -> Sequence[str]:
        """Return short phrases for the status line."""
        return ()

    def close(self) -> None:
        """Release everything. Idempotent."""


class ToolBar(NamedTuple):
    """A tool's bar at the lower edge of the picture."""

    tool: Tool
    rect: Rect


class ToolSet(dict[str, Tool]):
    """The tools of a view by name, in the order in which events are offered to them."""

    def __init__(self, view: SceneView, tools: Sequence[Tool]) -> None:
        super().__init__({tool.name: tool for tool in tools})
        self._view = view
        # Those that leave a method to `Tool` are not called at each event and turn.
        self._handling = _overriding_tools(Tool.handle, tools)
        self._ticking = _overriding_tools(Tool.tick, tools)
        self._drawing = _overriding_tools(Tool.draw, tools)
        self._noting = _overriding_tools(Tool.note_picture, tools)
        self._covering = _overriding_tools(Tool.covered, tools)
        self._with_bar = _overriding_tools(Tool.bar_height, tools)
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
        """Offer an event to the tools; return whether to draw the picture again."""
        tools = self._handling
        if isinstance(event, Key) and event.name == "escape":
            tools = sorted(tools, key=_escape_layer)
        for tool in tools:
            needs_redraw = tool.handle(event, rect)
            if needs_redraw is not None:
                return needs_redraw
        return False

    def tick(self, now: float) -> bool:
        """Advance all tools to `now`; return whether to draw the picture again."""
        needs_redraw = False
        for tool in self._ticking:
            needs_redraw |= tool.tick(now)
        return needs_redraw

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw with OpenGL what the tools show over the picture."""
        for tool in self._drawing:
            tool.draw(framebuffer, rect)
        self.note_picture()

    @property
    def paints(self) -> bool:
        """True while `draw` may draw something."""
        return any(tool.paints for tool in self._drawing)

    def note_picture(self) -> None:
        """Tell the tools that a picture was drawn."""
        for tool in self._noting:
            tool.note_picture()

    def draw_over(self, rect: Rect, scale: float) -> bool:
        """Draw bars, lines and windows with imgui; return whether to draw again."""
        needs_redraw = False
        for bar in self.bars(rect, scale):
            needs_redraw |= bar.tool.bar(bar.rect, scale)
        for tool in self.values():
            needs_redraw |= tool.draw_over(rect, scale)
        return needs_redraw

    def bars(self, rect: Rect, scale: float) -> list[ToolBar]:
        """Return the bars at the lower edge of a picture in `rect`, the lowest first."""
        bars = []
        bottom = rect.y + rect.height
        for tool in self._with_bar:
            height = min(round(tool.bar_height() * scale), bottom - rect.y)
            if height > 0:
                bottom -= height
                bars.append(ToolBar(tool, Rect(rect.x, bottom, rect.width, height)))
        return bars

    @property
    def bars_height(self) -> float:
        """Height of all bars at the lower edge, in pixels."""
        points = sum(tool.bar_height() for tool in self._with_bar)
        return points * self._view.host.scale

    def above_bars(self, rect: Rect) -> Rect:
        """Return the part of a picture in `rect` that is above the bars.

        On a phone it ends above the time strip, which lies over the picture.
        """
        host = self._view.host
        covered_height = self.bars_height
        if host.around == "phone":
            covered_height += theme.PHONE_TIME_HEIGHT * host.scale
        return replace(rect, height=max(rect.height - round(covered_height), 1))

    def covered(self, rect: Rect) -> list[Rect]:
        """Return the rectangles of all bars and windows over a picture in `rect`."""
        covered = [bar.rect for bar in self.bars(rect, self._view.host.scale)]
        for tool in self._covering:
            covered += tool.covered(rect)
        return covered

    def visit(self) -> Visit | None:
        """Return what a phone shows in place of all else; None as a rule."""
        for tool in self.values():
            visit = tool.visit()
            if visit is not None:
                return visit
        return None

    def lanes(self) -> list[Lane]:
        """Return the lanes of all tools, from above."""
        lanes = [tool.lane() for tool in self.values()]
        return [lane for lane in lanes if lane is not None]

    def sections(self) -> list[Section]:
        """Return the sections of all tools, in the order of the panel."""
        sections: list[Section] = []
        for tool in self.values():
            sections += tool.sections()
        return in_order(sections)

    def details(self) -> list[str]:
        """Return the phrases of all tools for the status line."""
        phrases: list[str] = []
        for tool in self.values():
            phrases += tool.details()
        return phrases

    def key_helps(self) -> list[KeyHelp]:
        """Return the help texts of the tools that can be used with the scene."""
        helps: list[KeyHelp] = []
        for tool in self.values():
            if tool.is_useful:
                helps += tool.keys
        return helps

    def close(self) -> None:
        """Close all tools. Idempotent."""
        for tool in self.values():
            tool.close()


def _overriding_tools(method: Callable[..., Any], tools: Sequence[Tool]) -> list[Tool]:
    """Return the tools that override a method of `Tool`."""
    name = method.__name__
    return [tool for tool in tools if getattr(type(tool), name) is not method]


def _escape_layer(tool: Tool) -> int:
    return tool.escape_layer


def in_order(sections: Sequence[Section]) -> list[Section]:
    """Return sections in the order in which the panel shows them."""

    def position(section: Section) -> int:
        title = section.title.rstrip("0123456789 ")
        if title in _SECTIONS:
            return _SECTIONS.index(title)
        return len(_SECTIONS)

    return sorted(sections, key=position)
