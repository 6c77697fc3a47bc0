"""`publish_cameras`: the cameras that a scene is trained with, their photographs, and which one is at work."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections import deque
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

from splatview.adapters.metadata import check_tensor
from splatview.api import publish as publishing

if TYPE_CHECKING:
    import torch

    from splatview.adapters.cameras import CamerasForm, Photos
    from splatview_ipc import Publisher, Stream

__all__ = ["publish_cameras"]

_PACE = 0.015
"""Seconds between two answers: viewers see the newest frame of a stream, and need a moment to look."""
_MOST_ASKED = 256
"""Photographs that wait to be brought; what was asked for first is forgotten first, and asked for again."""
_NOTHING: dict[str, Any] = {}


def publish_cameras(viewmats: Any = None, Ks: Any = None, width: Any = None, height: Any = None, images: Any = None,
                    name: str = "cameras", *, current: SupportsIndex | None = None) -> None:
    """Show the cameras that a scene is trained with over it, in every viewer, and go on at once.

    viewmats: (N, 4, 4) world to camera, OpenCV axes (x right, y down, z forward), as gsplat's; N at most 10,000.
    Ks: (N, 3, 3), or one (3, 3) for all: focal lengths and principal point in pixels, pixel centres at +0.5.
    width, height: pixels of the photographs, a number for all or (N,).
    images: the photographs, to be seen over what is rendered, with errors and PSNR: (N, H, W, 3), or a list with one
        item for each camera, in any sizes: a tensor or array (H, W), (H, W, 1|3|4) or (1|3|4, H, W), uint8 or floating
        point in [0, 1], on the CPU or a GPU; a path, whose file the viewer reads when it is looked at; or None. They
        are kept, not copied, until there are others; the viewer is brought those that somebody looks at, by a thread.
        None: those that there are stay, as long as the number of cameras does.
    name: the stream's. Viewers show the cameras over the Gaussians of the same run.
    current: the camera that is trained with now, from 0 on, for viewers that follow it.
        `publish_cameras(current=7)` alone says only that, and costs about twenty microseconds.

    Call it again when poses change. It never waits, neither for a viewer nor for a GPU: values on a GPU are not looked
    at. Raises TypeError or ValueError for what cannot be shown. Faults of the surroundings never reach the caller,
    unless SPLATVIEW_STRICT=1. SPLATVIEW_DISABLE=1 makes the call do nothing.
    """
    if publishing.disabled():
        return
    cameras = _known.get(name)
    if viewmats is None:
        if (what := next((n for n, v in (("Ks", Ks), ("width", width), ("height", height), ("images", images))
                          if v is not None), None)) is not None or current is None:
            raise TypeError(f"publish_cameras: {what} without viewmats" if what else
                            "publish_cameras needs viewmats, Ks, width and height, or current alone")
    elif Ks is None:
        raise TypeError("publish_cameras: viewmats without Ks, (N, 3, 3) in pixels")
    number = None if current is None else _ordinal(current)
    if cameras is None or cameras.publisher is not publishing.begun():
        publishing.check_name(name)
    if publishing.capturing():
        return
    if viewmats is not None:
        found, photos = _adapted(viewmats, Ks, width, height, images, cameras)
        count = len(found["viewmats"])
    else:
        found, photos, count = None, None, None if cameras is None else cameras.count
    if number is not None and count is not None and number >= count:
        raise ValueError(f"current is {number}; legal are 0 to {count - 1}")
    publisher = publishing.running()
    if publisher is None:
        return
    with _lock:
        cameras = _known.get(name)
        if cameras is None or cameras.publisher is not publisher:
            cameras = _known[name] = _Cameras(publisher, name)
        try:
            if found is not None:
                cameras.publish(found, photos)
            if number is not None:
                cameras.say(number)
        except ValueError:
            raise  # another kind has this name
        except Exception as e:
            publishing.fault(e)


class _Cameras:
    """What one name stands for: three streams, of which two come when there is something to say in them."""

    def __init__(self, publisher: Publisher, name: str) -> None:
        self.publisher = publisher
        self.count: int | None = None
        """Cameras; None before they were published."""
        self.photos: Photos | None = None
        self._name = name
        self._set = 0
        """Which set of photographs there is."""
        self._forms: dict[tuple[tuple[str, ...], str], CamerasForm] = {}
        self._current: Stream | None = None
        self._asked: deque[tuple[int, int]] = deque(maxlen=_MOST_ASKED)
        self._photo_stream: Stream | None = None

    # The trainer's threads, one at a time.

    def publish(self, tensors: dict[str, torch.Tensor], photos: Photos | None) -> None:
        """`photos`: None: those that there are, if they fit."""
        from splatview.adapters.overlay import device_of, together

        stream = self.publisher.stream(self._name, "cameras")
        count = len(tensors["viewmats"])
        if photos is not None or count != self.count:
            if photos is not self.photos:
                self._set += 1
            self.photos, self.count = photos, count
            if photos is not None and photos.any:
                self._offer()
        paths = None if self.photos is None else self.photos.texts()
        if paths is not None:
            tensors["paths"] = paths
        device = device_of(tensors)
        if device is not None:
            tensors = together(tensors, device)
        form = self._form(tuple(tensors), str(device or "cpu"), (count,))
        has = self.photos is not None and self.photos.any
        stream.describe(form, copy=True)
        stream.publish((tuple(tensors.values()), {"photos": self._set if has else 0}))

    def say(self, number: int) -> None:
        """Which camera is trained with."""
        import torch

        stream = self._current
        if stream is None:
            stream = self._part("current")
            stream.describe(self._form(("current",), "cpu", (1,)), copy=True)
            self._current = stream
        stream.publish(((torch.tensor([number], dtype=torch.int32),), _NOTHING))

    def _offer(self) -> None:
        """Photographs can be asked for."""
        if self._photo_stream is None:
            stream = self._photo_stream = self._part("photos")
            stream.describe(self._form(("photos",), "cpu", ()), copy=True)
            self.publisher.on_photos[stream.name] = self.ask

    def _part(self, what: str) -> Stream:
        """A stream that belongs to the one of the poses."""
        from splatview_ipc.control.limits import MAX_NAME

        stream = self.publisher.stream(f"{self._name[: MAX_NAME - 10]} {what}", "cameras")
        stream.over = self._name, ""
        return stream

    def _form(self, names: tuple[str, ...], device: str, shape: tuple[int, ...]) -> CamerasForm:
        from splatview.adapters.cameras import CamerasForm

        form = self._forms.get((names, device))
        if form is None or form.shape != shape:
            form = self._forms[names, device] = CamerasForm(names, device, shape)
        return form

    # The helper thread.

    def ask(self, camera: int, side: int) -> None:
        """A viewer wants to see a photograph, or small ones from that on."""
        if (camera, side) not in self._asked:
            self._asked.append((camera, side))
        _bringer.wake()

    # Our own thread.

    def bring(self) -> bool:
        """Answer once; whether there was anything to do."""
        stream = self._photo_stream
        if not self._asked or stream is None:
            return False
        camera, side = self._asked.popleft()
        with _lock:
            photos, number = self.photos, self._set
        if photos is None or camera >= len(photos.tensors) or not stream.readers:
            return True
        tensor = photos.small(camera, side) if side else photos.whole(camera)
        stream.publish(((tensor,), {"camera": camera, "side": side, "photos": number}))
        return True


class _Bringer:
    """The thread that brings what viewers ask for; begun when somebody asks."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        """Held while a thread begins, which the trainer's thread may want to end in that moment."""

    def wake(self) -> None:
        with self._lock:
            if self._thread is None:
                self._ending = False
                self._thread = threading.Thread(target=self._run, name="splatview cameras", daemon=True)
                self._thread.start()
        self._wake.set()

    def end(self) -> None:
        with self._lock:
            thread, self._ending = self._thread, True
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=20)
        with self._lock:
            if self._thread is thread:
                self._thread = None

    def _run(self) -> None:
        while not self._ending:
            self._wake.wait()
            self._wake.clear()
            again = True
            while again and not self._ending:
                again = False
                for cameras in list(_known.values()):
                    try:
                        again |= cameras.bring()
                    except Exception as e:
                        again = True
                        with contextlib.suppress(Exception):  # raising on request is for the trainer's own thread
                            publishing.fault(e)
                if again:
                    threading.Event().wait(_PACE)


_known: dict[str, _Cameras] = {}
_bringer = _Bringer()
_lock = threading.Lock()


def end() -> None:
    """Keep nothing any more. The next `publish_cameras` begins again. Idempotent."""
    _bringer.end()
    _known.clear()


def _adapted(viewmats: Any, intrinsics: Any, width: Any, height: Any, images: Any, before: _Cameras | None
             ) -> tuple[dict[str, torch.Tensor], Photos | None]:
    from splatview.adapters.cameras import Photos, poses

    found = poses(viewmats, intrinsics, width, height)
    count = len(found["viewmats"])
    old = None if before is None or before.count != count else before.photos
    if images is None or (old is not None and old.given is images):
        return found, old
    return found, Photos(images, count)


def _ordinal(value: Any) -> int:
    if getattr(value, "is_cuda", False):
        raise TypeError("current is a tensor on a GPU, for whose value we would have to wait; give the number, as the "
                        "program knows it when it chooses the camera")
    check_tensor(value, "current")
    try:
        if isinstance(value, bool):
            raise TypeError
        number = index(value)
    except TypeError:
        raise TypeError(f"current is a {type(value).__name__}, not a camera's number, an int") from None
    from splatview_ipc.kinds.rules import CAMERAS_MOST

    if not 0 <= number < CAMERAS_MOST["cameras"]:
        raise ValueError(f"current is {number}; legal are 0 to {CAMERAS_MOST['cameras'] - 1}")
    return number


def _after_fork_in_child() -> None:
    """What was published is the parent's."""
    global _bringer, _lock
    _known.clear()
    _bringer, _lock = _Bringer(), threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_bringer.end)
