"""A view's scene as a page that is one file: where it begins, its path, a first picture."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

from splatview_viewer.formats.camera_paths import Film
from splatview_viewer.formats.writers import SceneWriter, chosen, write_bytes
from splatview_viewer.geometry.orbit import Orbit
from splatview_viewer.geometry.path import CameraPath, Keyframe
from splatview_viewer.scene_view.film import Camerawork
from splatview_viewer.splat_page.scene_html import scene_html

if TYPE_CHECKING:
    from pathlib import Path

    from splatview_viewer.formats.common import Progress
    from splatview_viewer.formats.writers import WrittenScene
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.kinds.gaussians.view import GaussianView

PAGE_SUFFIX = ".html"
_POSTER_SIZE = (960, 540)
"""Pixels of the picture that a page shows until it has drawn its own."""
_POSTER_QUALITY = 60


def page_writer(view: GaussianView, camera: Camera, film: Film | None) -> SceneWriter:
    """Return what writes the scene of a view as a page, from any thread.

    Args:
        view: shows the scene, which is loaded.
        camera: the camera that the page begins with.
        film: the camera path that the page plays; None, or one of a single place: none.
    """
    sample = view.data.sample
    assert sample is not None
    orbit = Orbit(up=view.rig.up_axis.direction)
    pivot = sample.middle if view.rig.is_fixed else view.rig.orbit.target
    orbit.look_from(camera, pivot)
    place = orbit.place
    if film is not None:
        # The user may edit it meanwhile.
        film = replace(film, path=replace(film.path, keys=[*film.path.keys]))
    background = view.state.background or view.data.background
    poster = _poster(view, camera, orbit.distance)

    def write(
        written: WrittenScene, path: Path, numbered: bool, progress: Progress
    ) -> tuple[Path, int]:
        scene = replace(chosen(written), antialiased=written.antialiased)
        content = scene_html(
            scene,
            camera=place,
            path=film,
            background=background,
            title=path.stem,
            poster=poster,
            progress=progress,
        )
        return write_bytes(content, path, numbered), len(scene)

    return SceneWriter(PAGE_SUFFIX, "a page that shows it", write)


def _poster(view: GaussianView, camera: Camera, distance: float) -> bytes | None:
    """Return what a camera sees, as a WebP; None while it is not there yet."""
    from PIL import Image

    path = CameraPath([Keyframe.of(camera, distance)], model=camera.model)
    camerawork = Camerawork(view.data.ctx, view, *_POSTER_SIZE)
    try:
        pixels = camerawork.picture(Film(path), 0.0)
    finally:
        camerawork.close()
    if pixels is None:
        return None
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "WEBP", quality=_POSTER_QUALITY)
    return content.getvalue()
