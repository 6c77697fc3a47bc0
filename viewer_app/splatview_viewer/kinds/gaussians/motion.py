"""Smooth motion: while the camera moves and the scene cannot be drawn for each picture on the screen, the last
picture of it is moved along by CUDA; a new one is drawn when the GPU's time allows, without being waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from imgui_bundle import imgui

from splatview_viewer.core.view import Section
from splatview_viewer.gpu.governor import scaled
from splatview_viewer.kinds.gaussians.tool import Tool
from splatview_viewer.render.base import RenderOptions
from splatview_viewer.ui import widgets as ui

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.gaussians.view import GaussianView

_SHOWS = "color", "alpha", "normals", "ellipsoids", "rings", "points"
"""Pictures that can be moved: of things that are somewhere."""
_AT_ONCE = 10.0
"""Milliseconds up to which a scene is drawn for each picture where no other process needs the GPU."""
_FAR = 0.7
"""Cosine of the turn from which on a picture shows too little of what is seen now."""
_KEPT = 10.0
"""Seconds without motion after which its memory is given back."""


class Motion(Tool):
    """Decides what is shown while the camera moves."""

    name: ClassVar[str] = "motion"

    def __init__(self, view: GaussianView) -> None:
        super().__init__(view)
        self._towards: Camera | None = None
        self._used_at = -_KEPT
        self._used = False

    # -- pictures ----------------------------------------------------------------------------------------------

    def render(self, camera: Camera, options: RenderOptions) -> bool:
        """Return whether the view's picture, as it is or moved to `camera`, is what to show now; a new one is begun if
        that may be. False: draw the scene, and show nothing else."""
        view = self.view
        content, picture = view.content, view.picture
        self._towards, wanted = None, (camera.key, options, content.loads)
        if not self._applies(camera, options):
            if content.begun is not None and content.begun.of == wanted:
                content.land(wait=True)
            return False
        content.land()
        size = camera.width, camera.height
        if picture.of != wanted and not content.awaited and (scale := self._next_scale(size)) is not None:
            view.scale = scale
            drawn = camera if scale == 1.0 else camera.resized(*scaled(size, scale))
            picture.render_later(drawn, options, (drawn.key, options, content.loads))
        if picture.of != wanted:
            self._towards = camera
        else:
            view.scale = 1.0
        return picture.source is not None

    def _next_scale(self, size: tuple[int, int]) -> float | None:
        """The resolution of the next picture of the scene, to be shown at this size; None while it may not begin, as
        another one is being drawn, or its cost is being saved up."""
        content, governor = self.view.content, self.view.work.governor
        scale, ms = governor.scale_later("scene", size)
        if content.renderer.pending:  # it is read in one go with the picture
            ms += governor.cost(("load",)) or 0.0
        return scale if governor.has_saved(ms) and content.begun is None else None

    def _applies(self, camera: Camera, options: RenderOptions) -> bool:
        view = self.view
        picture, s = view.picture, view.settings
        moves = view.moving or view.content.awaited  # what was moved stays there until a true picture can be had
        if not (s.reproject and moves and s.show in _SHOWS) or view.host.exact:
            return False
        if picture.kept is None or picture.seen is None:
            return False
        before = picture.of[1]
        if not isinstance(before, RenderOptions) or (before.paint, before.depth) != (options.paint, options.depth):
            return False  # it shows another sort of thing
        seen = picture.seen
        turn = float(np.trace(seen.viewmat[:3, :3].T @ camera.viewmat[:3, :3]))
        if seen.model != camera.model or turn < 1 + 2 * _FAR:
            return False
        size = camera.width, camera.height
        governor, warp = view.work.governor, picture.warp_work(size)
        if governor.limited:
            return governor.moves_along("scene", size, warp)
        return (governor.cost(("scene", *size)) or 0.0) > max(_AT_ONCE, 2 * (governor.cost(warp) or 0.0))

    @property
    def towards(self) -> tuple[Camera, float] | None:
        """The camera that the picture is moved to, and how far away the scene is on the whole; None: it is shown as it
        is."""
        return None if self._towards is None else (self._towards, self.view.orbit.distance)

    def tick(self, now: float) -> bool:
        view, picture = self.view, self.view.picture
        landed, picture.landed = picture.landed, False
        if self._towards is None:
            if self._used and now - self._used_at > _KEPT and not view.moving:
                self._used = False
                picture.forget_motion()
            return landed
        self._used, self._used_at = True, now
        size = self._towards.width, self._towards.height
        return landed or not view.moving or self._next_scale(size) is not None

    # -- the panel ---------------------------------------------------------------------------------------------

    def sections(self) -> Sequence[Section]:
        if not self.view.cuda:  # OpenGL draws as ever
            return ()
        return [Section("Motion", self._panel, tip="What is seen while the camera moves")]

    def _panel(self) -> bool:
        s, before = self.view.settings, self.view.settings.reproject
        s.reproject = ui.check("Smooth", before)
        imgui.set_item_tooltip("While the camera moves and the GPU has no time for a new picture, the last one is "
                               "moved along. Once the camera rests, and in screenshots, the scene itself is drawn.")
        return s.reproject != before
