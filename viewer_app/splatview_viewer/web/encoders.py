"""Encoders of pictures for the browser, and the choice among them.

They turn pixels into the bytes of an image file.

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
from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.errors import ViewerError

if TYPE_CHECKING:
    import moderngl
    import torch

    Pixels = np.ndarray | torch.Tensor
    Size = tuple[int, int]

FULL_COLOR_QUALITY = 90
"""From this quality on colours have the full resolution."""
_CHANNEL_ORDERS = {3: "RGB", 4: "RGBX"}
"""Names of the orders of channels by their number, the same in both libraries."""


class Encoder(Protocol):
    """Encodes JPEG. May be used by several threads at once."""

    name: ClassVar[str]
    reason: str
    """Why a faster encoder is not used; "" where there is none."""
    durations: deque[tuple[Size, float]]
    """Sizes of pictures that a GPU encoded and the milliseconds that each took, until
    the caller removes them."""

    @property
    def device(self) -> int | None:
        """CUDA's ordinal of the GPU whose tensors it takes; None if it takes arrays."""
        ...

    def encode(
        self,
        pixels: Pixels,
        quality: int,
        *,
        size: Size | None = None,
        is_top_first: bool = False,
    ) -> bytes:
        """Encode a picture; return the JPEG file. Alpha is dropped.

        Args:
            pixels: (H, W, 3 or 4) uint8, contiguous, sides 1 to 16383. On the GPU it
                must be there for what this thread's current CUDA stream does next; it
                is read no more after the call.
            quality: 1 to 100.
            size: width and height to shrink the picture to.
            is_top_first: the first row is the top one; otherwise the lowest, as OpenGL
                has it.

        Raises:
            ViewerError: encoding fails.
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
    """JPEG by libjpeg-turbo on the CPU.

    It takes about 4 ms for a 1080p picture on one core, without the interpreter's lock.
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
        self,
        pixels: Pixels,
        quality: int,
        *,
        size: Size | None = None,
        is_top_first: bool = False,
    ) -> bytes:
        array = host_pixels(pixels)
        height, width = array.shape[:2]
        if size is not None and size != (width, height):
            array = _shrink(array, size)
        if not is_top_first:
            array = array[::-1]
        sampling = "444" if quality >= FULL_COLOR_QUALITY else "420"
        order = _CHANNEL_ORDERS[array.shape[2]]
        try:
            return self._encode(
                np.ascontiguousarray(array), quality, order, sampling, True
            )
        except (ValueError, RuntimeError) as e:
            raise ViewerError(
                f"libjpeg-turbo: a picture of {array.shape[1]} x {array.shape[0]} "
                f"could not be encoded: {e}"
            ) from e

    def close(self) -> None:
        """Do nothing: this encoder holds nothing."""


def _shrink(array: np.ndarray, size: Size) -> np.ndarray:
    """Return a picture (H, W, 3 or 4) in a smaller size."""
    from PIL import Image

    height, width, channels = array.shape
    order = _CHANNEL_ORDERS[channels]
    image = Image.frombuffer(order, (width, height), array, "raw", order, 0, 1)
    # By a whole number `reduce` is four times as fast as `resize`.
    for factor in (2, 3, 4):
        if size == (ceil_div(width, factor), ceil_div(height, factor)):
            return np.asarray(image.reduce(factor))
    return np.asarray(image.resize(size, Image.Resampling.BOX))


def encode_lossless(pixels: Pixels, *, is_top_first: bool = False) -> bytes:
    """Return a WebP file with every pixel as it is.

    It takes about 40 ms for 1080p on one core, without the interpreter's lock. Against
    PNG at its quickest, a 1080p screen with a scene and the panel takes two thirds of
    the time and of the bytes, and noise a third of the time.

    Raises:
        ViewerError: encoding fails.
    """
    from PIL import Image

    array = host_pixels(pixels)
    if not is_top_first:
        array = array[::-1]
    picture = array.copy()
    picture[..., 3:] = 255
    image = Image.fromarray(picture)
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
    """Return the pixels as an array.

    Those of a GPU are copied, for which this thread waits.
    """
    if isinstance(pixels, np.ndarray):
        return pixels
    return pixels.cpu().numpy()


# -- nvJPEG ----------------------------------------------------------------------------

_SYSTEM_LIBRARIES = (
    "libnvjpeg.so.13",
    "libnvjpeg.so.12",
    "libnvjpeg.so.11",
    "libnvjpeg.so",
)
_STATUS = {
    5: "the GPU's memory is full",
    7: "this libnvjpeg is not for this GPU: install the one of torch's CUDA version",
}
"""Texts for the statuses that a user can do something about; see nvjpegStatus_t."""
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
    """Load libnvjpeg, with the signatures of its functions.

    Raises:
        ViewerError: there is no such library.
    """
    for name in _library_names():
        try:
            library = ctypes.CDLL(name)
            for function_name, arguments in _SIGNATURES.items():
                function = getattr(library, function_name)
                function.argtypes = arguments
                function.restype = c_int
        except (OSError, AttributeError):
            continue
        return library
    raise ViewerError(
        "libnvjpeg is not found; it comes with the CUDA toolkit, or with pip install "
        "nvidia-nvjpeg (nvidia-nvjpeg-cu12 for CUDA 12)"
    )


def _library_names() -> list[str]:
    """Return names and paths under which libnvjpeg may be found, the best first.

    Packages come first, for they are of torch's CUDA version, then the system's.
    """
    names: list[str] = []
    nvidia = importlib.util.find_spec("nvidia")
    if nvidia is not None:
        for folder in nvidia.submodule_search_locations or ():
            paths = Path(folder).glob("*/lib/libnvjpeg.so.*")
            names += map(str, sorted(paths, reverse=True))
    names += _SYSTEM_LIBRARIES
    toolkits = Path("/usr/local").glob("cuda*/lib64/libnvjpeg.so.*")
    names += map(str, sorted(toolkits, reverse=True))
    return names


def _call(name: str, *args: Any) -> None:
    """Call a function of nvJPEG.

    Raises:
        ViewerError: it failed; the text names the function and its status.
    """
    status = getattr(nvjpeg_library(), name)(*args)
    if status:
        raise ViewerError(f"{name}: {_STATUS.get(status, f'status {status}')}")


class NvJpegEncoder:
    """JPEG by nvJPEG, on a CUDA stream of its own.

    It takes a fraction of a millisecond for a 1080p picture, nearly all of it on the
    GPU.
    """

    name: ClassVar[str] = "nvJPEG"
    reason = ""

    def __init__(self, device: int) -> None:
        """Make the encoder, and the CUDA context.

        `device` is CUDA's ordinal of the GPU.

        Raises:
            ViewerError: nvJPEG cannot work there.
        """
        self.device = device
        self.durations: deque[tuple[Size, float]] = deque(maxlen=64)
        self._lock = threading.Lock()
        """One picture at a time."""
        self._closed = False
        self._handle = c_void_p()
        self._state = c_void_p()
        self._params = c_void_p()
        self._settings: tuple[int, int] | None = None
        """Quality and sampling that the parameters have."""
        nvjpeg_library()
        import torch

        try:
            with torch.cuda.device(device), driver.context(device):
                self._stream = torch.cuda.Stream()
                self._queue = c_void_p(self._stream.cuda_stream)
                self._pixels_written = torch.cuda.Event()
                self._started = torch.cuda.Event(enable_timing=True)
                # A thread that waits for a blocking event sleeps.
                self._finished = torch.cuda.Event(enable_timing=True, blocking=True)
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
        # A torch without CUDA asserts.
        except (RuntimeError, AssertionError) as e:
            raise ViewerError(
                f"nvJPEG: CUDA does not work on device {device}: {e}"
            ) from e

    def encode(
        self,
        pixels: Pixels,
        quality: int,
        *,
        size: Size | None = None,
        is_top_first: bool = False,
    ) -> bytes:
        import torch

        tensor = self._require_tensor(pixels)
        try:
            with (
                self._lock,
                torch.cuda.device(self.device),
                driver.context(self.device),
                torch.no_grad(),
            ):
                if self._closed:
                    raise ViewerError("the nvJPEG encoder is closed")
                self._pixels_written.record()
                with torch.cuda.stream(self._stream):
                    self._stream.wait_event(self._pixels_written)
                    rgb = tensor[..., :3]
                    if not is_top_first:
                        rgb = rgb.flip(0)
                    data = self._encode(rgb, quality, size)
                encoded_size = size or (tensor.shape[1], tensor.shape[0])
                ms = self._started.elapsed_time(self._finished)
                self.durations.append((encoded_size, ms))
                return data
        # A torch without CUDA asserts.
        except (RuntimeError, AssertionError) as e:
            raise ViewerError(
                f"nvJPEG: CUDA failed on device {self.device}: {e}"
            ) from e

    def _require_tensor(self, pixels: Pixels) -> torch.Tensor:
        """Return the pixels; raise ValueError unless they are on this encoder's GPU."""
        if isinstance(pixels, np.ndarray):
            location = "an array"
        elif pixels.device.type == "cuda" and pixels.device.index == self.device:
            return pixels
        else:
            location = str(pixels.device)
        raise ValueError(
            f"pixels: {location}; this nvJPEG takes tensors on cuda:{self.device}"
        )

    def _encode(self, rgb: torch.Tensor, quality: int, size: Size | None) -> bytes:
        """Encode a picture (H, W, 3), top row first.

        On the stream of the encoder, which is current.
        """
        self._started.record(self._stream)
        if size is not None and size != (rgb.shape[1], rgb.shape[0]):
            rgb = _shrink_on_gpu(rgb, size)
        rgb = rgb.contiguous()
        height, width = rgb.shape[:2]
        self._set_quality(quality)
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
        self._finished.record(self._stream)
        self._finished.synchronize()
        length = c_size_t()
        self._retrieve(None, length)
        data = ctypes.create_string_buffer(length.value)
        self._retrieve(data, length)
        return data.raw[: length.value]

    def _set_quality(self, quality: int) -> None:
        sampling = _CSS_444 if quality >= FULL_COLOR_QUALITY else _CSS_420
        if self._settings == (quality, sampling):
            return
        _call("nvjpegEncoderParamsSetQuality", self._params, quality, self._queue)
        _call(
            "nvjpegEncoderParamsSetSamplingFactors",
            self._params,
            sampling,
            self._queue,
        )
        self._settings = (quality, sampling)

    def _retrieve(
        self, data: ctypes.Array[ctypes.c_char] | None, length: c_size_t
    ) -> None:
        """Copy the file into `data`, or its length into `length` if that is None."""
        _call(
            "nvjpegEncodeRetrieveBitstream",
            self._handle,
            self._state,
            data,
            byref(length),
            self._queue,
        )
        # The result comes in the stream's order.
        self._stream.synchronize()

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


def _shrink_on_gpu(rgb: torch.Tensor, size: Size) -> torch.Tensor:
    """Return a picture (H, W, 3) in a smaller size."""
    import torch

    width, height = size
    planes = rgb.permute(2, 0, 1)[None].float()
    small = torch.nn.functional.interpolate(planes, (height, width), mode="area")
    return small.round_().to(torch.uint8)[0].permute(1, 2, 0)
