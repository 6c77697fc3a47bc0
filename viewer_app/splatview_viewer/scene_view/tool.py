"""The protocol of a tool: one thing that a user can do with a scene, in a file of its own.

A view offers events to its tools one after the other; the first that takes one keeps it from the rest. A tool's changes
of the picture are in the view's state, or drawn over it; the tools of two users know nothing of each other.
`tests/viewer/gaussians/test_inspect.py` runs one conformance suite over all of them.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from imgui_bundle import ImVec2, ImVec4, imgui

from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.render.picking import pick_later
from splatview_viewer.ui import theme

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import moderngl
    import numpy as np
    from imgui_bundle import ImVec2Like

    from splatview_viewer.core.events import Event
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import KeyHelp, Section
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.scene.scene import GaussianScene

_FAR = 1e5
"""Pixels beyond which nothing is drawn."""
_PERIOD = 0.5
"""Seconds between two versions of a live scene that are read for a tool."""
_SHARE = 0.05
"""Share of the loop's time that may go into having the scene."""
_SECTIONS = (
    "",
    "Scenes",
    "Camera",
    "Filter",
    "Crop",
    "Inspect",
    "Training cameras",
    "Compare",
    "Path",
)
"""Titles of the parts of the panel, from above, the view's own controls first; others come last."""


class Tool:
    """Does nothing: each tool says what it does."""

    name: ClassVar[str]
    """Its key in `GaussianView.tools`."""
    keys: ClassVar[Sequence[KeyHelp]] = ()
    """The effects of its keys and the pointer."""

    def __init__(self, view: GaussianView) -> None:
        self.view = view

    @property
    def at_hand(self) -> bool:
        """True if the scene has something for it: its keys are listed then."""
        return True

    def handle(self, event: Event, rect: Rect) -> bool | None:
        """Take a user's event over the picture in `rect`. None: it is not for this tool; otherwise whether the picture
        has to be drawn again.
        """
        return None

    def tick(self, now: float) -> bool:
        """Advance to `now`, in each turn of the loop (`time.monotonic()`); True when the picture has to be drawn again.
        Quick when there is nothing to do.
        """
        return False

    def draw(self, framebuffer: moderngl.Framebuffer, rect: Rect) -> None:
        """Draw with OpenGL over the picture in `rect`, for screenshots as well."""

    def over(self, rect: Rect, scale: float) -> bool:
        """Draw with imgui over the picture: lines, words, windows. True when a picture has to follow."""
        return False

    def covered(self, rect: Rect) -> Sequence[Rect]:
        """Return the places of its imgui windows over the picture."""
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
        """Return its part of the status line, in short phrases."""
        return ()

    def close(self) -> None:
        """Give back everything. Idempotent."""


def in_order(sections: Sequence[Section]) -> list[Section]:
    """As they lie in the panel."""
    return sorted(
        sections,
        key=lambda s: (
            _SECTIONS.index(s.title) if s.title in _SECTIONS else len(_SECTIONS)
        ),
    )


def draw_line(
    points: np.ndarray,
    rect: Rect,
    scale: float,
    color: ImVec4,
    alpha: float = 1.0,
    *,
    closed: bool = False,
) -> None:
    """Draw a line (M, 2), pixels from the picture's corner, with a dark seam over the picture in `rect`."""
    draw = imgui.get_background_draw_list()
    flags = imgui.ImDrawFlags_.closed.value if closed else 0
    draw.push_clip_rect(
        ImVec2(rect.x, rect.y), ImVec2(rect.x + rect.width, rect.y + rect.height), True
    )
    corners: list[ImVec2Like] = [
        ImVec2(x + rect.x, y + rect.y) for x, y in points.clip(-_FAR, _FAR).tolist()
    ]
    draw.add_polyline(corners, theme.u32(theme.SHADE, 0.55 * alpha), 3.5 * scale, flags)
    draw.add_polyline(corners, theme.u32(color, alpha), 1.5 * scale, flags)
    draw.pop_clip_rect()


class Question:
    """Something of a scene that one job computes; a later one takes the place of one that has not ended."""

    def __init__(self, view: GaussianView, name: str) -> None:
        self._view = view
        self._jobs = Jobs(name, lambda: view.host.wake())
        self._job: Job[Any] | None = None

    def take(self) -> Any:
        """The answer, once; None while there is none, or where the memory for it was missing."""
        job = self._job
        if job is None or not job.done:
            return None
        self._job = None
        return None if isinstance(job.error, MemoryError) else job.result()

    def forget(self) -> None:
        """Drop what is computed."""
        self._jobs.close()
        self._job = None


class SceneReader(Question):
    """Computes something of a scene once for each version, as long as that takes little of the loop's time. Answers
    are pairs of the key and the result.
    """

    _of: tuple[int, object] | None = None
    """The scene (`SceneCache.loads`) and the key of what was computed last, or is being computed."""
    _next = -math.inf
    """Time from which another version is read."""

    def read(
        self,
        now: float,
        key: object,
        ask: Callable[[GaussianScene], Callable[[], Any] | None],
    ) -> None:
        """Have what `ask` returns computed, unless the key and the scene are still the same, or another version of it
        is too early. `ask` begins to read the scene, which may change afterwards.
        """
        of = self._view.data.loads, key
        if (
            self._jobs.busy
            or of == self._of
            or (self._of is not None and key == self._of[1] and now < self._next)
        ):
            return
        self._of = of
        begin = time.perf_counter()
        with suppress(RendererError):  # the picture says so
            tell = ask(self._view.data.renderer.scene())
            if tell is not None:
                self._job = self._jobs.submit(lambda _: (key, tell()))
        self._next = now + max(_PERIOD, (time.perf_counter() - begin) / _SHARE)

    def forget(self) -> None:
        """Drop what is computed; the next `read` is due at once."""
        super().forget()
        self._of = None


class Picker(Question):
    """Finds the Gaussian under a pixel. Answers are lists of one hit, or none where nothing lies there."""

    def ask(self, x: float, y: float, rect: Rect) -> None:
        """Look under a pixel of the framebuffer, where the picture fills `rect`."""
        view = self._view
        self.forget()
        camera = view.camera(rect)
        if camera is not None:
            tell = pick_later(
                view.data.renderer.scene(), camera, x - rect.x, y - rect.y, view.options
            )
            self._job = self._jobs.submit(
                lambda _: [hit] if (hit := tell()) is not None else []
            )
