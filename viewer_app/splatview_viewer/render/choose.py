"""Which renderer draws: gsplat where it can, OpenGL elsewhere, until gsplat is ready, and when it fails."""

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
PATIENCE = 30.0
"""Seconds to wait for torch and gsplat, which load in some two, before OpenGL begins."""
BUILDING = "building gsplat's kernels, about a minute; drawing with OpenGL meanwhile"


def choose(ctx: moderngl.Context) -> Renderer:
    """The renderer that SPLATVIEW_RENDERER names, or the best there is now: gsplat wherever CUDA and gsplat work.

    OpenGL draws where gsplat's kernels have to be compiled first (see `better`), and where gsplat or the viewer's own
    kernels fail; its `note` says why. Raises RendererError when the one that is named cannot run here.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted:
        if wanted not in RENDERERS:
            raise RendererError(
                f"{VARIABLE} is {wanted!r}; legal are {', '.join(RENDERERS)}, or unset it"
            )
        return RENDERERS[wanted](ctx)
    found = kernels()
    if not found.wait_unless_building(PATIENCE):
        return GlRenderer(ctx, found.reason or BUILDING)
    try:
        return _gsplat(ctx)
    except RendererError as e:
        log.warning("drawing with OpenGL: %s", e)
        return GlRenderer(ctx, str(e))


def _gsplat(ctx: moderngl.Context) -> Renderer:
    reason = kernels().reason
    if reason:
        raise RendererError(f"{VARIABLE} is 'gsplat', but {reason}")
    from splatview_viewer.render.gsplat.renderer import GsplatRenderer

    return GsplatRenderer(ctx)


RENDERERS: dict[str, Callable[[moderngl.Context], Renderer]] = {
    "gsplat": _gsplat,
    "gl": lambda ctx: GlRenderer(ctx, f"{VARIABLE} says so"),
}
"""Makers of the renderers that can be named."""


def renderer_note(renderer: Renderer) -> str:
    """Return one line about the choice, as "gl: gsplat needs CUDA, and there is no NVIDIA driver
    here"; "" for nothing.
    """
    note = renderer.note
    if note == BUILDING and kernels().reason:
        note = kernels().reason
    return f"{renderer.name}: {note}" if note else ""


def better(renderer: Renderer, ctx: moderngl.Context) -> Renderer | None:
    """gsplat in place of OpenGL that was drawing until gsplat is ready, with the same scene, once it is; else None.
    Closes `renderer` then. Cheap: for every pass of the event loop.
    """
    if renderer.note != BUILDING or not kernels().ready:
        return None
    made = choose(ctx)
    scene = renderer.scene()
    made.load(scene)
    renderer.close()
    if made.name == "gsplat":
        log.info("drawing with gsplat")
    return made


def instead(
    renderer: Renderer, ctx: moderngl.Context, error: RendererError
) -> Renderer:
    """OpenGL in place of gsplat that failed, with the scene as it is there if that can still be had. Closes `renderer`.
    Raises `error` where there is no other renderer to draw.
    """
    if not renderer.has_fallback or os.environ.get(VARIABLE):
        raise error
    log.warning("drawing with OpenGL: %s", error)
    made = GlRenderer(ctx, str(error))
    with suppress(RendererError):
        made.load(renderer.host_scene())
    with suppress(RendererError):
        renderer.close()
    return made
