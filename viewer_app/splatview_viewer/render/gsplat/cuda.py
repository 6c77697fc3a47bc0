"""CUDA at the least cost: kernels from source, streams, and the time of work on them.

NVRTC compiles once per GPU architecture; the result is kept in the user's cache folder.

It is the NVRTC that torch brings along, called through ctypes, since cuda-bindings
accepts only the major version that it was made for; loading and launching go through
cuda-bindings, which works with any driver.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import site
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]  (compiled)

from splatview_ipc.cuda.driver import stream_object
from splatview_ipc.system.files import (
    cache_folder,
    check_only_owner_writes,
    make_private,
    write_output,
)
from splatview_viewer.core.arithmetic import ceil_div
from splatview_viewer.core.errors import RendererError

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAGS = ("--std=c++17",)
_FAST_MATH = ("--use_fast_math",)
FAST = {
    "frame.cu": _FAST_MATH,
    "packed_order.cu": _FAST_MATH,
    "packed_slab.cu": _FAST_MATH,
    "projection.cu": _FAST_MATH,
}
"""Flags by file, as gsplat compiles its own kernels; others are exact."""
HEADERS = {
    "activation.cu": ("activated.cuh",),
    "blocks.cu": ("activated.cuh",),
    "frame.cu": ("geometry.cuh",),
    "packed_order.cu": ("geometry.cuh", "packed.cuh"),
    "packed_slab.cu": ("geometry.cuh", "packed.cuh"),
}
"""What is compiled before a file, beside common.cuh."""


class Launcher(Protocol):
    """Launcher of kernels by name: `KernelModule`."""

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None: ...


def blocks(threads: int, block: int) -> int:
    """Return the number of blocks that hold this many threads, `block` each."""
    return ceil_div(threads, block)


@functools.cache
def kernels(file: str, defines: tuple[str, ...] = (), device: int = 0) -> KernelModule:
    """Return the kernels of a file in this folder.

    Compiled and loaded once per process; a first compilation takes about a second.

    Args:
        file: name of the file.
        defines: "NAME=value" for the preprocessor.
        device: ordinal of the CUDA device.

    Raises:
        RendererError: NVRTC is missing, or rejects the source or the GPU.
    """
    folder = Path(__file__).parent
    names = ("common.cuh", *HEADERS.get(file, ()), file)
    texts = [(folder / name).read_text(encoding="utf-8") for name in names]
    macros = [f"--define-macro={define}" for define in defines]
    return KernelModule(
        "\n".join(texts), (*FLAGS, *FAST.get(file, ()), *macros), device
    )


class KernelModule:
    """A loaded module. It stays loaded as long as the process lives."""

    def __init__(self, source: str, flags: tuple[str, ...], device: int) -> None:
        """Load the kernels from the cache, or compile them."""
        nvrtc = Nvrtc()
        major, minor = torch.cuda.get_device_capability(device)
        target = f"sm_{major}{minor}"
        identity = "\0".join((source, target, nvrtc.version, *flags))
        digest = hashlib.sha256(identity.encode()).hexdigest()
        cached = cache_folder() / "kernels" / f"{digest[:32]}.cubin"
        self._device = device
        self._functions: dict[str, Any] = {}
        with torch.cuda.device(device):
            # This makes the device's primary context current on this thread.
            torch.cuda.current_stream().query()
            # None yet, damaged, or in a folder where others write.
            with contextlib.suppress(OSError, RendererError):
                check_only_owner_writes(cached.parent)
                self._module = _load_module(cached.read_bytes())
                return
            image = nvrtc.compile(source, (f"--gpu-architecture={target}", *flags))
            self._module = _load_module(image)
        # A cache that cannot be written costs a second each time.
        with contextlib.suppress(OSError):
            make_private(cached.parent)
            write_output(cached, image, private=True)

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        """Launch a kernel on torch's current stream; capture-safe, without waiting.

        Args:
            name: the name of the kernel.
            grid: number of blocks.
            block: threads of a block.
            args: tensors (their address), ctypes values or structures by value.
        """
        function = self._functions.get(name)
        if function is None:
            function = _checked(
                driver.cuModuleGetFunction(self._module, name.encode()),
                f"kernel {name}",
            )
            self._functions[name] = function
        values = [
            ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else a
            for a in args
        ]
        pointers = (ctypes.c_void_p * len(args))(*(ctypes.addressof(v) for v in values))
        # Much quicker than `current_stream`.
        stream = stream_object(torch._C._cuda_getCurrentRawStream(self._device))
        shared_memory = 0
        _checked(
            driver.cuLaunchKernel(
                function,
                *(grid, 1, 1),
                *(block, 1, 1),
                shared_memory,
                stream,
                ctypes.addressof(pointers),
                0,
            ),
            f"kernel {name}",
        )


class Nvrtc:
    """The runtime compiler that this torch was built with."""

    def __init__(self) -> None:
        self._library = _load_nvrtc()
        major = ctypes.c_int()
        minor = ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def compile(self, source: str, options: tuple[str, ...]) -> bytes:
        """Return the machine code of a source.

        Raises:
            RendererError: the source is rejected.
        """
        program = ctypes.c_void_p()
        self._call(
            "nvrtcCreateProgram",
            ctypes.byref(program),
            source.encode(),
            b"kernels.cu",
            0,
            None,
            None,
        )
        try:
            flags = [option.encode() for option in options]
            status = self._library.nvrtcCompileProgram(
                program, len(flags), (ctypes.c_char_p * len(flags))(*flags)
            )
            if status:
                output = self._bytes("nvrtcGetProgramLog", program).rstrip(b"\0")
                log = output.decode(errors="replace")
                raise RendererError(
                    f"NVRTC {self.version} rejects the viewer's CUDA kernels:\n{log}"
                )
            return self._bytes("nvrtcGetCUBIN", program)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, name: str, program: ctypes.c_void_p) -> bytes:
        """Return the bytes that a function of NVRTC writes for a program."""
        size = ctypes.c_size_t()
        self._call(f"{name}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(name, program, text)
        return text.raw

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise RendererError(f"NVRTC: {name} failed with error {status}")


def _load_nvrtc() -> ctypes.CDLL:
    """Load the library from where the linker or a wheel has it."""
    major = (torch.version.cuda or "").split(".")[0]
    if not major:
        raise RendererError(
            "this torch is built without CUDA; the gsplat renderer needs one with it"
        )
    name = f"libnvrtc.so.{major}"
    for candidate in _library_paths(name):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(candidate)
    raise RendererError(
        f"{name} is not found; pip install nvidia-cuda-nvrtc, or CUDA {major}, brings it"
    )


def _library_paths(name: str) -> Iterator[str]:
    """Yield the names by which a library may be loaded: the linker's, those in wheels."""
    yield name
    for folder in (*sys.path, *site.getsitepackages()):
        if folder:
            for path in Path(folder).glob(f"nvidia/*/lib/{name}"):
                yield str(path)


def _load_module(image: bytes) -> Any:
    text = ctypes.create_string_buffer(image)
    return _checked(driver.cuModuleLoadData(ctypes.addressof(text)), "cuModuleLoadData")


def _checked(result: Any, call: str) -> Any:
    """Return the value of a cuda-bindings call, which returns (status, *values)."""
    status, *values = result
    if status:
        raise RendererError(f"CUDA: {call} failed: {status.name}")
    if values:
        return values[0]
    return None


# -- streams ------------------------------------------------------------------------------


class OnStream:
    """Work on a stream and its GPU, without gradients: `with OnStream(stream): ...`.

    As `torch.cuda.stream`, in a quarter of its time: each frame enters it before the GPU
    has any work. Another one may be entered inside.
    """

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self._stream = stream
        self._no_grad = torch.no_grad()

    def __enter__(self) -> None:
        index = self._stream.device_index
        self._outer_device = torch._C._cuda_getDevice()
        self._outer_stream = torch._C._cuda_getCurrentStream(index)
        # This selects its GPU as well.
        torch.cuda.set_stream(self._stream)
        self._no_grad.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._no_grad.__exit__(*exc)
        stream_id, device_index, device_type = self._outer_stream
        torch._C._cuda_setStream(
            stream_id=stream_id, device_index=device_index, device_type=device_type
        )
        if self._outer_device != device_index:
            torch.cuda.set_device(self._outer_device)


class _Timing(NamedTuple):
    """Events that are recorded around work."""

    start: torch.cuda.Event
    end: torch.cuda.Event


class GpuClock:
    """Measures how long the GPU takes for work between `begin` and `end` on a CUDA stream.

    The stream is named each time: to ask torch for the current one takes longer than to
    record an event.
    """

    MAX_RUNNING = 64
    """Measurements whose results may be outstanding; others are dropped."""

    def __init__(self) -> None:
        self._running: deque[_Timing] = deque()
        self._idle: list[_Timing] = []
        self._open: _Timing | None = None
        """The measurement that has begun and not ended."""
        self._ms: float | None = None

    def begin(self, stream: torch.cuda.Stream) -> None:
        """Begin a measurement."""
        timing = self._open
        if timing is None and self._idle:
            timing = self._idle.pop()
        if timing is None:
            start = torch.cuda.Event(enable_timing=True)
            timing = _Timing(start, torch.cuda.Event(enable_timing=True))
        self._open = timing
        timing.start.record(stream)

    def end(self, stream: torch.cuda.Stream) -> None:
        """End a measurement; without a `begin`: nothing."""
        timing = self._open
        if timing is None:
            return
        self._open = None
        timing.end.record(stream)
        if len(self._running) < self.MAX_RUNNING:
            self._running.append(timing)

    def extend(self, stream: torch.cuda.Stream) -> None:
        """Count in the work that the stream was given since `end`. Before `ms` is read."""
        if self._running:
            self._running[-1].end.record(stream)

    @property
    def ms(self) -> float | None:
        """Milliseconds of the last finished measurement; None before. Never waits."""
        while self._running and self._running[0].end.query():
            timing = self._running.popleft()
            self._ms = timing.start.elapsed_time(timing.end)
            self._idle.append(timing)
        return self._ms

    @property
    def new_ms(self) -> float | None:
        """Milliseconds of a measurement that ended since `ms` was read; None: none."""
        running = len(self._running)
        ms = self.ms
        if len(self._running) < running:
            return ms
        return None

    def clear(self) -> None:
        """Forget the events, which belong to one GPU."""
        self._running.clear()
        self._idle.clear()
        self._open = None
