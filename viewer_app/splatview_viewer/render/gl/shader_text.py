"""Texts of shaders, from the files in shaders/.

A file begins without its version: `GL` or `ES` comes before it, so that one text serves
OpenGL 3.3 here and OpenGL ES 3.00, which browsers know as WebGL2. project.frag reads
Gaussians through functions that another file defines, which is put before it:
read_floats.glsl reads textures of floats, read_blocks.glsl packed blocks.
"""

from __future__ import annotations

from pathlib import Path

SHADERS = Path(__file__).parent / "shaders"
GL = "#version 330"
ES = """#version 300 es
precision highp float;
precision highp int;
precision highp sampler2D;
precision highp isampler2D;
precision highp usampler2D;"""


def shader_text(file: str, *defines: str, reading: str = "", version: str = GL) -> str:
    """Return the text of a shader, ready to be compiled.

    Args:
        file: the file of the shader.
        defines: names that are defined for the preprocessor.
        reading: the file with the functions that read Gaussians; "" where none are read.
        version: `GL` or `ES`.
    """
    lines = [version]
    for name in defines:
        lines.append(f"#define {name}")
    for name in (reading, file):
        if name:
            # The driver's messages then have the line numbers of the file.
            lines.append("#line 1")
            lines.append((SHADERS / name).read_text(encoding="utf-8"))
    return "\n".join(lines)
