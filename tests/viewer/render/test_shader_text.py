"""The shaders are one text for OpenGL 3.3 here and OpenGL ES 3.00 in browsers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview_viewer.render.gl.shader_text import ES, GL, SHADERS, shader_text
from splatview_viewer.render.paints import PAINTS
from splatview_viewer.splat_page.page_splats import shaders_module

if TYPE_CHECKING:
    import moderngl

FULLSCREEN = "fullscreen.vert"
SHOW_DEFINES = (
    (),
    ("ALPHA",),
    ("NUMBERS",),
    ("NUMBERS", "DEPTH"),
    ("NUMBERS", "SAMPLE"),
    ("NUMBERS", "DEPTH", "SAMPLE"),
)


def test_all_variants_compile_in_both_languages(ctx: moderngl.Context) -> None:
    """Mesa reads ES too; unpacking halves is all that OpenGL 3.3 has not by itself."""
    variants: list[tuple[str, tuple[str, ...], str]] = [
        ("mark.frag", (), ""),
        ("tiles.frag", (), ""),
    ]
    variants += [("show.frag", defines, "") for defines in SHOW_DEFINES]
    for paint in PAINTS.values():
        for reading in ("read_floats.glsl", "read_blocks.glsl"):
            variants.append(("project.frag", paint.projection_defines, reading))
    for version in (GL, ES):
        for file, defines, reading in variants:
            head = version
            if version == GL and reading == "read_blocks.glsl":
                head += "\n#extension GL_ARB_shading_language_packing : require"
            ctx.program(
                vertex_shader=shader_text(FULLSCREEN, version=version),
                fragment_shader=shader_text(
                    file, *defines, reading=reading, version=head
                ),
            ).release()
        for paint in PAINTS.values():
            defines = paint.compositing_defines
            ctx.program(
                vertex_shader=shader_text("splat.vert", *defines, version=version),
                fragment_shader=shader_text("splat.frag", *defines, version=version),
            ).release()


def test_both_languages_have_the_same_text() -> None:
    module = shaders_module()
    for file in SHADERS.iterdir():
        text = file.read_text()
        assert "#version" not in text, file.name
        assert shader_text(file.name, version=GL).endswith(text)
        assert shader_text(file.name, version=ES).endswith(text)
    assert "#version 300 es" in module
