"""The GPU's time that a render worker takes for this viewer's pictures of a scene.

It counts within the viewer's share, as the GPU works there on the viewer's request. A
function inside the trainer has a budget of its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from splatview_viewer.gpu.costs import SCALES, estimate, highest_scale
from splatview_viewer.gpu.governor import SWITCH, WORKER_SHARE

if TYPE_CHECKING:
    from splatview_viewer.geometry.cameras import Camera
    from splatview_viewer.gpu.costs import Costs, WorkKey
    from splatview_viewer.gpu.governor import Governor

_DRAFTS = 8.0
"""Pictures a second to aim for while the camera moves, with fewer pixels if need be."""
_DRAFT_SCALES = tuple(scale for scale in SCALES if scale >= 0.5)
_TURNS_MS = 4 * SWITCH
"""Milliseconds that a training loses beside those of the function, as the GPU turns to
the worker, and to the viewer's CUDA that copies the picture.

On an H200 a training lost 5.7 ms for each picture of a function of 3 ms and the 1 ms of
its showing."""
_MAX_GROWTH = 3.0
"""Times the expected cost that a picture counts at most. Loading or compiling a kernel
takes hundreds of milliseconds from start to end, in which the GPU rests."""
_SAME_COST = 1.15
"""Times the cost of a draft that a picture with more pixels may take to be preferred."""


class PictureBudget:
    """Says when a worker may draw, and pays for what it drew.

    The first picture is free: it says little about those that follow, as kernels are
    loaded.
    """

    def __init__(self, governor: Governor, scene: str) -> None:
        """Start without pictures.

        Args:
            governor: of the viewer.
            scene: tells the scene from others.
        """
        self._governor = governor
        self._scene = scene
        self._is_on_gpu = False
        self._last_size: tuple[int, int] | None = None
        """Width and height of the last picture whose cost is known."""
        self._draft_scale = 1.0

    @property
    def is_on_gpu(self) -> bool:
        """True if a worker drew the last picture on a GPU."""
        return self._is_on_gpu

    @property
    def is_limited(self) -> bool:
        """True if a worker draws on a GPU that another process needs as well."""
        return self.is_on_gpu and self._governor.account.limited

    def expected_ms(self, camera: Camera) -> float:
        """Return what a camera's picture will cost; 0: nothing, or it is not known."""
        if self._last_size is None:
            return 0.0
        costs = self._costs((camera.width, camera.height))
        return estimate(costs, 1.0)

    def allows(self, camera: Camera) -> bool:
        """Return whether a picture may be asked for now; if so, it is paid in advance.

        If not, it is saved up.
        """
        expected_ms = self.expected_ms(camera)
        account = self._governor.account
        if not expected_ms:
            return True
        price_ms = expected_ms + _TURNS_MS
        needed_ms = price_ms + account.owed_ms
        if not self._governor.has_saved(needed_ms, is_for_worker=True):
            return False
        account.pay_in_advance(price_ms)
        return True

    def charge(self, camera: Camera, gpu_ms: float) -> None:
        """Pay for a camera's picture, for which a GPU worked some milliseconds."""
        was_on_gpu = self._is_on_gpu
        self._is_on_gpu = gpu_ms > 0
        if not self._is_on_gpu:
            self._last_size = None
            return
        if not was_on_gpu:
            return
        size = (camera.width, camera.height)
        expected_ms = self.expected_ms(camera)
        if expected_ms:
            gpu_ms = min(gpu_ms, _MAX_GROWTH * expected_ms)
        self._last_size = size
        work_key = self._work_key(size)
        self._governor.record(work_key, gpu_ms)
        # What other programs did in between is left out.
        cost_ms = self._governor.cost(work_key) or gpu_ms
        account = self._governor.account
        if account.shared:
            cost_ms += _TURNS_MS
        account.count_worker(cost_ms)

    def charge_fault(self) -> None:
        """Take note that no picture was drawn; it counts as what was paid in advance."""
        account = self._governor.account
        account.count_worker(max(-account.owed_ms, 0.0))

    def draft_scale(self, camera: Camera) -> float:
        """Return the scale of a picture's sides at which enough may be drawn a second.

        It is one of SCALES.
        """
        account = self._governor.account
        if self._last_size is None or not account.limited:
            return 1.0
        costs = self._costs((camera.width, camera.height))
        allowed_ms = WORKER_SHARE * account.ms_per_second / _DRAFTS - _TURNS_MS
        scale = highest_scale(costs, allowed_ms, self._draft_scale, 1.2 * allowed_ms)
        scale = max(scale, _DRAFT_SCALES[-1])
        # Some functions take as long for fewer pixels.
        worth_ms = _SAME_COST * estimate(costs, scale)
        self._draft_scale = next(
            draft_scale
            for draft_scale in _DRAFT_SCALES
            if estimate(costs, draft_scale) <= worth_ms
        )
        return self._draft_scale

    def _costs(self, size: tuple[int, int]) -> Costs:
        """Return the milliseconds of pictures of a size by their scale; never empty."""
        costs = self._governor.costs_by_scale("function", size, self._scene)
        if costs or self._last_size is None:
            return costs
        last_ms = self._governor.cost(self._work_key(self._last_size)) or 0.0
        scale = math.sqrt(math.prod(self._last_size) / math.prod(size))
        return {scale: last_ms}

    def _work_key(self, size: tuple[int, int]) -> WorkKey:
        return ("function", *size, self._scene)
