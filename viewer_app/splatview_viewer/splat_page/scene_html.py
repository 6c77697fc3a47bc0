"""A scene as one HTML file that opens from a disk, without a server or a network.

It holds the scene in packed blocks, the scripts by which a page draws them, and a camera
path where there is one. Its own policy lets it load nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from dataclasses import asdict, replace
from importlib import resources
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.blocks.packing import BlockedScene
from splatview_viewer.core.quantities import count_text
from splatview_viewer.formats.common import silent
from splatview_viewer.geometry import rotations
from splatview_viewer.geometry.cameras import field_of_view
from splatview_viewer.splat_page.one_script import one_script
from splatview_viewer.splat_page.page_scripts import script_to_serve
from splatview_viewer.splat_page.page_splats import splat_scripts
from splatview_viewer.splat_page.scene_pieces import pieces_of, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from splatview_viewer.formats.camera_paths import Film
    from splatview_viewer.formats.common import Progress
    from splatview_viewer.geometry.orbit import OrbitPlace
    from splatview_viewer.geometry.path import CameraPath
    from splatview_viewer.scene.scene import GaussianScene
    from splatview_viewer.splat_page.scene_pieces import CompressedBlocks

_PLACES_PER_S = 30
"""Places of a camera path that are written for each second; the page goes on between."""
_MAX_PLACES = 3600
"""Places of a path at most: longer ones have fewer a second."""
_PICTURE_HEIGHT = 1000
"""Pixels of a picture whose size does not matter."""
_BLACK = (0.0, 0.0, 0.0)


def scene_html(
    scene: GaussianScene,
    *,
    camera: OrbitPlace,
    path: Film | None = None,
    background: tuple[float, float, float] | None = None,
    title: str = "Scene",
    poster: bytes | None = None,
    progress: Progress = silent,
) -> bytes:
    """Return a page that shows a scene, in the packed form of 16 bytes a Gaussian.

    Args:
        scene: the scene, on any device.
        camera: the place that the page begins at.
        path: a camera path for the page to play.
        background: RGB from 0 to 1; None for the scene's, or else black.
        title: the scene's name.
        poster: a WebP that is shown until the page has drawn; None: nothing is.
        progress: called with the present activity and how far it is, from 0 to 1.
    """
    blocked = BlockedScene.of(_without_unused(scene))
    total = blocked.block_count
    if blocked.coefficients:
        total *= 2
    pieces: list[CompressedBlocks] = []
    blocks_packed = 0
    for compressed in pieces_of(blocked):
        pieces.append(compressed)
        blocks_packed += compressed.block_count
        progress("packing", blocks_packed / total)
    values = {
        "version": _version(blocked),
        "pieces": [_piece_values(compressed) for compressed in pieces],
        "place": asdict(camera),
        "path": _path_values(path, blocked.origin),
        "background": background or scene.background or _BLACK,
    }
    texts = {
        "title": html.escape(title),
        "count": count_text(len(scene), "Gaussian"),
        "poster": _poster_element(poster),
    }
    return _page(texts, values, pieces)


def _without_unused(scene: GaussianScene) -> GaussianScene:
    """Return a scene without the harmonics beyond the degree that it uses."""
    used = (scene.sh_degree + 1) ** 2 - 1
    return replace(scene, shN=scene.shN[:, :used])


def _version(blocked: BlockedScene) -> dict[str, Any]:
    """Return what the page's `splats.begin` takes."""
    scene = blocked.scene
    return {
        "number": 1,
        "count": len(scene),
        "sh_degree": scene.sh_degree,
        "sh_stored": blocked.coefficients,
        "origin": blocked.origin,
        "antialiased": scene.antialiased,
    }


def _piece_values(compressed: CompressedBlocks) -> dict[str, Any]:
    """Return all of a compressed but its text."""
    return {
        "part": compressed.layer,
        "first": compressed.first_block,
        "count": compressed.block_count,
        "bytes": compressed.byte_count,
    }


def _path_values(film: Film | None, origin: Sequence[float]) -> dict[str, Any] | None:
    """Return a camera path as `scene_page/tour.js` takes it; None if nothing moves."""
    if film is None or film.path.duration <= 0:
        return None
    path = film.path
    steps = min(math.ceil(path.duration * _PLACES_PER_S), _MAX_PLACES)
    times = np.linspace(0, path.duration, steps + 1)
    poses = np.stack([_path_pose(path, seconds, origin) for seconds in times])
    return {
        "seconds": path.duration,
        "model": path.model,
        "count": len(poses),
        "places": text_of(poses.astype("<f4").tobytes()),
    }


def _path_pose(path: CameraPath, seconds: float, origin: Sequence[float]) -> np.ndarray:
    """Return position, quaternion and field of view at a time, (8,)."""
    camera = path.camera_at(seconds, _PICTURE_HEIGHT, _PICTURE_HEIGHT)
    fov = field_of_view(float(camera.K[1, 1]), _PICTURE_HEIGHT, path.model)
    position = camera.position - np.asarray(origin)
    return np.concatenate(
        [position, rotations.quaternion(camera.viewmat[:3, :3].T), [fov]]
    )


def _poster_element(poster: bytes | None) -> str:
    """Return the element of a picture; nothing for none."""
    if poster is None:
        return ""
    data = base64.b64encode(poster).decode()
    return f'<img id="poster" alt="" src="data:image/webp;base64,{data}">'


def _page(
    texts: dict[str, str], values: dict[str, Any], pieces: Sequence[CompressedBlocks]
) -> bytes:
    """Return the page of a scene that is packed.

    texts: what is put into page.html as it is, by its names there.
    """
    shared = resources.files("splatview_viewer.splat_page") / "shared"
    own_files = resources.files("splatview_viewer.splat_page") / "scene_page"
    scripts = splat_scripts()
    sorter = scripts.pop("sort_worker.js")
    modules = scripts | {
        "sorter.js": f"export const SORTER = {_json(sorter)};",
        "touch.js": (shared / "touch.js").read_text("utf-8"),
    }
    for name in ("page.js", "tour.js", "unpack.js"):
        modules[name] = (own_files / name).read_text("utf-8")
    script = script_to_serve(one_script(modules, "page.js"))
    style = (own_files / "page.css").read_text("utf-8")
    icon = (shared / "favicon.svg").read_bytes()
    piece_lines = [
        f'  <script type="text/plain">{compressed.text}</script>'
        for compressed in pieces
    ]
    text = Template((own_files / "page.html").read_text("utf-8")).substitute(
        texts,
        icon=base64.b64encode(icon).decode(),
        style=style,
        style_hash=_hash(style),
        script=script,
        script_hash=_hash(script),
        scene=_json(values),
        pieces="\n".join(piece_lines),
    )
    return text.encode()


def _json(value: Any) -> str:
    """Return a JSON text that cannot end a script."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _hash(text: str) -> str:
    """Return the hash by which a page's policy knows a script or a style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
