"""The source of pictures that settings name, by the library that reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from splatview.camera.sources import (
    CaptureError,
    display_name,
    kind_of,
    library_for,
)
from splatview_ipc.system.optional_packages import importing

if TYPE_CHECKING:
    from splatview.camera.sources import CaptureSettings, PictureSource


def source_for(settings: CaptureSettings) -> PictureSource:
    """Return the source of these settings, not yet open.

    Raises CaptureError without the library that reads it.
    """
    kind = kind_of(settings.source)
    if kind == "test":
        from splatview.camera.pattern import PatternSource

        return PatternSource(settings)
    subject = f"{display_name(settings.source)}: reading it needs"
    with importing(subject, library_for(kind), error=CaptureError):
        if kind == "file":
            from splatview.camera.pyav import PyAVSource

            return PyAVSource(settings)
        from splatview.camera.opencv import OpenCVSource

        return OpenCVSource(settings)
