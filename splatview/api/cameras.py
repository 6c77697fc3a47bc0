"""`publish_cameras`: the cameras that a scene is trained with, their photographs, and the one in use."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, SupportsIndex

from splatview.adapters import NamedTensors, checks
from splatview.api.camera_advice import CameraAdvice
from splatview.api.session import capturing, public, session

if TYPE_CHECKING:
    import torch

    from splatview.adapters.cameras import CallerPhotos
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
    layout: str | None = None,
) -> None:
    """Show the cameras that a scene is trained with over it, in every viewer, and go on at once.

    viewmats: (N, 4, 4) or (N, 3, 4) world to camera, OpenCV axes (x right, y down, z forward), as gsplat's; N at most
        10,000.
    Ks: (N, 3, 3), or one (3, 3) for all: focal lengths and principal point in pixels, pixel centres at +0.5. Of
        (4, 4) and (3, 4) the upper left 3x3 counts.
    width, height: pixels of the photographs, a number for all or (N,).
    images: the photographs, to be seen over what is rendered, with errors and PSNR: (N, H, W, 3), or a list with one
        item for each camera, in any sizes: a tensor or array (H, W), (H, W, 1|3|4) or (1|3|4, H, W), uint8 or floating
        point in [0, 1], on the CPU or a GPU; a path, whose file the viewer reads when it is looked at; or None. They
        are kept, not copied, until there are others; a thread brings the viewer those that a user looks at. What is
        transparent shows the background that the scene is drawn over. Files count as their pixels lie, whatever EXIF
        says about their orientation, as COLMAP and trainers count them.
        None: those that there are stay, as long as the number of cameras does.
    name: the stream's. Viewers show the cameras over the Gaussians of the same run.
    current: the camera that is trained with now, from 0 on, for viewers that follow it.
        `publish_cameras(current=7)` alone says only that, and costs about twenty microseconds.
    layout: of images that are no files, as of `publish`: "HW", "HWC", "CHW" or "BGR" (as OpenCV has them); None: by
        their shapes.

    Call it again when poses change. It never waits, neither for a viewer nor for a GPU: values on a GPU are not looked
    at. Raises TypeError or ValueError for what cannot be shown. What can be shown and looks as if another convention
    was meant (camera to world, OpenGL axes, normalised intrinsics, photographs from 0 to 255) is logged once, by a
    thread. Faults of the surroundings never reach the caller, unless SPLATVIEW_STRICT=1. SPLATVIEW_DISABLE=1 makes the
    call do nothing.
    """
    _check_together(viewmats, Ks, width, height, images, current)
    checks.stream_name(name)
    if session().idle or capturing():
        return
    cameras: Cameras | None = session().features.get(f"cameras {name}")
    count = None if cameras is None else cameras.count
    photos = None
    tensors = None
    if viewmats is not None:
        from splatview.adapters.cameras import CallerPhotos, check_layout, poses

        check_layout(layout)
        tensors = poses(viewmats, Ks, width, height)
        count = len(tensors["viewmats"])
        if cameras is not None and cameras.count == count:
            photos = cameras.photos
        if images is not None and (photos is None or not photos.is_of(images, layout)):
            photos = CallerPhotos(images, tensors["sizes"], layout)
    number = None if current is None else _camera_number(current, count)
    cameras = session().feature(
        f"cameras {name}", lambda publisher: Cameras(publisher, name)
    )
    if cameras is None:
        return
    with session().lock:
        if tensors is not None:
            cameras.publish(tensors, photos)
        if number is not None:
            cameras.say(number)


def _check_together(
    viewmats: Any, Ks: Any, width: Any, height: Any, images: Any, current: Any
) -> None:
    """Raise TypeError for arguments of `publish_cameras` of which others are missing."""
    if viewmats is not None:
        if Ks is None:
            raise TypeError("publish_cameras: viewmats without Ks, (N, 3, 3) in pixels")
        return
    others = {"Ks": Ks, "width": width, "height": height, "images": images}
    for what, value in others.items():
        if value is not None:
            raise TypeError(f"publish_cameras: {what} without viewmats")
    if current is None:
        raise TypeError(
            "publish_cameras needs viewmats, Ks, width and height, or current alone"
        )


def _camera_number(current: Any, count: int | None) -> int:
    """Return the number of one of `count` cameras, of any if that is None. Raises TypeError, ValueError."""
    from splatview_ipc.kinds.cameras import CAMERAS_MOST

    if getattr(current, "is_cuda", False):
        raise TypeError(
            "current is a tensor on a GPU, for whose value we would have to wait; give the number, as "
            "the program knows it when it chooses the camera"
        )
    most = CAMERAS_MOST["cameras"] if count is None else count
    return checks.integer("current", current, 0, most - 1)


class Cameras:
    """The streams of one name: the poses, the camera in use, and photographs, one for each request of a viewer."""

    def __init__(self, publisher: Publisher, name: str) -> None:
        self.count: int | None = None
        self.photos: CallerPhotos | None = None
        self._publisher = publisher
        self._name = name
        self._set = 0
        self._current: Stream | None = None
        self._photo_stream: Stream | None = None
        self._advice = CameraAdvice(publisher, name)
        self._asked: deque[tuple[int, int]] = deque(maxlen=_MAX_ASKED)
        """Camera and side (0: the whole photograph) of what viewers ask for."""

    def publish(
        self, tensors: dict[str, torch.Tensor], photos: CallerPhotos | None
    ) -> None:
        """Make these the cameras from now on. Under the session's lock."""
        from splatview.adapters.overlay import on_one_device

        stream = self._publisher.stream(self._name, "cameras")
        is_new = self._advice.take(tensors, photos)
        if photos is not self.photos:
            self._set += 1
        self.photos = photos
        self.count = len(tensors["viewmats"])
        if self._has_photos and self._photo_stream is None:
            self._photo_stream = self._part("photos", ())
            self._publisher.on_request["Photos", self._photo_stream.name] = self.ask
        if photos is not None and photos.paths is not None:
            tensors["paths"] = photos.paths
        tensors, device = on_one_device(tensors)
        layout = NamedTensors(
            "cameras", tuple(tensors), shape=(self.count,), device=device
        )
        stream.describe(layout, copy=True)
        values = tuple(tensors.values())
        stream.publish((values, {"photos": self._set if self._has_photos else 0}))
        if is_new:
            session().wake()

    @property
    def _has_photos(self) -> bool:
        """True if there are photographs in the memory of this process."""
        photos = self.photos
        return photos is not None and any(t is not None for t in photos.tensors)

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
        """Look at new cameras, and bring a photograph; return when to come again. The worker thread."""
        due = self._advice.turn(now)
        if self._asked and self._photo_stream is not None:
            self._bring(self._photo_stream)
            due = min(due, now + _PACE_S)
        return due

    def _bring(self, stream: Stream) -> None:
        """Publish the photograph that was asked for first."""
        with session().lock:
            photos = self.photos
            number = self._set
        camera, side = self._asked.popleft()
        if photos is None or camera >= len(photos.tensors) or not stream.readers:
            return
        batch = photos.read(camera, side)
        hints = photos.hints()
        self._advice.tell(hints)
        meta: dict[str, Any] = {"camera": camera, "side": side, "photos": number}
        if hints:
            meta["hint"] = "; ".join(hint.text for hint in hints)
        stream.publish(((batch,), meta))

    def close(self) -> None:
        self.photos = None
