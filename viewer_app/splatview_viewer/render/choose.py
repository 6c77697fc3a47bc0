"""The choice of the renderer.

CUDA draws by gsplat's rules where it can; OpenGL elsewhere, and when CUDA fails.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.render.gsplat.gpus import obstacle

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl

    from splatview_viewer.render.base import Renderer

log = logging.getLogger("splatview")

VARIABLE = "SPLATVIEW_RENDERER"
"""Environment variable that forces one of RENDERERS."""


def choose_renderer(ctx: moderngl.Context) -> Renderer:
    """Return the renderer that SPLATVIEW_RENDERER names, or the best there is now.

    That is gsplat's wherever CUDA works. OpenGL draws elsewhere; its `note` says why.

    Raises:
        RendererError: the renderer that is named cannot run here.
    """
    name = os.environ.get(VARIABLE, "")
    if name:
        if name not in RENDERERS:
            raise RendererError(
                f"{VARIABLE} is {name!r}; expected {', '.join(RENDERERS)}, or unset it"
            )
        return RENDERERS[name](ctx)
    reason = obstacle()
    if reason:
        return GlRenderer(ctx, reason)
    try:
        return _make_gsplat(ctx)
    except RendererError as e:
        log.warning("drawing with OpenGL: %s", e)
        return GlRenderer(ctx, str(e))


def _make_gsplat(ctx: moderngl.Context) -> Renderer:
    from splatview_viewer.render.gsplat.renderer import GsplatRenderer

    return GsplatRenderer(ctx)


def _make_named_gsplat(ctx: moderngl.Context) -> Renderer:
    reason = obstacle()
    if reason:
        raise RendererError(f"{VARIABLE} is 'gsplat', but {reason}")
    return _make_gsplat(ctx)


def _make_named_gl(ctx: moderngl.Context) -> Renderer:
    return GlRenderer(ctx, f"{VARIABLE} says so")


RENDERERS: dict[str, Callable[[moderngl.Context], Renderer]] = {
    "gsplat": _make_named_gsplat,
    "gl": _make_named_gl,
}
"""Makers of the renderers that can be named."""


def renderer_note(renderer: Renderer) -> str:
    """Return one line about the choice; "" for nothing.

    For example "gl: gsplat needs CUDA, and there is no NVIDIA driver here".
    """
    if renderer.note:
        return f"{renderer.name}: {renderer.note}"
    return ""


def fallback_renderer(
    renderer: Renderer, ctx: moderngl.Context, error: RendererError
) -> Renderer:
    """Return OpenGL in place of a renderer that failed, and close that one.

    It has the scene as it is there if that can still be had. Raises `error` where there
    is no other renderer to draw.
    """
    if not renderer.has_fallback or os.environ.get(VARIABLE):
        raise error
    log.warning("drawing with OpenGL: %s", error)
    fallback = GlRenderer(ctx, str(error))
    with suppress(RendererError):
        fallback.load(renderer.host_scene())
    with suppress(RendererError):
        renderer.close()
    return fallback
