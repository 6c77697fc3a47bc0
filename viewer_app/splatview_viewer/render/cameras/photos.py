"""Photographs of training cameras, requested or read when they are looked at.

They are kept within bounds. `PhotoTexture` is one of them on the GPU.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import moderngl
import numpy as np

from splatview_ipc.system.pictures import as_colors, as_stored, find_picture
from splatview_viewer.core.jobs import Job, JobQueue
from splatview_viewer.geometry.training_cameras import NO_CAMERAS, CameraSet
from splatview_viewer.render.gl.passes import PassVariants

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL import Image

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.core.screen import Rect

MAX_PHOTO_BYTES = 256 << 20
"""Bytes of photographs that are kept; the one looked at last is, whatever its size."""
_REQUEST_PERIOD_S = 1.0
"""Seconds after which a photograph that did not come is requested again."""
_MAX_THUMBNAILS = 64
"""Thumbnails that wait to be taken."""
_NO_PHOTO = "This camera was published without a photograph"


class PhotoLoad(NamedTuple):
    """A photograph that is requested of a publisher, or read."""

    camera: int
    side: int
    """Pixels along the side of a thumbnail; 0: the photograph in its own size."""


class Thumbnails:
    """Thumbnails of all cameras, which come in their order and wait to be taken."""

    def __init__(self) -> None:
        self._side = 0
        """Pixels along the side of those that are wanted; 0: none are."""
        self._waiting: dict[int, np.ndarray] = {}
        """By camera."""
        self._next_camera = 0
        """All before the one of this camera have come, or never will."""

    def want(self, side: int) -> None:
        """Want thumbnails of all cameras: squares of `side` pixels."""
        if side != self._side:
            self._side = side
            self.clear()

    def clear(self) -> None:
        """Forget those that wait, and begin with the first camera again."""
        self._waiting.clear()
        self._next_camera = 0

    def take(self, limit: int) -> list[tuple[int, np.ndarray]]:
        """Return thumbnails that came, each once: cameras and (side, side, 3|4) uint8."""
        cameras = list(self._waiting)[:limit]
        return [(camera, self._waiting.pop(camera)) for camera in cameras]

    def put(self, camera: int, thumbnail: np.ndarray) -> None:
        """Keep a thumbnail that was read."""
        self._waiting[camera] = thumbnail

    def put_batch(
        self, request: PhotoLoad, thumbnails: np.ndarray, cameras: CameraSet
    ) -> None:
        """Keep thumbnails (M, side, side, 3) of cameras from the requested one on."""
        first = request.camera
        end = min(first + len(thumbnails), len(cameras))
        if not first <= self._next_camera < end:
            return
        is_square = thumbnails.shape[1:3] == (request.side, request.side)
        while self._next_camera < end:
            camera = self._next_camera
            if cameras.path(camera):
                # Its photograph is in a file, and read from there.
                break
            if is_square:
                self._waiting[camera] = thumbnails[camera - first]
            self._next_camera += 1

    def next_request(self, cameras: CameraSet) -> PhotoLoad | None:
        """Return the next one to request of the publisher; None where none is."""
        camera = self._next_camera
        if not self._side or camera >= len(cameras) or cameras.path(camera):
            return None
        if len(self._waiting) >= _MAX_THUMBNAILS:
            return None
        return PhotoLoad(camera, self._side)

    def next_files(self, cameras: CameraSet, reading: int) -> list[PhotoLoad]:
        """Return the next ones to read from files, and pass them over.

        reading: the number of files that are being read.
        """
        limit = _MAX_THUMBNAILS - len(self._waiting) - reading
        loads: list[PhotoLoad] = []
        while self._side and self._next_camera < len(cameras) and len(loads) < limit:
            camera = self._next_camera
            is_file = bool(cameras.path(camera))
            if not is_file and cameras.photos:
                # The publisher sends this one.
                break
            if is_file:
                loads.append(PhotoLoad(camera, self._side))
            self._next_camera += 1
        return loads


class PhotoStore:
    """Keeps photographs of cameras. Belongs to the loop's thread; jobs read files."""

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        """Start without cameras.

        Args:
            wake: has the loop turn soon, from any thread.
        """
        self.thumbnails = Thumbnails()
        self._cameras = NO_CAMERAS
        self._photos: OrderedDict[int, np.ndarray] = OrderedDict()
        """Photographs by camera, the one looked at last at the end."""
        self._problems: dict[int, str] = {}
        self._wanted_camera = -1
        """Index of the camera whose photograph was missing when it was asked for last."""
        self._request_again_at: dict[PhotoLoad, float] = {}
        self._jobs = JobQueue("read photographs", wake)
        self._reading: dict[PhotoLoad, Job[np.ndarray]] = {}

    def use_cameras(self, cameras: CameraSet) -> bool:
        """Keep photographs of these cameras from now on.

        Returns True if their photographs are others than before.
        """
        previous = self._cameras
        self._cameras = cameras
        is_same_set = (
            len(previous) == len(cameras)
            and previous.paths == cameras.paths
            and previous.photos == cameras.photos
        )
        if not is_same_set:
            self.clear()
        return not is_same_set

    def clear(self) -> None:
        """Forget all photographs and requests."""
        self._jobs.close()
        self._reading.clear()
        self._photos.clear()
        self._problems.clear()
        self._request_again_at.clear()
        self.thumbnails.clear()
        self._wanted_camera = -1

    @property
    def photo_set(self) -> int:
        """The set of photographs that their publisher is asked for; 0: none."""
        return self._cameras.photos

    # -- what is wanted -------------------------------------------------------------------

    def photo(self, camera: int) -> np.ndarray | None:
        """Return a camera's photograph; None while it is not here: see `problem`.

        (H, W, 3) uint8, or (H, W, 4) with straight alpha.
        """
        photo = self._photos.get(camera)
        if photo is not None:
            self._photos.move_to_end(camera)
            return photo
        # One that is here and asked for in each picture holds back no other.
        self._wanted_camera = camera
        if camera not in self._problems:
            if self._cameras.path(camera):
                self._read(PhotoLoad(camera, 0))
            elif not self._cameras.photos:
                self._problems[camera] = _NO_PHOTO
        return None

    def problem(self, camera: int) -> str:
        """Return the reason, for users, why there is no photograph; "" while it may come."""
        return self._problems.get(camera, "")

    def requests(self, now: float) -> list[tuple[int, int]]:
        """Return requests for the publisher (`RemoteStream.request_photos`)."""
        if not self._cameras.photos:
            return []
        requests = []
        if self._is_photo_missing(self._wanted_camera):
            requests.append(PhotoLoad(self._wanted_camera, 0))
        thumbnail = self.thumbnails.next_request(self._cameras)
        if thumbnail is not None:
            requests.append(thumbnail)
        due: list[tuple[int, int]] = []
        for request in requests:
            if now >= self._request_again_at.get(request, 0.0):
                self._request_again_at[request] = now + _REQUEST_PERIOD_S
                due.append(request)
        return due

    def _is_photo_missing(self, camera: int) -> bool:
        """Return True if the publisher has to be asked for a photograph."""
        if not 0 <= camera < len(self._cameras) or self._cameras.path(camera):
            return False
        return camera not in self._photos and camera not in self._problems

    # -- what comes -----------------------------------------------------------------------

    def take_frame(self, frame: StreamFrame) -> bool:
        """Copy photographs that the publisher sent.

        Returns False if the frame was overwritten meanwhile.
        """
        if frame.meta["photos"] != self._cameras.photos:
            return True
        request = PhotoLoad(frame.meta["camera"], frame.meta["side"])
        photos = np.array(frame.tensors["photos"].array)  # type: ignore[union-attr]
        if not frame.intact():
            return False
        self._request_again_at.pop(request, None)
        if request.side:
            self.thumbnails.put_batch(request, photos, self._cameras)
        else:
            self._keep(request.camera, photos[0])
        return True

    def tick(self, now: float) -> bool:
        """Take photographs that were read, and have more read.

        Returns True when one came.
        """
        finished = [request for request, job in self._reading.items() if job.done]
        for request in finished:
            self._take_read(request, self._reading.pop(request))
        for load in self.thumbnails.next_files(self._cameras, len(self._reading)):
            self._read(load)
        return bool(finished)

    def _take_read(self, request: PhotoLoad, job: Job[np.ndarray]) -> None:
        camera, side = request
        if job.error is None:
            if side:
                self.thumbnails.put(camera, job.result())
            else:
                self._keep(camera, job.result())
        elif not side:
            name = Path(self._cameras.path(camera)).name
            self._problems[camera] = f"{name}: {job.error}"

    def _keep(self, camera: int, photo: np.ndarray) -> None:
        """Keep a photograph, and forget those that were not looked at for longest."""
        if photo.size == 0:
            self._problems[camera] = _NO_PHOTO
            return
        photo.flags.writeable = False
        self._photos[camera] = photo
        self._photos.move_to_end(camera)
        total = sum(stored_photo.nbytes for stored_photo in self._photos.values())
        while len(self._photos) > 1 and total > MAX_PHOTO_BYTES:
            _, forgotten = self._photos.popitem(last=False)
            total -= forgotten.nbytes

    def _read(self, request: PhotoLoad) -> None:
        """Have a photograph's file read by a job."""
        if request in self._reading:
            return
        camera, side = request
        width, height = map(int, self._cameras.sizes[camera])
        path = Path(self._cameras.path(camera))
        self._reading[request] = self._jobs.submit(
            lambda _: read_photo(path, (width, height), side), first=not side
        )

    def close(self) -> None:
        """Keep nothing. Idempotent."""
        self.clear()
        self._jobs.close(0.2)
        self._cameras = NO_CAMERAS


def read_photo(path: Path, size: tuple[int, int], side: int = 0) -> np.ndarray:
    """Read a photograph from a file.

    (H, W, 3) uint8, or (H, W, 4) with its alpha where not all of it is opaque. Its pixels
    stay as they lie in the file, whatever EXIF says about its orientation: COLMAP and
    trainers count them so, and the camera's matrices are for them.

    Args:
        path: read as `find_picture` does.
        size: width and height of the camera; a larger picture is brought down to it.
        side: brings the picture to this many pixels in width and height; 0: to `size`.

    Raises:
        OSError: there is no such file.
        ValueError: the file is damaged, too large, or of another format than
            `formats.pictures` reads.
    """
    from splatview_viewer.core.errors import FileError
    from splatview_viewer.core.regular import open_regular
    from splatview_viewer.formats.pictures import open_picture

    existing = find_picture(path)
    if existing is None:
        if os.path.exists(path):
            raise OSError("not a file")
        raise OSError("there is no such file")
    try:
        with open_regular(existing) as file, open_picture(file) as image:
            if side:
                image.draft("RGB", (2 * side, 2 * side))
            photo = as_colors(as_stored(image))
    except FileError as e:
        raise ValueError(str(e)) from None
    return _without_opaque_alpha(np.array(_resized(photo, size, side)))


def _resized(photo: Image.Image, size: tuple[int, int], side: int) -> Image.Image:
    """Return a photograph no larger than `size`, or as a square of `side` pixels.

    Sizes as of `read_photo`.
    """
    from PIL import Image

    if side:
        return photo.resize((side, side), Image.Resampling.BOX, reducing_gap=2.0)
    width, height = photo.size
    if width <= size[0] and height <= size[1]:
        return photo
    resampling = Image.Resampling.LANCZOS
    if width % size[0] == 0:
        resampling = Image.Resampling.BOX
    return photo.resize(size, resampling)


def _without_opaque_alpha(photo: np.ndarray) -> np.ndarray:
    """Drop an alpha channel of 255 alone."""
    if photo.shape[2] == 4 and photo[..., 3].min() == 255:
        return np.ascontiguousarray(photo[..., :3])
    return photo


class PhotoTexture:
    """A photograph on the GPU. Belongs to the thread that holds the context."""

    def __init__(self, ctx: moderngl.Context) -> None:
        self._ctx = ctx
        self._photo: np.ndarray | None = None
        self._texture: moderngl.Texture | None = None
        """RGB, or RGBA with colours multiplied by alpha, so that mixed pixels have the
        right colour."""
        self._is_borrowed = False
        self._lacks_mipmaps = False
        self._passes = PassVariants(ctx, "fullscreen.vert", "photo.frag")

    @property
    def texture(self) -> moderngl.Texture:
        """The photograph that is held, row 0 at the top, colours multiplied by alpha."""
        assert self._texture is not None, "a photograph is taken first"
        return self._texture

    def take(self, photo: np.ndarray, *, is_multiplied: bool = False) -> None:
        """Hold a photograph, which must not change.

        (H, W, 3) or (H, W, 4) uint8. Nothing is done if it is held already.

        Args:
            photo: the photograph.
            is_multiplied: its colours are multiplied by alpha already.
        """
        if photo is self._photo:
            return
        height, width, channels = photo.shape
        texture = self._texture
        can_reuse = (
            texture is not None
            and not self._is_borrowed
            and texture.size == (width, height)
            and texture.components == channels
            and (channels == 3 or is_multiplied)
        )
        if not can_reuse:
            self.drop()
            texture = self._ctx.texture((width, height), channels, alignment=1)
        assert texture is not None
        texture.write(np.ascontiguousarray(photo).tobytes(), alignment=1)
        if channels == 4 and not is_multiplied:
            texture = self._premultiplied(texture)
        texture.repeat_x = False
        texture.repeat_y = False
        self._lacks_mipmaps = True
        self._texture = texture
        self._photo = photo

    def hold(self, texture: moderngl.Texture) -> None:
        """Hold a photograph of the caller's, which stays until another one is held.

        RGBA with colours multiplied by alpha, row 0 at the top. It is given mipmaps where
        it is drawn in another size.
        """
        if texture is self._texture:
            return
        self.drop()
        self._texture = texture
        self._is_borrowed = True
        self._lacks_mipmaps = True

    def _premultiplied(self, straight: moderngl.Texture) -> moderngl.Texture:
        """Return a texture of colours multiplied by their alpha, in half precision.

        The texture that they are read from is released.
        """
        straight.filter = moderngl.NEAREST, moderngl.NEAREST
        texture = self._ctx.texture(straight.size, 4, dtype="f2")
        framebuffer = self._ctx.framebuffer([texture])
        multiply = self._passes("MULTIPLY")
        multiply.bind_textures(photo=straight)
        with self._ctx.scope(framebuffer, moderngl.NOTHING):
            multiply.draw_fullscreen()
        framebuffer.release()
        straight.release()
        return texture

    def draw(
        self,
        framebuffer: moderngl.Framebuffer,
        rect: Rect,
        clip: Rect | None = None,
        background: tuple[float, float, float] = (0.0, 0.0, 0.0),
    ) -> None:
        """Draw the photograph into a part of a framebuffer, every pixel of it once.

        It is smoothed, but drawn as it is in its own size.

        Args:
            framebuffer: the target.
            rect: the part of the target.
            clip: where anything is drawn at all; None: in `rect`.
            background: RGB in [0, 1], seen where the photograph is transparent.
        """
        texture = self._texture
        if texture is None:
            return
        if texture.size == (rect.width, rect.height):
            texture.filter = (moderngl.NEAREST, moderngl.NEAREST)
        else:
            if self._lacks_mipmaps:
                texture.build_mipmaps()
                self._lacks_mipmaps = False
            texture.filter = (moderngl.LINEAR_MIPMAP_LINEAR, moderngl.LINEAR)
        show = self._passes()
        show.bind_textures(photo=texture)
        show.set_uniforms(
            corner=rect.viewport(framebuffer.height)[:2],
            size=(rect.width, rect.height),
            background=background,
        )
        framebuffer.use()
        framebuffer.viewport = (clip or rect).viewport(framebuffer.height)
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        show.draw_fullscreen()

    def drop(self) -> None:
        """Release the photograph that is held. Idempotent."""
        if self._texture is not None and not self._is_borrowed:
            self._texture.release()
        self._is_borrowed = False
        self._texture = None
        self._photo = None

    def close(self) -> None:
        """Release everything. Idempotent."""
        self.drop()
        self._passes.release()
