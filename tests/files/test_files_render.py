"""The same object gives the same picture whichever format it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support import scene_files as w

from splatview.viewer_app.cameras import Camera, intrinsics, look_at
from splatview.viewer_app.files import load_scene
from splatview.viewer_app.renderers.base import RenderOptions
from splatview.viewer_app.renderers.gl import GlRenderer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import moderngl

    from splatview.viewer_app.scene import GaussianScene


@pytest.fixture(scope="module")
def renderer(ctx: moderngl.Context) -> Iterator[GlRenderer]:
    gl = GlRenderer(ctx)
    yield gl
    gl.close()


def picture(renderer: GlRenderer, scene: GaussianScene) -> np.ndarray:
    """(H, W, 4) from a viewpoint without any symmetry."""
    renderer.load(scene)
    camera = Camera(look_at((1.5, -2.5, -4), (0.1, 0.2, 0), (0.2, -1, 0.1)), intrinsics(50, 200, 150), 200, 150)
    pixels = renderer.render(camera, RenderOptions()).pixels()
    return np.dstack([pixels.color, pixels.alpha])


@pytest.mark.parametrize(("name", "least"), [("spz", 40), ("sog", 48), ("compressed ply", 45), ("ascii ply", 100)])
def test_formats_give_the_same_picture(name: str, least: float, renderer: GlRenderer, tmp_path: Path) -> None:
    t = w.truth(60, seed=3)
    t.scales += 2  # large ones: shape and turn show
    write = {"spz": lambda p: w.write_spz(p, t), "sog": lambda p: w.write_zip(p, w.sog_files(t)),
             "compressed ply": lambda p: w.write_compressed_ply(p, t),
             "ascii ply": lambda p: w.write_ply(p, w.ply_columns(t), order="a")}[name]
    expected = picture(renderer, load_scene(w.write_ply(tmp_path / "a.ply", w.ply_columns(t))))
    assert 0.1 < expected[..., 3].mean() < 0.95 and expected[..., :3].std() > 0.1
    got = picture(renderer, load_scene(write(tmp_path / "b")))
    error = float(np.mean((got - expected) ** 2))
    assert -10 * np.log10(max(error, 1e-12)) > least
