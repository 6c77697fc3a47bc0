"""Scenes that are handed on to screens which draw them by themselves.

What a hand does with the camera then costs nothing here. Of picture version that such a
screen takes, packed blocks are made (`blocks.versions`), once for all of them.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from splatview_viewer.blocks.packing import origin_of
from splatview_viewer.blocks.packing_request import (
    PackingTerms,
    SceneToPack,
    VersionFacts,
)
from splatview_viewer.blocks.versions import PackedVersions
from splatview_viewer.core.errors import RendererError
from splatview_viewer.core.handed import (
    HandedCamera,
    HandedDrawing,
    HandedLook,
    HandedOn,
    HandedPhoto,
    HandedPlace,
)
from splatview_viewer.kinds.gaussians.packing_pace import PackingPace
from splatview_viewer.kinds.gaussians.photo_files import PhotoFiles
from splatview_viewer.kinds.gaussians.state import SHOWS
from splatview_viewer.scene import color_maps
from splatview_viewer.scene_view.frustums import Frustums
from splatview_viewer.scene_view.navigate import Navigate
from splatview_viewer.scene_view.tool import ORBIT

if TYPE_CHECKING:
    from splatview_viewer.blocks.unpacking import SceneBlocks
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.selection import Selection
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.gaussians.cache import SceneCache
    from splatview_viewer.kinds.gaussians.view import GaussianView
    from splatview_viewer.scene.scene import GaussianScene

_LEAD_S = 0.1
"""Seconds before a packing may begin from which on new versions are taken for it: each
costs the trainer a little."""
_KEPT_S = 30.0
"""Seconds after a scene was handed on for which its copy in host memory is kept."""
_MOST_MARKED = 4096
"""Marked Gaussians that a screen is told of, one by one. It is one as a rule: those that
are chosen have dots in the interface instead."""


class Handing:
    """Hands one scene on, and has its versions packed."""

    def __init__(self, cache: SceneCache) -> None:
        self._versions: dict[Selection, PackedVersions] = {}
        """Those in use, by the Gaussians that they have."""
        self._photo_files = PhotoFiles()
        self._cache = cache
        self._kept_scene: GaussianScene | None = None
        """The newest version in host memory, which stays as it is."""
        self._blocks: SceneBlocks | None = None
        """The newest version in blocks, where it was read from them."""
        self._wanted_s = -math.inf
        """When the scene was handed on last; time of the loop."""
        self._pace = PackingPace(cache.work.governor)

    def take(self, scene: GaussianScene, blocks: SceneBlocks | None) -> None:
        """Take note of a new version, which the cache has loaded.

        blocks: the same version; None where it was not read from blocks.
        """
        self._kept_scene = None
        self._blocks = blocks
        if not scene.on_gpu and (self._is_wanted or blocks is not None):
            self._kept_scene = scene
        for versions in self._versions.values():
            versions.put(self._version_facts())

    def _version_facts(self) -> VersionFacts:
        """Return facts about the newest version."""
        summary = self._cache.summary
        sample = self._cache.sample
        assert summary is not None
        assert sample is not None
        if self._blocks is None:
            origin = origin_of(sample.means)
        else:
            origin = self._blocks.origin
        return VersionFacts(
            version_number=0,
            gaussians=summary.count,
            sh_degree=summary.drawn_sh_degree,
            antialiased=summary.antialiased,
            origin=origin,
        )

    @property
    def is_reading(self) -> bool:
        """True while the newest version has to stay as it is."""
        return any(versions.is_reading for versions in self._versions.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of all that is packed."""
        return sum(versions.held_bytes for versions in self._versions.values())

    @property
    def _is_wanted(self) -> bool:
        return self._cache.now - self._wanted_s < _KEPT_S

    def tick(self) -> None:
        """Have what was requested be packed."""
        if not self._is_wanted:
            self._free_scene()
            self._close_unread()
        now = self._cache.now
        for versions in self._versions.values():
            while versions.gpu_times:
                self._pace.count(versions.gpu_times.popleft())
            # A training at its side needs the GPU more.
            is_paced = self._kept_scene is None
            versions.terms = PackingTerms(
                self._pace.fresh_from(now),
                is_held=is_paced and not self._pace.may_begin(now + _LEAD_S),
            )
            if is_paced and not self._pace.may_begin(now, versions.awaits_first):
                continue
            is_begun = versions.start_requested(self._read, now)
            if is_begun and self._kept_scene is None:
                self._pace.note_begun(now)

    def _free_scene(self) -> None:
        """Forget the copy of the newest version, unless a recording holds it anyway."""
        if self._blocks is None:
            self._kept_scene = None

    def _close_unread(self) -> None:
        """Close packed versions that no screen draws any more."""
        for selection, versions in list(self._versions.items()):
            if not versions.has_readers:
                self._versions.pop(selection).close()

    def _versions_of(self, selection: Selection) -> PackedVersions:
        """Return the packed versions of some Gaussians; forget those of no use."""
        used = {picture.handed_selection for picture in self._cache.pictures}
        for selection_key in set(self._versions) - used - {selection}:
            self._versions.pop(selection_key).close()
        versions = self._versions.get(selection)
        if versions is None:
            versions = PackedVersions(selection)
            self._versions[selection] = versions
            versions.put(self._version_facts())
        return versions

    def _read(self) -> SceneToPack | None:
        """Return the newest version to be packed; None if it was overwritten."""
        cache = self._cache
        kept_scene = self._kept_scene
        if kept_scene is None:
            kept_scene = cache.renderer.unread_scene
        if kept_scene is not None:
            return SceneToPack(kept_scene, None, self._blocks)
        if cache.is_being_replaced:
            return None
        try:
            scene = cache.renderer.scene()
        except RendererError:
            # The picture shows what is wrong with the renderer.
            return None
        ready = None
        if scene.on_gpu:
            import torch

            ready = torch.cuda.current_stream(scene.gpu).record_event()
        if not cache.finish_reading():
            return None
        return SceneToPack(scene, ready)

    def hand_on(self, view: GaussianView, rect: Rect) -> HandedOn:
        """Hand on what a view shows in a rectangle, and draw it no longer."""
        cache = self._cache
        picture = view.picture
        picture.handed_to = None
        view.rig.rect = rect
        reason = obstacle_to_handing(view)
        if reason or cache.summary is None:
            return HandedOn(reason=reason)
        # The orbit takes the place of a view that is followed, before anything else.
        _ = view.rig.orbit
        camera = view.rig.camera_of_scene(rect)
        drawing = _drawing_of(view, camera, rect)
        if drawing is None:
            return HandedOn(reason="This camera is mirrored or skewed.")
        self._wanted_s = cache.now
        if not picture.is_empty or cache.stepped.is_drawing:
            cache.drop(picture)
        picture.scale = 1.0
        picture.handed_to = camera
        picture.handed_selection = view.state.selection.unmarked
        versions = self._versions_of(picture.handed_selection)
        view.drawn_camera = camera
        view.tools.note_picture()
        cameras = [picture.handed_to for picture in cache.pictures]
        versions.watch_from([camera for camera in cameras if camera is not None])
        handed = HandedOn(drawing, versions, marked=view.state.selection.marked)
        return self._with_photo(handed, view, rect)

    def _with_photo(self, handed: HandedOn, view: GaussianView, rect: Rect) -> HandedOn:
        """Lay the photograph over a picture that is compared with one.

        Its file comes once it is made: the view is drawn again then.
        """
        on_screen = view.tools.of(Frustums).photo_on_screen(rect)
        if on_screen is None or handed.drawing is None:
            return handed
        size = (on_screen.rect.width, on_screen.rect.height)
        self._photo_files.reserve(len(self._cache.pictures))
        photo_file = self._photo_files.find(
            on_screen.photo, size, view.background, view.redraw
        )
        if photo_file is None:
            return handed
        handed_photo = HandedPhoto(
            number=photo_file.number,
            box=_box_of(on_screen.rect),
            clip=_box_of(on_screen.clip),
            opacity=on_screen.opacity,
        )
        drawing = msgspec.structs.replace(handed.drawing, photo=handed_photo)
        return handed._replace(drawing=drawing, photo=photo_file)

    def close(self) -> None:
        """Hand nothing on any more. Idempotent."""
        self._photo_files.close()
        self._free_scene()
        for versions in self._versions.values():
            versions.close()
        self._versions.clear()


def obstacle_to_handing(view: GaussianView) -> str:
    """Return why a view has to be drawn here; "" if it need not be."""
    state = view.state
    if len(state.selection.marked) > _MOST_MARKED:
        return f"More than {_MOST_MARKED:,} Gaussians are marked."
    if view.tools.of(Frustums).shows_errors:
        return "Errors are measured in a picture of the viewer's."
    return ""


def _range_by_hand(view: GaussianView) -> tuple[float, float] | None:
    """Return the numbers at both ends of the colour map, if the user has set them."""
    if view.state.show == "depth":
        return view.state.depth_range
    return view.state.overdraw_range


def _box_of(rect: Rect) -> tuple[int, int, int, int]:
    return rect.x, rect.y, rect.width, rect.height


def _drawing_of(view: GaussianView, camera: Camera, rect: Rect) -> HandedDrawing | None:
    """Return all that decides a picture; None where the camera is no rotation."""
    frustums = view.tools.of(Frustums)
    grips = [_box_of(grip) for grip in frustums.grips(rect)]
    # A camera of a file may be anything.
    with suppress(ValueError):
        return HandedDrawing(
            place=_handed_place(view, camera),
            camera=_exact_camera(view, frustums.camera_on_screen(camera, rect)),
            placed=0,
            look=_handed_look(view),
            navigates=view.tools.chosen == ORBIT and not frustums.takes_drags,
            looks_around=view.tools.of(Navigate).drag_looks,
            covered=(),
            grips=tuple(grips),
            speed=view.rig.motion.flying.speed,
        )
    return None


def _handed_place(view: GaussianView, camera: Camera) -> HandedPlace:
    """Return the place from which a hand would move on."""
    orbit = view.rig.orbit
    if view.state.place.seen_in is not None:
        orbit = orbit.copy()
        orbit.look_from(camera, orbit.target)
    fields = msgspec.to_builtins(orbit.place)
    return HandedPlace(**{**fields, "near": camera.near, "far": camera.far})


def _exact_camera(view: GaussianView, camera: Camera) -> HandedCamera | None:
    """Return the camera, unless it is that of the orbit."""
    place = view.state.place
    if place.exact_camera is None and place.seen_in is None:
        return None
    return HandedCamera(
        viewmat=tuple(camera.viewmat.ravel().tolist()),
        K=tuple(camera.K.ravel().tolist()),
        width=camera.width,
        height=camera.height,
        model=camera.model,
        near=camera.near,
        far=camera.far,
    )


def _handed_look(view: GaussianView) -> HandedLook:
    """Return how the Gaussians of a view are drawn."""
    state = view.state
    options = view.options
    look = HandedLook(
        paint=state.show,
        mode=options.mode,
        sh_degree=state.sh_degree,
        scale=state.scale,
        point_reach=options.point_reach,
        background=view.background,
        exact_background=view.exact_background,
    )
    if not SHOWS[state.show].is_mapped:
        return look
    table = color_maps.table(state.color_map)
    colors = tuple(table.ravel().tolist())
    return msgspec.structs.replace(look, map=colors, range=_range_by_hand(view))
