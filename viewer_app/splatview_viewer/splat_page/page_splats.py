"""The scripts by which a page draws Gaussians on the reader's GPU.

They are the files of splats/ and one more, shaders.js, that is made here: the
OpenGL renderer's shaders, and the numbers that it gives them.
"""

from __future__ import annotations

import json
from importlib import resources

from splatview_viewer.geometry.cameras import FAR, MODELS, NEAR
from splatview_viewer.render import number_range
from splatview_viewer.render.base import (
    AMBIENT,
    BODY_SIGMAS,
    COVARIANCE_MAX,
    EPS_2D,
    LIGHT,
    MARK_COLOR,
    RING_INSIDE,
    RING_PX,
    TRANSMITTANCE_MIN,
    RenderOptions,
)
from splatview_viewer.render.gl import quads
from splatview_viewer.render.gl.shader_text import ES, SHADERS
from splatview_viewer.render.paints import PAINTS
from splatview_viewer.render.pair_compositor import PAIR_MODES
from splatview_viewer.scene import color_maps

_FILES = (
    "fullscreen.vert",
    "splat.vert",
    "read_blocks.glsl",
    "project.frag",
    "splat.frag",
    "mark.frag",
    "tiles.frag",
    "show.frag",
    "pair.frag",
)


def splat_scripts() -> dict[str, str]:
    """Return the texts of all modules by their names, such as "draw.js"."""
    folder = resources.files("splatview_viewer.splat_page") / "splats"
    scripts = {"shaders.js": shaders_module()}
    for file in folder.iterdir():
        if file.name.endswith(".js"):
            scripts[file.name] = file.read_text(encoding="utf-8")
    return scripts


def shaders_module() -> str:
    """Return the module of shaders and numbers."""
    shaders = {name: (SHADERS / name).read_text(encoding="utf-8") for name in _FILES}
    lines = [
        f"export const VERSION = {json.dumps(ES)};",
        f"export const SHADERS = {json.dumps(shaders)};",
        f"export const PAINTS = {json.dumps(_paints())};",
        f"export const FACTS = {json.dumps(_facts())};",
    ]
    return "\n".join(lines)


def _paints() -> dict[str, object]:
    """Return what the page has to know of each paint."""
    paints: dict[str, object] = {}
    for name, paint in PAINTS.items():
        paints[name] = {
            "projection_defines": paint.projection_defines,
            "compositing_defines": paint.compositing_defines,
            "composition": paint.composition,
            "is_mapped": paint.is_mapped,
        }
    return paints


def _facts() -> dict[str, object]:
    """Return the numbers that the OpenGL renderer has, those of shaders by their names."""
    return {
        "near": NEAR,
        "far": FAR,
        "models": MODELS,
        "pair_modes": PAIR_MODES,
        "max_batches": quads.MAX_BATCHES,
        "pixels_per_gaussian": quads.PIXELS_PER_GAUSSIAN,
        "transmittance_min": TRANSMITTANCE_MIN,
        "point_reach": RenderOptions().point_reach,
        "range": {
            "shares": number_range.SHARES,
            "seen_alpha": number_range.SEEN_ALPHA,
            "period_ms": number_range.PERIOD_S * 1000,
            "sample": number_range.SAMPLE,
        },
        "map": color_maps.table("turbo").ravel().tolist(),
        "uniforms": {
            "eps_2d": EPS_2D,
            "covariance_max": COVARIANCE_MAX,
            "mark_color": MARK_COLOR,
            "small": quads.SMALL,
            "body_sigmas": BODY_SIGMAS,
            "ring_px": RING_PX,
            "ring_inside": RING_INSIDE,
            "light": LIGHT,
            "ambient": AMBIENT,
        },
    }
