"""Encoders of pictures for the browser: pixels in, the bytes of an image file out; and
the choice among them.

libjpeg-turbo encodes on the CPU, nvJPEG on the GPU that has the pixels. The latter's
library comes with the CUDA toolkit, or as the package nvidia-nvjpeg.

`tests/viewer/web/test_encoders.py` runs one conformance suite over all implementations.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import threading
from collections import deque
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from splatview_ipc.control.errors import IpcError
from splatview_ipc.cuda import driver
from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    import moderngl
    import torch

    Pixels = np.ndarray | torch.Tensor
    Size = tuple[int, int]

FULL_COLOR_QUALITY = 90
"""From this quality on colours have the full resolution."""


class Encoder(Protocol):
    """Encodes JPEG. May be used by several threads at once."""

    name: ClassVar[str]
    reason: str
    """Why a faster encoder is not used; "" where there is none."""
    durations: deque[tuple[Size, float]]
    """Sizes of pictures that a GPU encoded and the milliseconds that it took, until
    they are taken out."""

    @property
    def device(self) -> int | None:
        """CUDA's ordinal of the GPU whose tensors it takes; None: it takes arrays."""
        ...

    def encode(
        self, pixels: Pixels, quality: int, *, size: Size | None = None
    ) -> bytes:
        """Return the file.

        Alpha is dropped.

        `pixels`: (H, W, 4) uint8, contiguous, sides 1 to 16383, the lowest row first,
        as OpenGL has it; on the GPU it must be there for what this thread's current
        CUDA stream does next, and is read no more after the call. `quality`: 1 to 100.
        `size`: width and height to shrink the picture to. Raises ViewerError when
        encoding fails.
        """
        ...

    def close(self) -> None:
        """Release everything; waits for what is being encoded. Idempotent."""
        ...


def choose_encoder(ctx: moderngl.Context) -> Encoder:
    """Return the fastest encoder for what this context draws.

    The context must be current.

    nvJPEG needs its library and OpenGL on a GPU that CUDA sees in this process;
    libjpeg-turbo works everywhere, and its `reason` says why nvJPEG is not used.
    """
    device = None
    try:
        from splatview_ipc.gl.direct import require_import

        device = driver.require_device(require_import(ctx))
        return NvJpegEncoder(device)
    except (ViewerError, IpcError) as e:
        return TurboEncoder(str(e), device)


class TurboEncoder:
    """JPEG by libjpeg-turbo on the CPU: about 4 ms for a 1080p picture on one core,
    without the interpreter's lock.
    """

    name: ClassVar[str] = "libjpeg-turbo"

    def __init__(self, reason: str = "", device: int | None = None) -> None:
        try:
            from simplejpeg import encode_jpeg
        except ImportError as e:
            raise ViewerError(
                f"simplejpeg cannot be imported ({e}): pip install 'simplejpeg>=1.7'"
            ) from e
        self._encode = encode_jpeg
        self.reason = reason
        self.device = device
        self.durations: deque[tuple[Size, float]] = deque()

    def encode(
        self, pixels: Pixels, quality: int, *, size: Size | None = None
    ) -> bytes:
        array = host_pixels(pixels)
        height, width = array.shape[:2]
        if size is not None and size != (width, height):
            from PIL import Image

            image = Image.frombuffer(
                "RGBX", (width, height), array, "raw", "RGBX", 0, 1
            )
            whole = next(
                (n for n in (2, 3, 4) if size == (-(-width // n), -(-height // n))), 0
            )
            array = np.asarray(
                image.reduce(whole)
                if whole  # four times as fast
                else image.resize(size, Image.Resampling.BOX)
            )
        array = np.ascontiguousarray(array[::-1])
        try:
            return self._encode(
                array,
                quality,
                "RGBX",
                "444" if quality >= FULL_COLOR_QUALITY else "420",
                True,
            )
        except (ValueError, RuntimeError) as e:
            raise ViewerError(
                f"libjpeg-turbo: a picture of {array.shape[1]} x {array.shape[0]} "
                "could not be "
                f"encoded: {e}"
            ) from e

    def close(self) -> None:
        """Nothing is held."""


def encode_lossless(pixels: Pixels) -> bytes:
    """Return a WebP file with every pixel as it is: about 40 ms for 1080p on one core,
    without the interpreter's lock.

    Against PNG at its quickest, a 1080p screen with a scene and the panel takes two
    thirds of the time and of the bytes, and noise a third of the time. Raises
    ViewerError when encoding fails.
    """
    from PIL import Image

    array = host_pixels(pixels)
    opaque = array[::-1].copy()
    opaque[..., 3] = 255
    image = Image.fromarray(opaque)
    file = BytesIO()
    try:
        image.save(file, "WEBP", lossless=True, quality=0, method=0)
    except (OSError, ValueError) as e:
        raise ViewerError(
            f"WebP: a picture of {image.width} x {image.height} could not be encoded: "
            f"{e}"
        ) from e
    return file.getvalue()


def host_pixels(pixels: Pixels) -> np.ndarray:
    """Return the pixels as an array; those of a GPU are copied, for which this thread
    waits.
    """
    return pixels if isinstance(pixels, np.ndarray) else pixels.cpu().numpy()


# -- nvJPEG ----------------------------------------------------------------------------

_NAMES = ("libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11", "libnvjpeg.so")
_STATUS = {
    5: "the GPU's memory is full",
    7: "this libnvjpeg is not for this GPU: install the one of torch's CUDA version",
}
"""Words for the statuses that a user can do something about; see nvjpegStatus_t."""
_CSS_444 = 0
_CSS_420 = 2
_RGBI = 5


class _Image(ctypes.Structure):
    _fields_ = (("channel", c_void_p * 4), ("pitch", c_size_t * 4))


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "nvjpegCreateSimple": (POINTER(c_void_p),),
    "nvjpegDestroy": (c_void_p,),
    "nvjpegEncoderStateCreate": (c_void_p, POINTER(c_void_p), c_void_p),
    "nvjpegEncoderStateDestroy": (c_void_p,),
    "nvjpegEncoderParamsCreate": (c_void_p, POINTER(c_void_p), c_void_p),
    "nvjpegEncoderParamsDestroy": (c_void_p,),
    "nvjpegEncoderParamsSetQuality": (c_void_p, c_int, c_void_p),
    "nvjpegEncoderParamsSetSamplingFactors": (c_void_p, c_int, c_void_p),
    "nvjpegEncodeImage": (
        c_void_p,
        c_void_p,
        c_void_p,
        POINTER(_Image),
        c_int,
        c_int,
        c_int,
        c_void_p,
    ),
    "nvjpegEncodeRetrieveBitstream": (
        c_void_p,
        c_void_p,
        c_char_p,
        POINTER(c_size_t),
        c_void_p,
    ),
}


@functools.cache
def nvjpeg_library() -> ctypes.CDLL:
    """libnvjpeg with its signatures. Raises ViewerError where there is none."""
    # Packages first, for they are of torch's CUDA version, then the system's.
    nvidia = importlib.util.find_spec("nvidia")
    packages = (nvidia and nvidia.submodule_search_locations) or ()
    packaged = [
        path
        for folder in packages
        for path in sorted(Path(folder).glob("*/lib/libnvjpeg.so.*"), reverse=True)
    ]
    toolkits = sorted(
        Path("/usr/local").glob("cuda*/lib64/libnvjpeg.so.*"), reverse=True
    )
    for name in (*map(str, packaged), *_NAMES, *map(str, toolkits)):
        try:
            loaded = ctypes.CDLL(name)
            for function, arguments in _SIGNATURES.items():
                getattr(loaded, function).argtypes = arguments
                getattr(loaded, function).restype = c_int
        except (OSError, AttributeError):
            continue
        return loaded
    raise ViewerError(
        "libnvjpeg is not found; it comes with the CUDA toolkit, or with pip install "
        "nvidia-nvjpeg "
        "(nvidia-nvjpeg-cu12 for CUDA 12)"
    )


def _call(name: str, *args: Any) -> None:
    """Raises ViewerError that names the function and nvJPEG's status."""
    status = getattr(nvjpeg_library(), name)(*args)
    if status:
        raise ViewerError(f"{name}: {_STATUS.get(status, f'status {status}')}")


class NvJpegEncoder:
    """A fraction of a millisecond for a 1080p picture, nearly all of it on the GPU, on
    a CUDA stream of its own.
    """

    name: ClassVar[str] = "nvJPEG"
    reason = ""

    def __init__(self, device: int) -> None:
        """`device`: CUDA's ordinal of the GPU.

        Raises ViewerError where nvJPEG cannot work; makes the CUDA context.
        """
        self.device = device
        self.durations: deque[tuple[Size, float]] = deque(maxlen=64)
        self._lock = threading.Lock()
        """One picture at a time."""
        self._closed = False
        self._handle, self._state, self._params = c_void_p(), c_void_p(), c_void_p()
        self._set: tuple[int, int] | None = None
        nvjpeg_library()
        import torch

        try:
            with torch.cuda.device(device), driver.context(device):
                self._stream = torch.cuda.Stream()
                self._queue = c_void_p(self._stream.cuda_stream)
                self._given = torch.cuda.Event()
                self._begin = torch.cuda.Event(enable_timing=True)
                self._end = torch.cuda.Event(
                    enable_timing=True, blocking=True
                )  # the thread sleeps until then
                _call("nvjpegCreateSimple", byref(self._handle))
                _call(
                    "nvjpegEncoderStateCreate",
                    self._handle,
                    byref(self._state),
                    self._queue,
                )
                _call(
                    "nvjpegEncoderParamsCreate",
                    self._handle,
                    byref(self._params),
                    self._queue,
                )
                self._stream.synchronize()
        except (RuntimeError, AssertionError) as e:  # a torch without CUDA asserts
            raise ViewerError(
                f"nvJPEG: CUDA does not work on device {device}: {e}"
            ) from e

    def encode(
        self, pixels: Pixels, quality: int, *, size: Size | None = None
    ) -> bytes:
        import torch

        if not isinstance(pixels, torch.Tensor) or pixels.device != torch.device(
            "cuda", self.device
        ):
            raise ValueError(
                "pixels: "
                f"{'an array' if not isinstance(pixels, torch.Tensor) else pixels.device}; this "
                f"nvJPEG takes tensors on cuda:{self.device}"
            )
        try:
            with (
                self._lock,
                torch.cuda.device(self.device),
                driver.context(self.device),
                torch.no_grad(),
            ):
                if self._closed:
                    raise ViewerError("the nvJPEG encoder is closed")
                self._given.record()
                with torch.cuda.stream(self._stream):
                    self._stream.wait_event(self._given)
                    data = self._encode(pixels[..., :3], quality, size)
                self.durations.append(
                    (
                        size or (pixels.shape[1], pixels.shape[0]),
                        self._begin.elapsed_time(self._end),
                    )
                )
                return data
        except (RuntimeError, AssertionError) as e:  # a torch without CUDA asserts
            raise ViewerError(
                f"nvJPEG: CUDA failed on device {self.device}: {e}"
            ) from e

    def _encode(self, rgb: torch.Tensor, quality: int, size: Size | None) -> bytes:
        import torch

        self._begin.record(self._stream)
        if size is not None and size != (rgb.shape[1], rgb.shape[0]):
            planes = rgb.permute(2, 0, 1)[None].float()
            small = torch.nn.functional.interpolate(planes, size[::-1], mode="area")
            rgb = small.round_().to(torch.uint8)[0].permute(1, 2, 0)
        rgb = rgb.flip(0).contiguous()  # the top row first
        height, width = rgb.shape[:2]
        sampling = _CSS_444 if quality >= FULL_COLOR_QUALITY else _CSS_420
        if self._set != (quality, sampling):
            _call("nvjpegEncoderParamsSetQuality", self._params, quality, self._queue)
            _call(
                "nvjpegEncoderParamsSetSamplingFactors",
                self._params,
                sampling,
                self._queue,
            )
            self._set = quality, sampling
        image = _Image()
        image.channel[0] = rgb.data_ptr()
        image.pitch[0] = 3 * width
        _call(
            "nvjpegEncodeImage",
            self._handle,
            self._state,
            self._params,
            byref(image),
            _RGBI,
            width,
            height,
            self._queue,
        )
        self._end.record(self._stream)
        self._end.synchronize()
        length = c_size_t()
        _call(
            "nvjpegEncodeRetrieveBitstream",
            self._handle,
            self._state,
            None,
            byref(length),
            self._queue,
        )
        self._stream.synchronize()  # the length comes in the stream's order
        data = ctypes.create_string_buffer(length.value)
        _call(
            "nvjpegEncodeRetrieveBitstream",
            self._handle,
            self._state,
            data,
            byref(length),
            self._queue,
        )
        self._stream.synchronize()
        return data.raw[: length.value]

    def close(self) -> None:
        with self._lock, driver.context(self.device):
            if self._closed:
                return
            self._closed = True
            self._stream.synchronize()
            library = nvjpeg_library()
            library.nvjpegEncoderParamsDestroy(self._params)
            library.nvjpegEncoderStateDestroy(self._state)
            library.nvjpegDestroy(self._handle)
