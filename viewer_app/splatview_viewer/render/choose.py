"""The choice of the renderer.

gsplat draws where it can; OpenGL elsewhere, until gsplat is ready, and when it fails.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.render.gsplat.build import kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    import moderngl

    from splatview_viewer.render.base import Renderer

log = logging.getLogger("splatview")

VARIABLE = "SPLATVIEW_RENDERER"
"""Environment variable that forces one of RENDERERS."""
KERNEL_TIMEOUT = 30.0
"""Seconds to wait for torch and gsplat, which load in some two, before OpenGL begins."""
BUILDING = "building gsplat's kernels, about a minute; drawing with OpenGL meanwhile"


def choose_renderer(ctx: moderngl.Context) -> Renderer:
    """Return the renderer that SPLATVIEW_RENDERER names, or the best there is now.

    That is gsplat wherever CUDA and gsplat work. OpenGL draws where gsplat's kernels have
    to be compiled first (see `upgraded_renderer`), and where gsplat or the viewer's own
    kernels fail; its `note` says why.

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
    build = kernels()
    if not build.wait_unless_building(KERNEL_TIMEOUT):
        return GlRenderer(ctx, build.reason or BUILDING)
    try:
        return _make_gsplat(ctx)
    except RendererError as e:
        log.warning("drawing with OpenGL: %s", e)
        return GlRenderer(ctx, str(e))


def _make_gsplat(ctx: moderngl.Context) -> Renderer:
    reason = kernels().reason
    if reason:
        raise RendererError(f"{VARIABLE} is 'gsplat', but {reason}")
    from splatview_viewer.render.gsplat.renderer import GsplatRenderer

    return GsplatRenderer(ctx)


def _make_gl(ctx: moderngl.Context) -> Renderer:
    return GlRenderer(ctx, f"{VARIABLE} says so")


RENDERERS: dict[str, Callable[[moderngl.Context], Renderer]] = {
    "gsplat": _make_gsplat,
    "gl": _make_gl,
}
"""Makers of the renderers that can be named."""


def renderer_note(renderer: Renderer) -> str:
    """Return one line about the choice; "" for nothing.

    For example "gl: gsplat needs CUDA, and there is no NVIDIA driver here".
    """
    note = renderer.note
    if note == BUILDING:
        note = kernels().reason or note
    if note:
        return f"{renderer.name}: {note}"
    return ""


def upgraded_renderer(renderer: Renderer, ctx: moderngl.Context) -> Renderer | None:
    """Return gsplat in place of OpenGL that was drawing until gsplat is ready, once it is.

    It has the same scene, and `renderer` is closed. None in all other cases. Cheap: for
    every pass of the event loop.
    """
    if renderer.note != BUILDING or not kernels().ready:
        return None
    upgraded = choose_renderer(ctx)
    upgraded.load(renderer.scene())
    renderer.close()
    if upgraded.has_fallback:
        log.info("drawing with %s", upgraded.name)
    return upgraded


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
