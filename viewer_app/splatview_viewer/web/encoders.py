"""Encoders of pictures for the browser: pixels in, the bytes of an image file out; and the choice among them.

`tests/viewer/web/test_encoders.py` runs one conformance suite over all implementations.
"""

from __future__ import annotations

import os
from collections import deque
from io import BytesIO
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from splatview_ipc.control.errors import IpcError
from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    import moderngl
    import torch

    Pixels = np.ndarray | torch.Tensor
    Size = tuple[int, int]

VARIABLE = "SPLATVIEW_ENCODER"
"""Environment variable that forces one of CHOICES."""
CHOICES = ("nvjpeg", "turbo")
MAX_SIDE = 16383
"""Pixels; the most that WebP and JPEG have in common."""
BEST = 90
"""From this quality on colours have the full resolution."""


class Encoder(Protocol):
    """Encodes JPEG. May be used by several threads at once."""

    name: ClassVar[str]
    reason: str
    """Why a faster encoder is not used; "" where there is none."""
    took: deque[tuple[Size, float]]
    """Sizes of pictures that a GPU encoded and the milliseconds that it took, until they are taken out."""

    @property
    def device(self) -> int | None:
        """CUDA's ordinal of the GPU whose tensors it takes; None: it takes arrays."""
        ...

    def encode(self, pixels: Pixels, quality: int, *, bottom_up: bool = False, size: Size | None = None) -> bytes:
        """Return the file. Alpha is dropped.

        `pixels`: (H, W, 4) uint8, contiguous, sides 1 to MAX_SIDE; on the GPU it must be there for what this thread's
        current CUDA stream does next, and is read no more when the call returns. `quality`: 1 to 100. `bottom_up`:
        the first row is the lowest, as OpenGL has it. `size`: width and height to shrink the picture to. Raises
        ValueError for other pixels, ViewerError when encoding fails.
        """
        ...

    def close(self) -> None:
        """Release everything; waits for what is being encoded. Idempotent."""
        ...


def forced_encoder() -> str | None:
    """Return what SPLATVIEW_ENCODER names. Raises ViewerError for anything but CHOICES."""
    forced = os.environ.get(VARIABLE) or None
    if forced not in (None, *CHOICES):
        raise ViewerError(f"{VARIABLE}={forced!r}; legal are {', '.join(CHOICES)}, or unset it")
    return forced


def choose(ctx: moderngl.Context) -> Encoder:
    """Return the fastest encoder for what this context draws. The context must be current.

    nvJPEG needs its library and OpenGL on a GPU that CUDA sees in this process; libjpeg-turbo works everywhere, and
    its `reason` says why nvJPEG is not used. Raises ViewerError where SPLATVIEW_ENCODER names none of them, or one
    that cannot work here.
    """
    forced, device = forced_encoder(), None
    try:
        from splatview_ipc.cuda import driver
        from splatview_ipc.gl.direct import require_import

        device = driver.here(require_import(ctx))
        if forced == "turbo":
            return TurboEncoder(f"{VARIABLE}=turbo", device)
        from splatview_viewer.web.nvjpeg import NvJpegEncoder

        return NvJpegEncoder(device)
    except (ViewerError, IpcError) as e:
        if forced == "nvjpeg":
            raise ViewerError(f"{VARIABLE}=nvjpeg, but it cannot work here: {e}") from e
        return TurboEncoder(f"{VARIABLE}=turbo" if forced else str(e), device)


class TurboEncoder:
    """JPEG by libjpeg-turbo on the CPU: about 4 ms for a 1080p picture on one core, without the interpreter's lock."""

    name: ClassVar[str] = "libjpeg-turbo"

    def __init__(self, reason: str = "", device: int | None = None) -> None:
        try:
            from simplejpeg import encode_jpeg
        except ImportError as e:
            raise ViewerError(f"simplejpeg cannot be imported ({e}): pip install 'simplejpeg>=1.7'") from e
        self._encode = encode_jpeg
        self.reason = reason
        self.device = device
        self.took: deque[tuple[Size, float]] = deque()

    def encode(self, pixels: Pixels, quality: int, *, bottom_up: bool = False, size: Size | None = None) -> bytes:
        check(pixels)
        array = host_pixels(pixels)
        height, width = array.shape[:2]
        if size is not None and size != (width, height):
            from PIL import Image

            image = Image.frombuffer("RGBX", (width, height), array, "raw", "RGBX", 0, 1)
            whole = next((n for n in (2, 3, 4) if size == (-(-width // n), -(-height // n))), 0)
            array = np.asarray(image.reduce(whole) if whole  # four times as fast
                               else image.resize(size, Image.Resampling.BOX))
        array = np.ascontiguousarray(array[::-1] if bottom_up else array)
        try:
            return self._encode(array, quality, "RGBX", "444" if quality >= BEST else "420", True)
        except (ValueError, RuntimeError) as e:
            raise ViewerError(f"libjpeg-turbo: a picture of {array.shape[1]} x {array.shape[0]} could not be "
                              f"encoded: {e}") from e

    def close(self) -> None:
        """Nothing is held."""


def lossless(pixels: Pixels, *, bottom_up: bool = False) -> bytes:
    """Return a WebP file with every pixel as it is: about 40 ms for 1080p on one core, without the interpreter's lock.

    Against PNG at its quickest, a 1080p screen with a scene and the panel takes two thirds of the time and of the
    bytes, and noise a third of the time. Raises ViewerError when encoding fails.
    """
    from PIL import Image

    array = host_pixels(pixels)
    opaque = (array[::-1] if bottom_up else array).copy()
    opaque[..., 3] = 255
    image, file = Image.fromarray(opaque), BytesIO()
    try:
        image.save(file, "WEBP", lossless=True, quality=0, method=0)
    except (OSError, ValueError) as e:
        raise ViewerError(f"WebP: a picture of {image.width} x {image.height} could not be encoded: {e}") from e
    return file.getvalue()


def check(pixels: Pixels) -> None:
    """Raise ValueError for pixels that no encoder takes."""
    shape, kind = tuple(pixels.shape), str(pixels.dtype).removeprefix("torch.")
    contiguous = pixels.flags.c_contiguous if isinstance(pixels, np.ndarray) else pixels.is_contiguous()
    right = len(shape) == 3 and shape[2] == 4 and all(1 <= n <= MAX_SIDE for n in shape)
    if not right or kind != "uint8" or not contiguous:
        raise ValueError(f"pixels: {kind} {shape}{'' if contiguous else ', not contiguous'}; an encoder takes "
                         f"contiguous uint8 (H, W, 4), sides 1 to {MAX_SIDE}")


def host_pixels(pixels: Pixels) -> np.ndarray:
    """Return the pixels as an array; those of a GPU are copied, for which this thread waits."""
    return pixels if isinstance(pixels, np.ndarray) else pixels.cpu().numpy()
