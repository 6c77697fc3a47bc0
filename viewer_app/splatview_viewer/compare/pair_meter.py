"""The PSNR of two entries that are seen beside each other, in no picture of both."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from splatview_viewer.compare.pair import PairSource, PairState, PairView
from splatview_viewer.core.screen import Rect

if TYPE_CHECKING:
    import moderngl

    from splatview_viewer.compare.arrangement import Pairing
    from splatview_viewer.core.host import Host
    from splatview_viewer.core.shown_view import ShownView
    from splatview_viewer.gpu.work import GpuWork
    from splatview_viewer.workspace.catalogue import Catalogue

log = logging.getLogger("splatview")


class PairMeter:
    """Draws two entries out of sight, and compares the pictures."""

    def __init__(
        self,
        catalogue: Catalogue,
        pairing: Pairing,
        ctx: moderngl.Context,
        gpu_work: GpuWork,
        host: Host,
    ) -> None:
        self.pairing = pairing
        source = PairSource(catalogue, pairing, ctx, gpu_work)
        self._view = PairView(source, PairState())
        self._view.host = replace(host)
        self._has_failed = False

    @property
    def psnr(self) -> float | None:
        """In dB; None while it is not known."""
        return self._view.psnr

    def look_from(self, leader: ShownView) -> None:
        """Measure soon what a view of the first entry, which was just drawn, sees."""
        if leader.rect is None or self._has_failed:
            return
        rect = Rect(0, 0, leader.rect.width, leader.rect.height)
        self._view.measure_soon(leader, rect)

    def tick(self, now: float) -> bool:
        """Measure if it is due; return True when the PSNR is another one.

        After a failure, which is logged, nothing is measured any more.
        """
        if self._has_failed:
            return False
        previous = self.psnr
        try:
            self._view.tick(now)
        except Exception:
            self._has_failed = True
            self._view.psnr = None
            log.warning("two panes cannot be compared", exc_info=True)
        return self.psnr != previous

    def close(self) -> None:
        """Give back everything."""
        self._view.release("closed")
