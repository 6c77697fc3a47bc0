"""The GPU's time that a render worker takes for this viewer's pictures of a scene.

It counts within the viewer's share, as the GPU works there on the viewer's request. A
function inside the trainer has a budget of its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_viewer.gpu.costs import estimate
from splatview_viewer.gpu.governor import SWITCH

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.costs import WorkKey
    from splatview_viewer.gpu.governor import Governor

_DRAFT_SHARE = 0.5
"""Part of the viewer's share for the worker's pictures while the camera moves."""
_DRAFTS = 8.0
"""Pictures a second to aim for then, with fewer pixels if need be."""
_MIN_SCALE = 0.5


class PictureBudget:
    """Says when a worker may draw, and pays for what it drew."""

    def __init__(self, governor: Governor, scene: str) -> None:
        """Start without pictures.

        Args:
            governor: of the viewer.
            scene: tells the scene from others.
        """
        self._governor = governor
        self._scene = scene
        self._last_size: tuple[int, int] | None = None
        """Width and height of the last picture from a GPU; None: it was from none."""

    @property
    def is_on_gpu(self) -> bool:
        """True if a worker drew the last picture on a GPU."""
        return self._last_size is not None

    @property
    def is_limited(self) -> bool:
        """True if a worker draws on a GPU that another process needs as well."""
        return self.is_on_gpu and self._governor.account.limited

    def expected_ms(self, camera: Camera) -> float:
        """Return what a camera's picture will cost; 0: nothing, or it is not known."""
        if self._last_size is None:
            return 0.0
        size = (camera.width, camera.height)
        cost_ms = self._governor.cost(self._work_key(size))
        if cost_ms is not None:
            return cost_ms
        last_ms = self._governor.cost(self._work_key(self._last_size)) or 0.0
        pixel_ratio = math.prod(size) / math.prod(self._last_size)
        return estimate({1.0: last_ms}, math.sqrt(pixel_ratio))

    def allows(self, camera: Camera) -> bool:
        """Return whether a picture may be asked for now; if so, it is paid in advance.

        If not, it is saved up.
        """
        expected_ms = self.expected_ms(camera)
        account = self._governor.account
        if not expected_ms:
            return True
        needed_ms = expected_ms + account.owed_ms
        if not self._governor.has_saved(needed_ms, is_for_worker=True):
            return False
        account.pay_in_advance(expected_ms)
        return True

    def charge(self, camera: Camera, gpu_ms: float) -> None:
        """Pay for a camera's picture, for which a GPU worked some milliseconds."""
        if not gpu_ms:
            self._last_size = None
            return
        self._last_size = (camera.width, camera.height)
        work_key = self._work_key(self._last_size)
        self._governor.record(work_key, gpu_ms)
        # What other programs did in between is left out.
        cost_ms = self._governor.cost(work_key) or gpu_ms
        account = self._governor.account
        if account.shared:
            cost_ms += SWITCH
        account.count_worker(cost_ms)

    def draft_scale(self, camera: Camera) -> float:
        """Return the scale of a picture's sides at which enough may be drawn a second."""
        account = self._governor.account
        expected_ms = self.expected_ms(camera)
        if not expected_ms or not account.limited:
            return 1.0
        allowed_ms = _DRAFT_SHARE * account.ms_per_second / _DRAFTS
        return min(max(math.sqrt(allowed_ms / expected_ms), _MIN_SCALE), 1.0)

    def _work_key(self, size: tuple[int, int]) -> WorkKey:
        return ("function", self._scene, *size)
