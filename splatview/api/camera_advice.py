"""Doubts about published cameras and photographs, told once: in the log, and in the panel of viewers.

The worker thread looks at what lies in host memory. Values on a GPU are not looked at here: viewers, which have them,
look at poses and intrinsics themselves.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splatview_ipc.kinds.camera_hints import intrinsics_hints, pose_hint

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import torch

    from splatview.adapters.cameras import CallerPhotos
    from splatview_ipc.kinds.camera_hints import CameraHint
    from splatview_ipc.publisher.publisher import Publisher

_log = logging.getLogger("splatview")

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
"""Between two looks for a scene: it may be published long after its cameras."""
_PAUSES_S = (10.0, 60.0)
"""After a look at poses until the next one: the first scene may be random points."""
_MOST_POINTS = 4000
_PERIOD_S = 1.0
"""Between two looks at new cameras: a program that maps publishes more of them with each picture."""


@dataclass(frozen=True, slots=True)
class PublishedCameras:
    """Cameras that were published together."""

    viewmats: np.ndarray | None
    Ks: np.ndarray | None
    """None where they lie on a GPU."""
    sizes: np.ndarray
    photos: CallerPhotos | None


class CameraAdvice:
    """The doubts about the cameras of one name.

    The trainer's thread calls `take`, the worker thread everything else.
    """

    def __init__(self, publisher: Publisher, name: str) -> None:
        self._publisher = publisher
        self._name = name
        self._newest: PublishedCameras | None = None
        """Replaced, never changed in place."""
        self._is_new = False
        self._told: set[str] = set()
        self._next_at = math.inf
        self._pause = _FIRST_PAUSE_S
        self._looks = 0
        """Looks at these poses together with a scene."""
        self._new_at = -math.inf
        """When new cameras may be looked at again."""

    def take(
        self, tensors: dict[str, torch.Tensor], photos: CallerPhotos | None
    ) -> bool:
        """Note cameras that were published; return whether the worker thread is to look at them.

        Args:
            tensors: "viewmats", "Ks" and "sizes", which do not change any more.
            photos: their photographs.
        """
        on_host = {
            name: t.numpy() for name, t in tensors.items() if t.device.type == "cpu"
        }
        before = self._newest
        self._newest = PublishedCameras(
            on_host.get("viewmats"), on_host.get("Ks"), on_host["sizes"], photos
        )
        if before is None:
            self._is_new = True
            return True
        # The same cameras, whose poses are being optimised.
        if photos is before.photos and len(before.sizes) == len(self._newest.sizes):
            return False
        self._is_new = True
        return True

    def turn(self, now: float) -> float:
        """Look at what is new; return when to look again."""
        is_new = self._is_new
        if is_new and now < self._new_at:
            return self._new_at
        self._is_new = False
        newest = self._newest
        if newest is None:
            return math.inf
        if is_new:
            self._new_at = now + _PERIOD_S
            self._next_at = -math.inf
            self._pause = _FIRST_PAUSE_S
            self._looks = 0
            if newest.Ks is not None:
                self.tell(intrinsics_hints(newest.Ks, newest.sizes))
            if newest.photos is not None:
                self.tell(newest.photos.hints())
        if now >= self._next_at:
            self._next_at = now + self._look_at_poses(newest)
        return self._next_at

    def _look_at_poses(self, cameras: PublishedCameras) -> float:
        """Compare the cameras with the scene; return the pause until the next look."""
        if cameras.viewmats is None or cameras.Ks is None:
            return math.inf
        points = self._scene_points()
        if points is None:
            pause = self._pause
            self._pause = min(2 * pause, _LONGEST_PAUSE_S)
            return pause
        hint = pose_hint(cameras.viewmats, cameras.Ks, cameras.sizes, points)
        self._looks += 1
        if hint is not None:
            self.tell([hint])
            return math.inf
        is_last = self._looks > len(_PAUSES_S)
        return math.inf if is_last else _PAUSES_S[self._looks - 1]

    def _scene_points(self) -> np.ndarray | None:
        """Return centres of the run's Gaussians in host memory, some of the largest scene; None where there are none."""
        largest: torch.Tensor | None = None
        for stream in list(self._publisher.streams.values()):
            newest = stream.newest
            if stream.kind != "gaussians" or newest is None:
                continue
            layout, published = newest
            if layout.device != "cpu":
                continue
            means = layout.frame(published[0])["means"]
            if largest is None or len(means) > len(largest):
                largest = means
        if largest is None or not len(largest):
            return None
        some = largest[:: len(largest) // _MOST_POINTS + 1]
        return some.double().numpy()

    def tell(self, hints: Iterable[CameraHint]) -> None:
        """Log the hints that were not logged yet."""
        for hint in hints:
            if hint.name not in self._told:
                self._told.add(hint.name)
                _log.warning("publish_cameras, %r: %s", self._name, hint.text)
