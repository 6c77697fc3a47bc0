"""`publish_cameras`: the training cameras, their photographs, and the one in use."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from splatview.adapters import NamedTensors, checks
from splatview.api.camera_advice import CameraAdvice
from splatview.api.session import capturing, public, session

if TYPE_CHECKING:
    import torch

    from splatview.adapters.photos import CallerPhotos
    from splatview_ipc.control import messages
    from splatview_ipc.publisher.publisher import Publisher
    from splatview_ipc.publisher.stream import Stream

_PHOTO_PERIOD_S = 0.015
"""Time between two photographs.

Viewers see the newest frame of a stream only, and need a moment to read it.
"""
_MAX_REQUESTS = 256
"""Requests for photographs that wait.

The first ones are dropped first, and made again by viewers.
"""


class PhotoRequest(NamedTuple):
    """A viewer's request for photographs, as `CallerPhotos.read` takes it."""

    camera: int
    side: int


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
    """Show the cameras that a scene is trained with over it, in every viewer.

    Call it again when poses change. It never waits, neither for a viewer nor for a GPU:
    values on a GPU are not checked. SPLATVIEW_DISABLE=1 makes the call do nothing.

    Args:
        viewmats: (N, 4, 4) or (N, 3, 4) world to camera, OpenCV axes (x right, y down, z
            forward), as gsplat's; N at most 10,000.
        Ks: (N, 3, 3), or one (3, 3) for all: focal lengths and principal point in
            pixels, pixel centres at +0.5. Of (4, 4) and (3, 4) the upper left 3x3 counts.
        width: pixels of the photographs, a number for all or (N,).
        height: likewise.
        images: the photographs, to be seen over what is rendered, with errors and PSNR:
            (N, H, W, 3), or a list with one item for each camera, in any sizes: a tensor
            or array (H, W), (H, W, 1|3|4) or (1|3|4, H, W), uint8 or floating point in
            [0, 1], on the CPU or a GPU; a path, whose file the viewer reads when a user
            wants to see it; or None. They are kept, not copied, until there are others;
            a thread brings the viewer those that a user wants to see. What is
            transparent shows the background that the scene is drawn over. Files count
            as their pixels lie, whatever EXIF says about their orientation, as COLMAP
            and trainers count them. None: the present ones stay, as long as the number
            of cameras does.
        name: the stream's. Viewers show the cameras over the Gaussians of the same run.
        current: the camera that is trained with now, from 0 on, for viewers that follow
            it. `publish_cameras(current=7)` alone says only that, and costs about twenty
            microseconds.
        layout: of images that are no files, as of `publish`: "HW", "HWC", "CHW" or "BGR"
            (as OpenCV has them); None: by their shapes.

    Raises:
        TypeError: an argument is missing or of another type.
        ValueError: what cannot be shown.

    Values that can be shown and look as if another convention was meant (camera to
    world, OpenGL axes, normalised intrinsics, photographs from 0 to 255) are logged
    once, by a thread. Faults of the surroundings never reach the caller, unless
    SPLATVIEW_STRICT=1.
    """
    if viewmats is None:
        camera_arguments = {
            "Ks": Ks,
            "width": width,
            "height": height,
            "images": images,
        }
        _check_current_alone(camera_arguments, current)
    elif Ks is None:
        raise TypeError("publish_cameras: viewmats without Ks, (N, 3, 3) in pixels")
    checks.stream_name(name)
    if session().idle or capturing():
        return
    cameras: Cameras | None = session().features.get(f"cameras {name}")
    count = None if cameras is None else cameras.count
    photos = None
    tensors = None
    if viewmats is not None:
        from splatview.adapters.cameras import camera_tensors
        from splatview.adapters.photos import CallerPhotos, check_layout

        check_layout(layout)
        tensors = camera_tensors(viewmats, Ks, width, height)
        count = len(tensors["viewmats"])
        if cameras is not None and cameras.count == count:
            photos = cameras.photos
        if images is not None and (photos is None or not photos.is_of(images, layout)):
            photos = CallerPhotos(images, tensors["sizes"], layout)
    current_index = None if current is None else _camera_index(current, count)
    cameras = session().feature(
        f"cameras {name}", lambda publisher: Cameras(publisher, name)
    )
    if cameras is None:
        return
    with session().lock:
        if tensors is not None:
            cameras.publish(tensors, photos)
        if current_index is not None:
            cameras.publish_current(current_index)


def _check_current_alone(camera_arguments: dict[str, Any], current: Any) -> None:
    """Raise TypeError unless `current` is the only argument where viewmats are missing."""
    for name, value in camera_arguments.items():
        if value is not None:
            raise TypeError(f"publish_cameras: {name} without viewmats")
    if current is None:
        raise TypeError(
            "publish_cameras needs viewmats, Ks, width and height, or current alone"
        )


def _camera_index(current: Any, count: int | None) -> int:
    """Return the index of one of `count` cameras; None: of any number of them."""
    from splatview_ipc.kinds.cameras import CAMERA_LIMITS

    if getattr(current, "is_cuda", False):
        raise TypeError(
            "current is a tensor on a GPU, for whose value we would have to wait; give "
            "the number, as the program knows it when it chooses the camera"
        )
    if count is None:
        count = CAMERA_LIMITS["cameras"]
    return checks.integer("current", current, 0, count - 1)


class Cameras:
    """The streams of one name: poses, the camera in use, and requested photographs."""

    def __init__(self, publisher: Publisher, name: str) -> None:
        self.count: int | None = None
        self.photos: CallerPhotos | None = None
        self._publisher = publisher
        self._name = name
        self._photo_set = 0
        """Number of the present photographs; it grows when there are others."""
        self._current_stream: Stream | None = None
        self._photo_stream: Stream | None = None
        self._advice = CameraAdvice(publisher, name)
        self._requests: deque[PhotoRequest] = deque(maxlen=_MAX_REQUESTS)

    def publish(
        self, tensors: dict[str, torch.Tensor], photos: CallerPhotos | None
    ) -> None:
        """Make these the cameras from now on. Under the session's lock."""
        from splatview.adapters.overlay import on_one_device

        stream = self._publisher.stream(self._name, "cameras")
        must_check = self._advice.take(tensors, photos)
        if photos is not self.photos:
            self._photo_set += 1
        self.photos = photos
        self.count = len(tensors["viewmats"])
        if self._has_photos and self._photo_stream is None:
            self._photo_stream = self._companion_stream("photos", ())
            key = ("Photos", self._photo_stream.name)
            self._publisher.on_request[key] = self.take_request
        if photos is not None and photos.paths is not None:
            tensors["paths"] = photos.paths
        tensors, device = on_one_device(tensors)
        names = tuple(tensors)
        stream.describe(
            NamedTensors("cameras", names, shape=(self.count,), device=device),
            copy=True,
        )
        photo_set = self._photo_set if self._has_photos else 0
        stream.publish((tuple(tensors.values()), {"photos": photo_set}))
        if must_check:
            session().wake()

    @property
    def _has_photos(self) -> bool:
        """True if there are photographs in the memory of this process."""
        if self.photos is None:
            return False
        return any(tensor is not None for tensor in self.photos.tensors)

    def publish_current(self, index: int) -> None:
        """Show which camera is trained with."""
        import torch

        if self._current_stream is None:
            self._current_stream = self._companion_stream("current", (1,))
        indices = torch.tensor([index], dtype=torch.int32)
        self._current_stream.publish(((indices,), {}))

    def _companion_stream(self, field: str, shape: tuple[int, ...]) -> Stream:
        """Return a stream of one tensor that belongs to that of the poses."""
        from splatview_ipc.control.limits import MAX_NAME
        from splatview_ipc.publisher.stream_channels import OverlaidStream

        name = f"{self._name[: MAX_NAME - 10]} {field}"
        stream = self._publisher.stream(name, "cameras")
        stream.over = OverlaidStream(self._name)
        stream.describe(NamedTensors("cameras", (field,), shape=shape), copy=True)
        return stream

    def take_request(self, message: messages.Photos) -> None:
        """Take a viewer's request for photographs. On the publisher's helper thread."""
        request = PhotoRequest(message.camera, message.side)
        if request not in self._requests:
            self._requests.append(request)
        session().wake()

    def tick(self, now: float) -> float:
        """Check new cameras and bring a photograph; return when to be called again.

        On the worker thread.
        """
        due = self._advice.tick(now)
        if self._requests and self._photo_stream is not None:
            self._publish_photo(self._photo_stream)
            due = min(due, now + _PHOTO_PERIOD_S)
        return due

    def _publish_photo(self, stream: Stream) -> None:
        """Publish the photographs of the oldest request."""
        with session().lock:
            photos = self.photos
            photo_set = self._photo_set
        camera, side = self._requests.popleft()
        if photos is None or camera >= len(photos.tensors) or not stream.readers:
            return
        batch = photos.read(camera, side)
        hints = photos.hints()
        self._advice.log_new(hints)
        meta: dict[str, Any] = {"camera": camera, "side": side, "photos": photo_set}
        if hints:
            meta["hint"] = "; ".join(hint.text for hint in hints)
        stream.publish(((batch,), meta))

    def close(self) -> None:
        """Let go of the photographs."""
        self.photos = None
