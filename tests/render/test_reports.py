"""Inputs that users of other programs reported, against pictures by an independent renderer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.renderer_cases import draw, psnr

from splatview.viewer_app.cameras import camera_from_json
from splatview.viewer_app.files import load_scene
from splatview.viewer_app.renderers.gl import GlRenderer

if TYPE_CHECKING:
    from pathlib import Path

    import moderngl

NAMES = "inf_opacity", "flat_scale", "degree4"


@pytest.mark.parametrize("compositor", ["quads", "tiles"])
@pytest.mark.parametrize("name", NAMES)
def test_a_reported_file_is_drawn_as_it_is_meant(data_dir: Path, ctx: moderngl.Context, name: str,
                                                 compositor: Any) -> None:
    folder = data_dir / "reports"
    about = json.loads((folder / "cameras.json").read_text())[name]
    width, height = about["size"]
    camera = camera_from_json(json.dumps(about["camera"]), width, height)
    renderer = GlRenderer(ctx, compositor=compositor)
    try:
        picture = draw(renderer, load_scene(folder / f"{name}.ply"), camera).color
    finally:
        renderer.close()
    with Image.open(folder / f"{name}.want.png") as wanted:
        assert psnr(np.clip(picture, 0, 1), np.asarray(wanted.convert("RGB")) / 255) >= 45
