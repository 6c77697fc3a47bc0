"""The protocol of a tool: one thing that a user can do with a scene, in a file of its own.

A view asks its tools one after the other: whoever takes an event keeps it from the rest. What a tool changes of the
picture stands in the view's settings or is drawn over it; the tools of two users know nothing of each other.
`tests/viewer/gaussians/test_inspect.py` runs one conformance suite over all of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.view import KeyHelp, Section
    from splatview_viewer.formats.nerfstudio import Film
    from splatview_viewer.geometry.controls import Rect
    from splatview_viewer.kinds.gaussians.view import GaussianView

_TOOLS: dict[str, str] = {
    "look": "Look", "frustums": "Frustums", "crop": "Crop", "inspect": "Inspect", "filter": "Filter",
    "history": "History", "path": "PathTool", "navigate": "Navigate", "motion": "Motion",
}
"""The module of each tool and its class, in the order in which events are offered to them."""

_SECTIONS = "Scenes", "Shards", "Camera", "Filter", "Crop", "Inspect", "Training cameras", "Compare", "Path"
"""Titles of the parts of the panel, from above, whoever takes events first; others come last."""


class Tool:
    """Does nothing: each tool says what it does."""

    name: ClassVar[str]
    """Its key in `GaussianView.tools`."""
    keys: ClassVar[Sequence[KeyHelp]] = ()
    """What its keys and the pointer do."""

    def __init__(self, view: GaussianView) -> None:
        self.view = view

    @property
    def at_hand(self) -> bool:
        """Whether there is something here that it is for: its keys are told then."""
        return True

    def handle(self, event: Event, rect: Rect) -> bool | None:
        """Take a user's event over the picture in `rect`. None: it is not for this tool; otherwise whether the picture
        has to be drawn again."""
        return None

    def dropped(self, file: Path, film: Film | None = None) -> bool:
        """A file was dropped over the picture. True: it was for this tool. `film`: the camera path in it, if
        it was read already."""
        return False

    def tick(self, now: float) -> bool:
        """What time brings, in each turn of the loop (`time.monotonic()`); True when the picture has to be drawn again.
        Quick when there is nothing to do."""
        return False

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw with OpenGL over the picture in `rect`, for screenshots as well."""

    def over(self, rect: Rect, scale: float) -> bool:
        """Draw with imgui over the picture: lines, words, windows. True when a picture has to follow."""
        return False

    def boards(self, rect: Rect) -> Sequence[Rect]:
        """Where its imgui windows lie over the picture."""
        return ()

    def bar_height(self) -> float:
        """Points that it takes at the lower edge of the picture, for a timeline; 0: none."""
        return 0.0

    def bar(self, rect: Rect, scale: float) -> bool:
        """Draw there with imgui, in `rect`, which is so high. True when a picture has to follow."""
        return False

    def sections(self) -> Sequence[Section]:
        """Its parts of the panel."""
        return ()

    def details(self) -> Sequence[str]:
        """What the status line says of it, in short phrases."""
        return ()

    def like(self, other: Tool) -> None:
        """Show what the same tool of another user's view shows."""

    def close(self) -> None:
        """Give back everything. Idempotent."""


def make_tools(view: GaussianView) -> dict[str, Tool]:
    """One of each, by name."""
    made = [getattr(import_module(f"splatview_viewer.kinds.gaussians.{module}"), cls)(view)
            for module, cls in _TOOLS.items()]
    return {tool.name: tool for tool in made}


def in_order(sections: Sequence[Section]) -> list[Section]:
    """As they lie in the panel."""
    return sorted(sections, key=lambda s: _SECTIONS.index(s.title) if s.title in _SECTIONS else len(_SECTIONS))
