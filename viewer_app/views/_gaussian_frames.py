"""From a frame of a Gaussian stream to the scene that renderers take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from viewer_app.cameras import frame_points
from viewer_app.errors import ViewerError
from viewer_app.scene import SH_C0, GaussianScene
from viewer_app.views.base import meta_phrases

if TYPE_CHECKING:
    from ipc import Frame
    from viewer_app.cameras import Camera
    from viewer_app.state import Color

_MEANT = ("color", "activated", "sh_degree", "antialiased")
"""Metadata that steers the drawing."""


def scene_of(frame: Frame) -> GaussianScene:
    """A float32 copy of everything in the frame. Ask `frame.intact()` afterwards: until then it may be torn."""
    tensors = {name: t.to_float32() for name, t in frame.tensors.items()}
    meta = frame.meta
    n = len(tensors["means"])
    color = meta.get("color")
    if color == "sh":
        sh0 = tensors["sh0"]
        shN = tensors.get("shN")
    elif color in ("rgb", "rgb_logit"):
        rgb = tensors["rgb"]
        if color == "rgb_logit":
            with np.errstate(over="ignore"):
                rgb = 1.0 / (1.0 + np.exp(-rgb))
        sh0, shN = (rgb - 0.5) / np.float32(SH_C0), None
    else:
        raise ViewerError(f"gaussians: color is {color!r}, not 'sh', 'rgb' or 'rgb_logit'")
    return GaussianScene(
        tensors["means"], tensors["quats"], tensors["scales"], tensors["opacities"], sh0,
        np.empty((n, 0, 3), np.float32) if shN is None else shN,
        activated=bool(meta.get("activated")),
        sh_degree=int(meta.get("sh_degree", 0)) if color == "sh" else 0,
        antialiased=bool(meta.get("antialiased")),
        version=frame.version,
        notes=tuple(meta_phrases(meta, _MEANT)),
    )


def background_of(frame: Frame) -> Color | None:
    """The background colour that travels with a stream."""
    tensor = frame.tensors.get("background")
    if tensor is None:
        return None
    values = np.nan_to_num(tensor.to_float32()).clip(0, 1)
    return float(values[0]), float(values[1]), float(values[2])


def visible_weights(scene: GaussianScene) -> np.ndarray | None:
    """(N,) opacities, 0 for what can hardly be seen; None when nothing can."""
    opacities = scene.opacities
    if not scene.activated:
        with np.errstate(over="ignore", invalid="ignore"):
            opacities = 1.0 / (1.0 + np.exp(-opacities))
    weights = np.where(opacities > 0.05, opacities, 0.0)  # NaN counts as invisible
    return weights if weights.any() else None


def first_sight(scene: GaussianScene, width: int, height: int, up: Any) -> Camera:
    """The camera from which a scene is seen whole, in the middle of the picture.

    Starts from `frame_points`, whose direction it keeps, and corrects it by where the visible Gaussians come to
    lie in the picture. Floaters, the outer hundredth on each side, do not count, and it never moves far.
    """
    weights = visible_weights(scene)
    camera = frame_points(scene.means, width, height, weights=weights, up=up)
    means = scene.means if weights is None else scene.means[weights > 0]
    means = means[np.isfinite(means).all(axis=1)]
    means = means[:: max(len(means) // 50_000, 1)].astype(np.float64)
    focal, viewmat = camera.K[0, 0], camera.viewmat
    for _ in range(2):  # the correction is exact for a flat scene; the second turn takes in depth
        p = means @ viewmat[:3, :3].T + viewmat[:3, 3]
        p = p[p[:, 2] > camera.near]
        if len(p) < 2:
            break
        distance = float(np.median(p[:, 2]))
        low, high = np.percentile(p[:, :2] / p[:, 2:], (1, 99), axis=0)
        room = np.array([width, height]) / focal * 0.84
        nearer = float(np.clip(((high - low) / room).max(), 0.7, 1.6))
        shift = np.array([*((low + high) / 2 * distance), distance * (1 - nearer)])
        viewmat = viewmat.copy()
        viewmat[:3, 3] -= shift
    return replace(camera, viewmat=viewmat)
