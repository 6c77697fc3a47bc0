"""The base of views of scenes: the camera, the tools and the path that each of them has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar

from splatview_viewer.core.host import Host
from splatview_viewer.core.view import View
from splatview_viewer.scene_view.camera_rig import CameraRig
from splatview_viewer.scene_view.own_frame import has_own_frame, place_from
from splatview_viewer.scene_view.path import PathTool
from splatview_viewer.scene_view.tool import ToolSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import moderngl

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.handed import HandedPlace
    from splatview_viewer.core.lane import Lane
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.settings import Color
    from splatview_viewer.core.undoable import Undoable
    from splatview_viewer.core.view import KeyHelp, Visit
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.scene_view.protocol import SceneData, TrainedState
    from splatview_viewer.scene_view.state import CameraPlace

DataT = TypeVar("DataT", bound="SceneData")
StateT = TypeVar("StateT", bound="TrainedState")


class SceneViewBase(View[DataT, StateT]):
    """A view of a scene, as `scene_view.protocol.TrainedView` says.

    To fill: `draw`, `take`, `background`, `is_moving`, `mark_moving`, `lay_picture`,
    `pick_later` and the view's `tools`. The state is a dataclass with `place` and
    `background`.
    """

    tools: ToolSet
    shows_scene = True

    def __init__(self, data: DataT, state: StateT) -> None:
        super().__init__(data, state)
        self._must_draw = False
        self.rig = CameraRig(self)
        self.path = PathTool(self)

    def change(self, **fields: Any) -> None:
        """Change fields of the state."""
        state: Any = self.state
        self.state = replace(state, **fields)

    def redraw(self) -> None:
        """Draw the picture again: what lies over it has changed."""
        self._must_draw = True
        self.host.wake()

    @property
    def background(self) -> Color:
        """RGB behind the scene."""
        raise NotImplementedError

    @property
    def is_moving(self) -> bool:
        """True if the camera was moved just now."""
        raise NotImplementedError

    def mark_moving(self) -> None:
        """Prefer a smooth picture to a sharp one for now."""
        raise NotImplementedError

    @property
    def is_handed(self) -> bool:
        """True while a screen draws the picture by itself."""
        return False

    def lay_picture(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw the picture that was drawn last once more, into another framebuffer."""
        raise NotImplementedError

    def pick_later(
        self, camera: Camera, x: float, y: float
    ) -> Callable[[], Any | None]:
        """Start to find what lies under a pixel, as `SceneView.pick_later`."""
        raise NotImplementedError

    def undoable_state(self) -> StateT | None:
        if self.state.place.framed:
            return self.state
        return None

    def restore(self, state: StateT) -> None:
        self.rig.motion.interrupt()
        self.rig.motion.flying.let_go()
        self.state = state
        self.mark_moving()

    def undoable_parts(self) -> Sequence[Undoable]:
        return (self.path,)

    # -- exact pictures ------------------------------------------------------------

    def bare_copy(self) -> Self:
        """Return another view in the same state, without tools, for exact pictures."""
        copy = type(self)(self.data, self.state)
        copy.draw_exactly()
        return copy

    def draw_exactly(self) -> None:
        """Draw exact pictures of the scene from now on, without tools."""
        self.host = Host(exact="scene")
        self.tools.close()
        self.tools = ToolSet(self, [])

    def trained_copy(self) -> Self:
        """Return another view that draws the scene as it was trained, without tools."""
        state: Any = self.state
        copy = self.bare_copy()
        copy.state = type(state)(background=state.background)
        return copy

    # -- the tools -----------------------------------------------------------------

    def work(self) -> bool:
        return self.path.film_maker.advance()

    def handle(self, event: Event, rect: Rect) -> bool:
        self.rig.rect = rect
        return self.tools.handle(event, rect)

    def take_place(self, place: HandedPlace) -> bool:
        if self.data.summary is None:
            return False
        self.rig.take_place(place)
        return True

    def dropped(self, file: Path) -> bool:
        return self.path.storage.take_file(file)

    def visit(self) -> Visit | None:
        return self.tools.visit()

    def lanes(self) -> Sequence[Lane]:
        return self.tools.lanes()

    @property
    def keys(self) -> Sequence[KeyHelp]:  # type: ignore[override]
        return self.tools.key_helps()

    # -- beside other scenes -------------------------------------------------------

    def place_from(self, leader: Any) -> CameraPlace:
        return place_from(self, leader)

    def has_own_frame(self, leader: Any) -> bool:
        return has_own_frame(self, leader)
