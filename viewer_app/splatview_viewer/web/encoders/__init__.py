"""Encoders of pictures for the browser, and the choice among them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from splatview_ipc.control.errors import IpcError
from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.web.encoders.base import Encoder

VARIABLE = "SPLATVIEW_ENCODER"
"""Environment variable that forces one of CHOICES."""
CHOICES = ("nvjpeg", "turbo")


def forced_encoder() -> str | None:
    """What SPLATVIEW_ENCODER names. Raises ViewerError for anything but CHOICES."""
    forced = os.environ.get(VARIABLE) or None
    if forced not in (None, *CHOICES):
        raise ViewerError(f"{VARIABLE}={forced!r}; legal are {', '.join(CHOICES)}, or unset it")
    return forced


def choose(ctx: moderngl.Context) -> Encoder:
    """The fastest encoder for what this context draws, where it is current.

    nvJPEG needs its library and OpenGL on a GPU that CUDA sees in this process; libjpeg-turbo works everywhere, and
    its `reason` says why nvJPEG is not used. Raises ViewerError where SPLATVIEW_ENCODER names none of them, or one
    that cannot work here.
    """
    forced = forced_encoder()
    from splatview_viewer.web.encoders.turbo import TurboEncoder

    if forced == "turbo":
        return TurboEncoder(f"{VARIABLE}=turbo")
    try:
        from splatview_ipc.cuda import driver
        from splatview_ipc.gl.direct import require_import
        from splatview_viewer.web.encoders.nvjpeg import NvJpegEncoder, library

        device = driver.here(require_import(ctx))
        library()  # before torch is loaded for nothing
        return NvJpegEncoder(device)
    except (ViewerError, IpcError) as e:
        if forced is not None:
            raise ViewerError(f"{VARIABLE}=nvjpeg, but it cannot work here: {e}") from e
        return TurboEncoder(str(e))
