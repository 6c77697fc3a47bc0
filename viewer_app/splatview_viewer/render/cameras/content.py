"""Content of a stream of cameras, shared by its own view and by scenes that are trained with them: the cameras, and
their photographs, requested or read when they are looked at and kept within bounds.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import moderngl
import numpy as np

from splatview_ipc.system.pictures import as_colors, as_stored, find_picture
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.core.jobs import Job, Jobs
from splatview_viewer.geometry.training_cameras import NO_CAMERAS, CameraSet, cameras_of
from splatview_viewer.render.cameras.drawing import FrustumDrawing
from splatview_viewer.render.cameras.hints import CameraHints
from splatview_viewer.render.gl.passes import Passes

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL import Image

    from splatview_ipc.control.frame import StreamFrame
    from splatview_viewer.core.screen import Rect
    from splatview_viewer.core.view import Value
    from splatview_viewer.gpu.work import GpuWork


class CamerasContent:
    """Lives until the last of those who use it is gone."""

    def __init__(self, ctx: moderngl.Context, work: GpuWork) -> None:
        self.ctx = ctx
        self.work = work
        self.cameras: CameraSet | None = None
        self.current: int | None = None
        """Which one is trained with; None: nobody says."""
        self.changes = 0
        """Counts what came: cameras, photographs, which one is trained with."""
        self.meta: dict[str, object] = {}
        self.photos = PhotoStore(self._wake)
        self.drawing = FrustumDrawing(ctx, work)
        self.hints = CameraHints()
        self.small = True
        """True if small photographs are wanted."""
        self._users: list[Any] = []
        """Views, which have `wake()`: have the loop turn soon, from any thread."""

    def join(self, user: Any) -> None:
        if user not in self._users:
            self._users.append(user)

    def leave(self, user: Any) -> None:
        """Somebody looks no more; with the last one everything is given back. Idempotent."""
        if user in self._users:
            self._users.remove(user)
            if not self._users:
                self.close()

    def _wake(self) -> None:
        for user in list(self._users):
            user.wake()

    @property
    def closed(self) -> bool:
        return not self._users

    def update(self, value: Value) -> bool:
        """As `View.update`."""
        if isinstance(value, np.ndarray) or not hasattr(value, "tensors"):
            raise ViewerError(f"cameras: a {type(value).__name__} holds no cameras")
        frame: StreamFrame = value  # type: ignore[assignment]
        cameras = cameras_of(frame)
        meta = dict(frame.meta)
        if not frame.intact():
            return False
        self.meta = meta
        self.put(cameras)
        return True

    def put(self, cameras: CameraSet) -> None:
        """These are the cameras from now on."""
        others = self.photos.use(cameras)
        self.drawing.use(cameras, photos_stay=not others)
        self.hints.take(cameras)
        self.cameras = cameras
        self.changes += 1

    def take_part(self, frame: StreamFrame) -> bool:
        """Take photographs, or the number of the camera that is trained with. False if they were overwritten meanwhile."""
        if "current" in frame.tensors:
            number = int(frame.tensors["current"].array[0])  # type: ignore[union-attr]
            if not frame.intact():
                return False
            self.changes += number != self.current
            self.current = number
        elif "photos" in frame.tensors:
            self.changes += 1
            if frame.meta["photos"] == self.photos.set_number:
                self.hints.take_photo_hint(frame.meta.get("hint"))
            return self.photos.take(frame)
        return True

    def tick(self, now: float) -> None:
        """Take in what was read, and bring it to the GPU."""
        came = self.photos.tick(now)
        if self.small and self.cameras is not None:
            came |= self.drawing.take_small(self.photos)
        self.changes += came

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._users.clear()
        self.photos.close()
        self.drawing.close()
        self.cameras = None


# -- photographs ------------------------------------------------------------------------------------------------------

KEPT = 256 << 20
"""Bytes of photographs that are kept; the one looked at last is, whatever its size."""
_PATIENCE = 1.0
"""Seconds after which a photograph that did not come is asked for again."""
_MOST_SMALL = 64
"""Small photographs that wait to be taken."""
_NO_PHOTO = "This camera was published without a photograph"


class PhotoStore:
    """Belongs to the loop's thread; jobs read files."""

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        """`wake`: has the loop turn soon, from any thread."""
        self.side = 0
        """Pixels along the side of small photographs that are wanted; 0: none are."""
        self._cameras = NO_CAMERAS
        self._whole: OrderedDict[int, np.ndarray] = OrderedDict()
        self._troubles: dict[int, str] = {}
        self._wanted = -1
        self._asked_at: dict[tuple[int, int], float] = {}
        self._small: dict[int, np.ndarray] = {}
        self._next_small = 0
        """All before that have come, or never will."""
        self._jobs = Jobs("read photographs", wake)
        self._reading: dict[tuple[int, int], Job[np.ndarray]] = {}
        """By camera and side (0: whole)."""

    def use(self, cameras: CameraSet) -> bool:
        """These are the cameras from now on. True if their photographs are others than before."""
        before = self._cameras
        self._cameras = cameras
        if (len(before), before.paths, before.photos) == (
            len(cameras),
            cameras.paths,
            cameras.photos,
        ):
            return False
        self.clear()
        return True

    def clear(self) -> None:
        """Forget what came, and what was asked for."""
        self._jobs.close()
        for held in (
            self._reading,
            self._whole,
            self._troubles,
            self._asked_at,
            self._small,
        ):
            held.clear()
        self._wanted = -1
        self._next_small = 0

    @property
    def set_number(self) -> int:
        """Which set of photographs its publisher is asked for; 0: none."""
        return self._cameras.photos

    # -- what is wanted ----------------------------------------------------------------------------------------

    def whole(self, number: int) -> np.ndarray | None:
        """Return a camera's photograph, (H, W, 3) uint8 or (H, W, 4) with straight alpha; None while it is not here:
        see `trouble`.
        """
        self._wanted = number
        found = self._whole.get(number)
        if found is not None:
            self._whole.move_to_end(number)
            return found
        if number not in self._troubles:
            if self._cameras.path(number):
                self._read(number, 0)
            elif not self._cameras.photos:
                self._troubles[number] = _NO_PHOTO
        return None

    def trouble(self, number: int) -> str:
        """Why there is no photograph of a camera, for people; "" while it may come."""
        return self._troubles.get(number, "")

    def want_small(self, side: int) -> None:
        """All of them are wanted in small: squares of so many pixels."""
        if side != self.side:
            self.side = side
            self._next_small = 0
            self._small.clear()

    def take_small(self, most: int) -> list[tuple[int, np.ndarray]]:
        """Return small photographs that came: numbers and (side, side, 3|4) uint8, each once."""
        return [
            (number, self._small.pop(number)) for number in list(self._small)[:most]
        ]

    def requests(self, now: float) -> list[tuple[int, int]]:
        """Requests for the publisher: cameras and sides (`RemoteStream.request_photos`)."""
        cameras = self._cameras
        out = []
        if not cameras.photos:
            return []
        number = self._wanted
        known = number in self._whole or number in self._troubles
        if 0 <= number < len(cameras) and not known and not cameras.path(number):
            out.append((number, 0))
        if (
            self.side
            and self._next_small < len(cameras)
            and len(self._small) < _MOST_SMALL
            and not cameras.path(self._next_small)
        ):
            out.append((self._next_small, self.side))
        due = [one for one in out if now >= self._asked_at.get(one, 0.0)]
        self._asked_at |= dict.fromkeys(due, now + _PATIENCE)
        return due

    def take(self, frame: StreamFrame) -> bool:
        """Take over photographs that the publisher brought. False if the frame was overwritten meanwhile."""
        photos, cameras = frame.tensors["photos"].array, self._cameras  # type: ignore[union-attr]
        first = frame.meta["camera"]
        side = frame.meta["side"]
        if frame.meta["photos"] != cameras.photos:
            return True
        taken = np.array(photos)
        if not frame.intact():
            return False
        self._asked_at.pop((first, side), None)
        if not side:
            self._keep(first, taken[0])
            return True
        end = min(first + len(taken), len(cameras))
        if first <= self._next_small < end:
            end = next(
                (n for n in range(self._next_small, end) if cameras.path(n)), end
            )  # that is in a file
            if taken.shape[1:3] == (side, side):
                self._small |= {
                    n: taken[n - first] for n in range(self._next_small, end)
                }
            self._next_small = end
        return True

    def tick(self, now: float) -> bool:
        """Take in what was read, and have more read. True when something came."""
        cameras = self._cameras
        done = [found for found in self._reading.items() if found[1].done]
        for (number, side), job in done:
            del self._reading[number, side]
            if job.error is not None:
                if not side:
                    self._troubles[number] = (
                        f"{Path(cameras.path(number)).name}: {job.error}"
                    )
            elif side:
                self._small[number] = job.result()
            else:
                self._keep(number, job.result())
        while (
            self.side
            and self._next_small < len(cameras)
            and (cameras.path(self._next_small) or not cameras.photos)
        ):
            if len(self._small) + len(self._reading) >= _MOST_SMALL:
                break
            if cameras.path(self._next_small):
                self._read(self._next_small, self.side)
            self._next_small += 1
        return bool(done)

    def _keep(self, number: int, photo: np.ndarray) -> None:
        if photo.size == 0:
            self._troubles[number] = _NO_PHOTO
            return
        photo.flags.writeable = False
        self._whole[number] = photo
        self._whole.move_to_end(number)
        while (
            len(self._whole) > 1 and sum(p.nbytes for p in self._whole.values()) > KEPT
        ):
            self._whole.popitem(last=False)

    def _read(self, number: int, side: int) -> None:
        if (number, side) not in self._reading:
            width, height = map(int, self._cameras.sizes[number])
            path = Path(self._cameras.path(number))
            self._reading[number, side] = self._jobs.submit(
                lambda _: read_photo(path, (width, height), side), first=not side
            )

    def close(self) -> None:
        """Keep nothing. Idempotent."""
        self.clear()
        self._jobs.close(0.2)
        self._cameras = NO_CAMERAS


def read_photo(path: Path, size: tuple[int, int], side: int = 0) -> np.ndarray:
    """Return a photograph in a file as (H, W, 3) uint8, or (H, W, 4) with its alpha where not all of it is opaque.

    Its pixels stay as they lie in the file, whatever EXIF says about its orientation: COLMAP and trainers count them
    so, and the camera's matrices are for them.

    Args:
        path: read as `find_picture` does.
        size: width and height of the camera; a larger picture is brought down to it.
        side: brings the picture to so many pixels in width and height; 0: to `size`.

    Raises:
        OSError: there is no such file.
        ValueError: the file is damaged, too large, or of another format than `formats.pictures` reads.
    """
    from splatview_viewer.core.errors import FileError
    from splatview_viewer.core.regular import open_regular
    from splatview_viewer.formats.pictures import open_picture

    existing = find_picture(path)
    if existing is None:
        is_there = os.path.exists(path)
        raise OSError("not a file" if is_there else "there is no such file")
    try:
        with open_regular(existing) as file, open_picture(file) as image:
            if side:
                image.draft("RGB", (2 * side, 2 * side))
            photo = as_colors(as_stored(image))
    except FileError as e:
        raise ValueError(str(e)) from None
    return _opaque(np.array(_resized(photo, size, side)))


def _resized(photo: Image.Image, size: tuple[int, int], side: int) -> Image.Image:
    """Return a photograph no larger than `size`, or with `side` as a square of so many pixels. Sizes as of
    `read_photo`.
    """
    from PIL import Image

    if side:
        return photo.resize((side, side), Image.Resampling.BOX, reducing_gap=2.0)
    width, height = photo.size
    if width <= size[0] and height <= size[1]:
        return photo
    is_multiple = width % size[0] == 0
    return photo.resize(
        size, Image.Resampling.BOX if is_multiple else Image.Resampling.LANCZOS
    )


def _opaque(photo: np.ndarray) -> np.ndarray:
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
        """RGB, or RGBA with colours multiplied by alpha, so that mixed pixels have the right colour."""
        self._passes = Passes(ctx, "fullscreen.vert", "photo.frag")

    def take(self, photo: np.ndarray) -> None:
        """Hold this photograph, (H, W, 3) or (H, W, 4) uint8, which must not change. Nothing is done if it is held
        already.
        """
        if photo is self._photo:
            return
        height, width, channels = photo.shape
        held = self._texture
        can_reuse = (
            held is not None
            and held.size == (width, height)
            and held.components == channels == 3
        )
        if not can_reuse:
            self._release()
            held = self._ctx.texture((width, height), channels, alignment=1)
        assert held is not None
        held.write(np.ascontiguousarray(photo).tobytes(), alignment=1)
        if channels == 4:
            held = self._multiplied(held)
        held.repeat_x = False
        held.repeat_y = False
        held.build_mipmaps()
        self._texture = held
        self._photo = photo

    def _multiplied(self, straight: moderngl.Texture) -> moderngl.Texture:
        """Return a texture of colours multiplied by their alpha, in half precision; release the one they are from."""
        straight.filter = moderngl.NEAREST, moderngl.NEAREST
        texture = self._ctx.texture(straight.size, 4, dtype="f2")
        framebuffer = self._ctx.framebuffer([texture])
        multiply = self._passes("MULTIPLY")
        multiply.read(photo=straight)
        with self._ctx.scope(framebuffer, moderngl.NOTHING):
            multiply.fill()
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
        """Draw the photograph into a part of a framebuffer, every pixel of it once: smoothed, but as it is in its own
        size.

        Args:
            framebuffer: the target.
            rect: the part of the target.
            clip: where anything is drawn at all; None: in `rect`.
            background: RGB in [0, 1], seen where the photograph is transparent.
        """
        texture = self._texture
        if texture is None:
            return
        exact = texture.size == (rect.width, rect.height)
        if exact:
            texture.filter = (moderngl.NEAREST, moderngl.NEAREST)
        else:
            texture.filter = (moderngl.LINEAR_MIPMAP_LINEAR, moderngl.LINEAR)
        shown = self._passes()
        shown.read(photo=texture)
        shown.set(
            corner=rect.viewport(framebuffer.height)[:2],
            size=(rect.width, rect.height),
            background=background,
        )
        framebuffer.use()
        framebuffer.viewport = (clip or rect).viewport(framebuffer.height)
        self._ctx.disable(moderngl.BLEND | moderngl.DEPTH_TEST | moderngl.CULL_FACE)
        shown.fill()

    def _release(self) -> None:
        if self._texture is not None:
            self._texture.release()
        self._texture = None
        self._photo = None

    def close(self) -> None:
        """Give back everything. Idempotent."""
        self._release()
        self._passes.release()
