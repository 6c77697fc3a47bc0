"""JPEG by nvJPEG, on the GPU that has the pixels.

The library comes with the CUDA toolkit, or as the package nvidia-nvjpeg.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import threading
from collections import deque
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from splatview_ipc.cuda import driver
from splatview_viewer.core.errors import ViewerError
from splatview_viewer.web.encoders import BEST, check

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from splatview_viewer.web.encoders import Pixels, Size

_NAMES = ("libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11", "libnvjpeg.so")
_STATUS = ("SUCCESS", "NOT_INITIALIZED", "INVALID_PARAMETER", "BAD_JPEG", "JPEG_NOT_SUPPORTED", "ALLOCATOR_FAILURE",
           "EXECUTION_FAILED", "ARCH_MISMATCH", "INTERNAL_ERROR", "IMPLEMENTATION_NOT_SUPPORTED",
           "INCOMPLETE_BITSTREAM")
_ADVICE = {"ALLOCATOR_FAILURE": "the GPU's memory is full",
           "ARCH_MISMATCH": "this libnvjpeg is not for this GPU: install the one of torch's CUDA version"}
_CSS_444, _CSS_420 = 0, 2
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
    "nvjpegEncodeImage": (c_void_p, c_void_p, c_void_p, POINTER(_Image), c_int, c_int, c_int, c_void_p),
    "nvjpegEncodeRetrieveBitstream": (c_void_p, c_void_p, c_char_p, POINTER(c_size_t), c_void_p),
}


def candidates() -> Iterator[str]:
    """Yield the libraries to try, in order: packages first, for they are of torch's CUDA version, then the system's."""
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found is not None else ():
        for path in sorted(Path(folder).glob("*/lib/libnvjpeg.so.*"), reverse=True):
            yield str(path)
    yield from _NAMES
    for toolkit in sorted(Path("/usr/local").glob("cuda*/lib64/libnvjpeg.so.*"), reverse=True):
        yield str(toolkit)


@functools.cache
def library() -> ctypes.CDLL:
    """libnvjpeg with its signatures. Raises ViewerError where there is none."""
    for name in candidates():
        try:
            loaded = ctypes.CDLL(name)
            for function, arguments in _SIGNATURES.items():
                getattr(loaded, function).argtypes = arguments
                getattr(loaded, function).restype = c_int
        except (OSError, AttributeError):
            continue
        return loaded
    raise ViewerError("libnvjpeg is not found; it comes with the CUDA toolkit, or with pip install nvidia-nvjpeg "
                      "(nvidia-nvjpeg-cu12 for CUDA 12)")


def _call(name: str, *args: Any) -> None:
    """Raises ViewerError that names the function and nvJPEG's status."""
    status = getattr(library(), name)(*args)
    if status:
        word = _STATUS[status] if 0 < status < len(_STATUS) else str(status)
        advice = f" ({_ADVICE[word]})" if word in _ADVICE else ""
        raise ViewerError(f"{name}: NVJPEG_STATUS_{word}{advice}")


class NvJpegEncoder:
    """A fraction of a millisecond for a 1080p picture, nearly all of it on the GPU, on a CUDA stream of its own."""

    name: ClassVar[str] = "nvJPEG"
    reason = ""

    def __init__(self, device: int) -> None:
        """`device`: CUDA's ordinal of the GPU. Raises ViewerError where nvJPEG cannot work; makes the CUDA context."""
        self._handle = c_void_p()
        self._sessions: list[_Session] = []
        self._idle: list[_Session] = []
        self._lock = threading.Condition()
        self._closed = False
        self.device = device
        self.took: deque[tuple[Size, float]] = deque(maxlen=64)
        library()
        import torch

        try:
            with torch.cuda.device(device), driver.context(device):
                torch.cuda.current_stream(device)
                _call("nvjpegCreateSimple", byref(self._handle))
        except (RuntimeError, AssertionError) as e:  # a torch without CUDA asserts
            raise ViewerError(f"nvJPEG: CUDA does not work on device {device}: {e}") from e
        self._give(self._take())  # what does not work is to be known now

    def encode(self, pixels: Pixels, quality: int, *, bottom_up: bool = False, size: Size | None = None) -> bytes:
        check(pixels)
        import torch

        if not isinstance(pixels, torch.Tensor) or pixels.device != torch.device("cuda", self.device):
            raise ValueError(f"pixels: {'an array' if not isinstance(pixels, torch.Tensor) else pixels.device}; this "
                             f"nvJPEG takes tensors on cuda:{self.device}")
        session = self._take()
        try:
            with torch.cuda.device(self.device), driver.context(self.device), torch.no_grad():
                data, ms = session.encode(pixels, quality, bottom_up, size)
            self.took.append((size or (pixels.shape[1], pixels.shape[0]), ms))
            return data
        except (RuntimeError, AssertionError) as e:  # a torch without CUDA asserts
            raise ViewerError(f"nvJPEG: CUDA failed on device {self.device}: {e}") from e
        finally:
            self._give(session)

    def _take(self) -> _Session:
        with self._lock:
            if self._closed:
                raise ViewerError("the nvJPEG encoder is closed")
            if self._idle:
                return self._idle.pop()
            session = _Session(self._handle, self.device)
            self._sessions.append(session)
            return session

    def _give(self, session: _Session) -> None:
        with self._lock:
            self._idle.append(session)
            self._lock.notify_all()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._lock.wait_for(lambda: len(self._idle) == len(self._sessions))
            with driver.context(self.device):
                for session in self._sessions:
                    session.close()
                library().nvjpegDestroy(self._handle)
            self._sessions.clear()
            self._idle.clear()


class _Session:
    """The state of one thread that encodes: a stream, nvJPEG's state, and memory for pictures of one size."""

    def __init__(self, handle: c_void_p, device: int) -> None:
        import torch

        self._handle = handle
        with torch.cuda.device(device), driver.context(device):
            self._stream = torch.cuda.Stream()
            self._queue = c_void_p(self._stream.cuda_stream)
            self._given, self._begin = torch.cuda.Event(), torch.cuda.Event(enable_timing=True)
            self._end = torch.cuda.Event(enable_timing=True, blocking=True)  # this thread sleeps until then
            self._rgb: torch.Tensor | None = None
            self._rows: torch.Tensor | None = None
            self._state, self._params = c_void_p(), c_void_p()
            self._set: tuple[int, int] | None = None
            try:
                _call("nvjpegEncoderStateCreate", handle, byref(self._state), self._queue)
                _call("nvjpegEncoderParamsCreate", handle, byref(self._params), self._queue)
                self._stream.synchronize()
            except BaseException:
                self.close()
                raise

    def encode(self, pixels: torch.Tensor, quality: int, bottom_up: bool, size: Size | None) -> tuple[bytes, float]:
        """The file, and the milliseconds that the GPU took."""
        import torch

        self._given.record()
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(self._given)
            self._begin.record(self._stream)
            rgb = self._prepare(pixels, bottom_up, size)
            height, width = rgb.shape[:2]
            self._configure(quality)
            image = _Image()
            image.channel[0], image.pitch[0] = rgb.data_ptr(), 3 * width
            _call("nvjpegEncodeImage", self._handle, self._state, self._params, byref(image), _RGBI, width, height,
                  self._queue)
            self._end.record(self._stream)
            self._end.synchronize()
            length = c_size_t()
            _call("nvjpegEncodeRetrieveBitstream", self._handle, self._state, None, byref(length), self._queue)
            self._stream.synchronize()  # the length comes in the stream's order
            data = ctypes.create_string_buffer(length.value)
            _call("nvjpegEncodeRetrieveBitstream", self._handle, self._state, data, byref(length), self._queue)
            self._stream.synchronize()
        return data.raw[: length.value], self._begin.elapsed_time(self._end)

    def _prepare(self, pixels: torch.Tensor, bottom_up: bool, size: Size | None) -> torch.Tensor:
        """(H, W, 3) uint8, top row first, in memory that is used again."""
        import torch

        height, width = pixels.shape[:2]
        rgb = pixels[..., :3]
        if size is not None and size != (width, height):
            planes = rgb.permute(2, 0, 1)[None].float()
            small = torch.nn.functional.interpolate(planes, size[::-1], mode="area")
            rgb = small.round_().to(torch.uint8)[0].permute(1, 2, 0)
            width, height = size
        if self._rgb is None or self._rgb.shape[:2] != (height, width):
            self._rgb = torch.empty((height, width, 3), dtype=torch.uint8, device=pixels.device)
            self._rows = torch.arange(height - 1, -1, -1, device=pixels.device)
        assert self._rows is not None
        if bottom_up:
            torch.index_select(rgb, 0, self._rows, out=self._rgb)
        else:
            self._rgb.copy_(rgb)
        return self._rgb

    def _configure(self, quality: int) -> None:
        sampling = _CSS_444 if quality >= BEST else _CSS_420
        if self._set != (quality, sampling):
            _call("nvjpegEncoderParamsSetQuality", self._params, quality, self._queue)
            _call("nvjpegEncoderParamsSetSamplingFactors", self._params, sampling, self._queue)
            self._set = quality, sampling

    def close(self) -> None:
        """The device must be current."""
        self._stream.synchronize()
        if self._params:
            library().nvjpegEncoderParamsDestroy(self._params)
        if self._state:
            library().nvjpegEncoderStateDestroy(self._state)
        self._params, self._state = c_void_p(), c_void_p()
        self._rgb = self._rows = None
