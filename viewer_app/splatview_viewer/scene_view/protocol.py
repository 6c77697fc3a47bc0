"""The protocols that a view of a scene fulfils for the parts of this room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl
    import numpy as np

    from splatview_viewer.core.host import Host
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.selection import Selection
    from splatview_viewer.core.settings import Color
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.scene_view.camera_rig import CameraRig
    from splatview_viewer.scene_view.sample import SceneSample
    from splatview_viewer.scene_view.state import CameraPlace, TrainingDisplay
    from splatview_viewer.scene_view.tool import ToolSet


class SceneSummary(Protocol):
    """Facts about a scene that is loaded."""

    @property
    def count(self) -> int:
        """Number of its points."""
        ...

    @property
    def up(self) -> tuple[float, float, float] | None:
        """Direction upward by the scene's file; None where it says nothing."""
        ...

    @property
    def customary_ups(self) -> tuple[tuple[float, float, float], ...]:
        """Directions upward of most files of this kind, the most usual first."""
        ...


class SceneData(Protocol):
    """The data that all views of one scene share (`View.data`)."""

    @property
    def ctx(self) -> moderngl.Context: ...

    @property
    def work(self) -> GpuWork: ...

    @property
    def summary(self) -> SceneSummary | None:
        """Facts about the loaded scene; None while there is none."""
        ...

    @property
    def sample(self) -> SceneSample | None:
        """A sample of the scene, perhaps of an earlier version."""
        ...

    def current_sample(self) -> SceneSample | None:
        """Return a sample of the loaded version; may wait for the GPU."""
        ...

    @property
    def loads(self) -> int:
        """Number of the loaded version: another number is another picture."""
        ...

    @property
    def stale(self) -> bool:
        """True while the loaded version was overwritten (`Wants.stale`)."""
        ...


class SceneState(Protocol):
    """The state of a view of a scene."""

    @property
    def place(self) -> CameraPlace: ...


class PickedPoint(Protocol):
    """A point of the scene under a pixel."""

    @property
    def point(self) -> np.ndarray:
        """World coordinates (3,)."""
        ...


class SceneView(Protocol):
    """A view of a scene, as the camera rig and the tools use it."""

    host: Host
    drawn_camera: Camera | None
    seen_camera: Camera | None
    has_lines: bool

    @property
    def data(self) -> SceneData: ...

    @property
    def state(self) -> SceneState: ...

    @property
    def rig(self) -> CameraRig:
        """The camera of the view."""
        ...

    @property
    def tools(self) -> ToolSet:
        """The tools of the view."""
        ...

    @property
    def background(self) -> Color:
        """RGB behind the scene."""
        ...

    @property
    def is_moving(self) -> bool:
        """True while the picture moves, so that a coarse one is enough."""
        ...

    def mark_moving(self) -> None:
        """Prefer a smooth picture to a sharp one for now."""
        ...

    def change(self, **fields: Any) -> None:
        """Change fields of the state."""
        ...

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw the picture into a part of a framebuffer."""
        ...

    def awaits_picture(self, rect: Rect) -> bool:
        """Request an exact picture; return whether it has not come, as `View`."""
        ...

    @property
    def fault_text(self) -> str:
        """Why its picture cannot be drawn now; "" where it can."""
        ...

    def pick_later(
        self, camera: Camera, x: float, y: float
    ) -> Callable[[], PickedPoint | None]:
        """Start to find what lies under a pixel of the picture.

        Returns:
            a function that finishes the search, in the thread that calls it; it
            returns None where nothing lies there.
        """
        ...

    def bare_copy(self) -> SceneView:
        """Return another view in the same state, without tools, for exact pictures."""
        ...

    def release(self, occasion: Any) -> None:
        """Release what the view holds, as `View.release`."""
        ...


class SelectableState(SceneState, Protocol):
    """The state of a view that draws a choice of the scene."""

    @property
    def selection(self) -> Selection: ...


class SelectableView(SceneView, Protocol):
    """A view that draws a choice of the scene, which `Crop` edits."""

    @property
    def state(self) -> SelectableState: ...

    def seen_points(self) -> np.ndarray:
        """Return the centres (N, 3) of all that is drawn, were nothing cropped.

        Raises RendererError while the scene cannot be read.
        """
        ...


class TrainedState(SceneState, Protocol):
    """The state of a view that shows the cameras of a training."""

    @property
    def training(self) -> TrainingDisplay: ...


class TrainedView(SceneView, Protocol):
    """A view of a scene that is trained with cameras, which `Frustums` shows."""

    @property
    def state(self) -> TrainedState: ...

    def trained_copy(self) -> SceneView:
        """Return another view that draws the scene as it was trained."""
        ...

    @property
    def is_handed(self) -> bool:
        """True while a screen draws the picture by itself.

        What tools draw lies over it then: colours times their alpha.
        """
        ...

    def lay_picture(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw the picture that was drawn last once more, into another framebuffer."""
        ...
