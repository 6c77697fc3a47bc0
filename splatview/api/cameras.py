"""`publish_cameras`: the cameras that a scene is trained with, their photographs, and the one in use."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, SupportsIndex

from splatview.adapters import NamedTensors, checks
from splatview.api.session import capturing, public, session

if TYPE_CHECKING:
    import torch

    from splatview.adapters.cameras import Photos
    from splatview_ipc.control import messages
    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.publisher.stream import Stream

_PACE_S = 0.015
"""Time between two photographs: viewers see the newest frame of a stream, and need a moment to look."""
_MAX_ASKED = 256
"""Photographs that wait to be brought; the first requests are dropped first, and made again by viewers."""


@public()
def publish_cameras(
    viewmats: Any = None,
    Ks: Any = None,
    width: Any = None,
    height: Any = None,
    images: Any = None,
    name: str = "cameras",
    *,
    current: SupportsIndex | None = None,
) -> None:
    """Show the cameras that a scene is trained with over it, in every viewer, and go on at once.

    viewmats: (N, 4, 4) world to camera, OpenCV axes (x right, y down, z forward), as gsplat's; N at most 10,000.
    Ks: (N, 3, 3), or one (3, 3) for all: focal lengths and principal point in pixels, pixel centres at +0.5.
    width, height: pixels of the photographs, a number for all or (N,).
    images: the photographs, to be seen over what is rendered, with errors and PSNR: (N, H, W, 3), or a list with one
        item for each camera, in any sizes: a tensor or array (H, W), (H, W, 1|3|4) or (1|3|4, H, W), uint8 or floating
        point in [0, 1], on the CPU or a GPU; a path, whose file the viewer reads when it is looked at; or None. They
        are kept, not copied, until there are others; a thread brings the viewer those that a user looks at.
        None: those that there are stay, as long as the number of cameras does.
    name: the stream's. Viewers show the cameras over the Gaussians of the same run.
    current: the camera that is trained with now, from 0 on, for viewers that follow it.
        `publish_cameras(current=7)` alone says only that, and costs about twenty microseconds.

    Call it again when poses change. It never waits, neither for a viewer nor for a GPU: values on a GPU are not looked
    at. Raises TypeError or ValueError for what cannot be shown. Faults of the surroundings never reach the caller,
    unless SPLATVIEW_STRICT=1. SPLATVIEW_DISABLE=1 makes the call do nothing.
    """
    if viewmats is None:
        if (
            what := next(
                (
                    n
                    for n, v in (
                        ("Ks", Ks),
                        ("width", width),
                        ("height", height),
                        ("images", images),
                    )
                    if v is not None
                ),
                None,
            )
        ) is not None or current is None:
            raise TypeError(
                f"publish_cameras: {what} without viewmats"
                if what
                else "publish_cameras needs viewmats, Ks, width and height, or current alone"
            )
    elif Ks is None:
        raise TypeError("publish_cameras: viewmats without Ks, (N, 3, 3) in pixels")
    checks.stream_name(name)
    if session().idle or capturing():
        return
    cameras: Cameras | None = session().features.get(f"cameras {name}")
    count, photos, found = None if cameras is None else cameras.count, None, None
    if viewmats is not None:
        from splatview.adapters.cameras import Photos, poses

        found = poses(viewmats, Ks, width, height)
        count = len(found["viewmats"])
        if cameras is not None and cameras.count == count:
            photos = cameras.photos
        if images is not None and (photos is None or photos.given is not images):
            photos = Photos(images, count)
    number = None
    if current is not None:
        from splatview_ipc.kinds.cameras import CAMERAS_MOST

        if getattr(current, "is_cuda", False):
            raise TypeError(
                "current is a tensor on a GPU, for whose value we would have to wait; give the number, as "
                "the program knows it when it chooses the camera"
            )
        number = checks.whole(
            "current",
            current,
            0,
            (CAMERAS_MOST["cameras"] if count is None else count) - 1,
        )
    cameras = session().feature(
        f"cameras {name}", lambda publisher: Cameras(publisher, name)
    )
    if cameras is None:
        return
    with session().lock:
        if found is not None:
            cameras.publish(found, photos)
        if number is not None:
            cameras.say(number)


class Cameras:
    """The streams of one name: the poses, the camera in use, and photographs, one for each request of a viewer."""

    def __init__(self, publisher: Publisher, name: str) -> None:
        self.count: int | None = None
        self.photos: Photos | None = None
        self._publisher = publisher
        self._name = name
        self._set = 0
        self._current: Stream | None = None
        self._photo_stream: Stream | None = None
        self._asked: deque[tuple[int, int]] = deque(maxlen=_MAX_ASKED)
        """Camera and side (0: the whole photograph) of what viewers ask for."""

    def publish(self, tensors: dict[str, torch.Tensor], photos: Photos | None) -> None:
        from splatview.adapters.overlay import on_one_device

        stream = self._publisher.stream(self._name, "cameras")
        if photos is not self.photos:
            self._set += 1
        self.photos, self.count = photos, len(tensors["viewmats"])
        has = photos is not None and any(t is not None for t in photos.tensors)
        if has and self._photo_stream is None:
            self._photo_stream = self._part("photos", ())
            self._publisher.on_request["Photos", self._photo_stream.name] = self.ask
        if photos is not None and photos.paths is not None:
            tensors["paths"] = photos.paths
        tensors, device = on_one_device(tensors)
        layout = NamedTensors(
            "cameras", tuple(tensors), shape=(self.count,), device=device
        )
        stream.describe(layout, copy=True)
        stream.publish((tuple(tensors.values()), {"photos": self._set if has else 0}))

    def say(self, number: int) -> None:
        """Show which camera is trained with."""
        import torch

        if self._current is None:
            self._current = self._part("current", (1,))
        self._current.publish(((torch.tensor([number], dtype=torch.int32),), {}))

    def _part(self, what: str, shape: tuple[int, ...]) -> Stream:
        """Return a stream that belongs to that of the poses."""
        from splatview_ipc.control.limits import MAX_NAME

        stream = self._publisher.stream(
            f"{self._name[: MAX_NAME - 10]} {what}", "cameras"
        )
        stream.over = self._name, ""
        stream.describe(NamedTensors("cameras", (what,), shape=shape), copy=True)
        return stream

    def ask(self, request: messages.Photos) -> None:
        """Take a viewer's request. The publisher's helper thread."""
        asked = request.camera, request.side
        if asked not in self._asked:
            self._asked.append(asked)
        session().wake()

    def turn(self, now: float) -> float:
        stream = self._photo_stream
        with session().lock:
            photos, number = self.photos, self._set
        if not self._asked or stream is None:
            return math.inf
        camera, side = self._asked.popleft()
        if photos is not None and camera < len(photos.tensors) and stream.readers:
            stream.publish(
                (
                    (photos.read(camera, side),),
                    {"camera": camera, "side": side, "photos": number},
                )
            )
        return now + _PACE_S

    def close(self) -> None:
        self.photos = None
