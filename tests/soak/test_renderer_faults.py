"""A driver that refuses a shader is named."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from support.renderer_cases import MAKERS, Chance, draw, looking_at_origin, random_scene

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.gl import passes

if TYPE_CHECKING:
    from pathlib import Path

    import moderngl

@pytest.mark.parametrize("shader", ["project.frag", "walk.frag", "unfinished.frag"])
def test_a_shader_that_is_refused_is_named(
        ctx: moderngl.Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shader: str) -> None:
    damaged = shutil.copytree(passes.SHADERS, tmp_path / "shaders") / shader
    monkeypatch.setattr(passes, "SHADERS", damaged.parent)
    damaged.write_text(damaged.read_text().replace("void main() {", "void main() {\n    vec3 torn = nonsense(1.0);"))
    with pytest.raises(RendererError, match=f"gl: this driver refuses {shader} .*nonsense.*update the graphics driver"):
        draw(MAKERS["gl-tiles"](ctx), random_scene(1, Chance(n=200)), looking_at_origin(80, 60))
    assert ctx.error == "GL_NO_ERROR"
