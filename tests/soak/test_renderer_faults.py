"""Faults of drivers: a shader that is refused, and a GPU that is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import moderngl
import numpy as np
import pytest
from PIL import Image
from support.programs import Programs
from support.renderer_cases import MAKERS, Chance, draw, looking_at_origin, random_scene
from support.web_clients import Page, address

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.gl import shader_text

SERVE = """
import os, sys, time
from splatview_viewer.__main__ import main
from splatview_viewer.app import loop

def step(app):
    if os.path.exists("lost"):
        raise loop.GpuLostError("the GPU is lost")
    app.tick(time.monotonic(), app.screen.poll(0.02))

loop.step = step
sys.exit(main(sys.argv[1:]))
"""
"""The viewer, which takes its GPU to be lost once the file `lost` exists."""


@pytest.mark.parametrize("shader", ["project.frag", "walk.frag", "unfinished.frag"])
def test_error_names_the_shader_that_is_refused(
    ctx: moderngl.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shader: str
) -> None:
    damaged = shutil.copytree(shader_text.SHADERS, tmp_path / "shaders") / shader
    monkeypatch.setattr(shader_text, "SHADERS", damaged.parent)
    damaged.write_text(
        damaged.read_text().replace(
            "void main() {", "void main() {\n    vec3 torn = nonsense(1.0);"
        )
    )
    with pytest.raises(
        RendererError,
        match=f"gl: this driver refuses {shader} .*nonsense.*update the graphics driver",
    ):
        draw(
            MAKERS["gl-tiles"](ctx),
            random_scene(1, Chance(n=200)),
            looking_at_origin(80, 60),
        )
    assert ctx.error == "GL_NO_ERROR"


def test_viewer_that_lost_its_gpu_ends_with_a_message(programs: Programs) -> None:
    Image.fromarray(np.full((40, 60, 3), 90, np.uint8)).save(
        programs.folder / "grey.png"
    )
    viewer = programs.code(
        SERVE, "serve", "--host", "127.0.0.1", "--port", "0", "grey.png"
    )
    first_lines: list[str] = []
    port, token = address(viewer, first_lines)
    with Page(port, acks=True) as page:
        page.connect(token=token).greet()
        page.picture()
        (programs.folder / "lost").touch()
        assert page.ended()
    _, error_output = viewer.end()
    assert viewer.returncode == 2
    assert (
        "the GPU is lost. Start the viewer again" in "".join(first_lines) + error_output
    )
