"""CUDA at the least cost: kernels from source, streams, and what the work on them takes.

NVRTC compiles once per GPU architecture; the result is kept in the user's cache folder.

It is the one that torch brings along, called through ctypes, since cuda-bindings accepts only the major
version that it was made for; loading and launching go through cuda-bindings, which works with any driver.
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
from typing import TYPE_CHECKING, Any

import torch
from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]  (compiled)

from splatview_ipc.cuda.driver import stream_object
from splatview_ipc.system.files import (
    cache_folder,
    check_only_owner_writes,
    make_private,
    write_output,
)
from splatview_viewer.core.errors import RendererError

if TYPE_CHECKING:
    from collections.abc import Iterator

FLAGS = ("--std=c++17",)
FAST = {"frame.cu": ("--use_fast_math",)}
"""As gsplat compiles its own kernels; others are exact."""


@functools.cache
def kernels(file: str, defines: tuple[str, ...] = (), device: int = 0) -> KernelModule:
    """The kernels of `file` (in this folder) compiled with `defines` ("NAME=value") for CUDA device `device`.

    Compiled and loaded once per process; a first compilation takes about a second.

    Raises:
        RendererError: NVRTC is missing, or rejects the source or the GPU.
    """
    source = "\n".join(
        (Path(__file__).parent / name).read_text(encoding="utf-8")
        for name in ("common.cuh", file)
    )
    return KernelModule(
        source,
        (*FLAGS, *FAST.get(file, ()), *(f"--define-macro={d}" for d in defines)),
        device,
    )


class KernelModule:
    """A loaded module. It stays loaded as long as the process lives."""

    def __init__(self, source: str, flags: tuple[str, ...], device: int):
        nvrtc = Nvrtc()
        major, minor = torch.cuda.get_device_capability(device)
        target = f"sm_{major}{minor}"
        digest = hashlib.sha256(
            "\0".join((source, target, nvrtc.version, *flags)).encode()
        ).hexdigest()
        cached = cache_folder() / "kernels" / f"{digest[:32]}.cubin"
        self._device = device
        self._functions: dict[str, Any] = {}
        with torch.cuda.device(device):
            torch.cuda.current_stream().query()  # makes the device's primary context current on this thread
            # None yet, damaged, or in a folder where others write.
            with contextlib.suppress(OSError, RendererError):
                check_only_owner_writes(cached.parent)
                self._module = _load(cached.read_bytes())
                return
            image = nvrtc.compile(source, (f"--gpu-architecture={target}", *flags))
            self._module = _load(image)
        with contextlib.suppress(
            OSError
        ):  # a cache that cannot be written costs a second each time
            make_private(cached.parent)
            write_output(cached, image, private=True)

    def launch(self, name: str, grid: int, block: int, *args: Any) -> None:
        """Launch a kernel on torch's current stream; capture-safe, no host synchronisation.

        Arguments: tensors (their address), ctypes values or structures by value.
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
        stream = stream_object(
            torch._C._cuda_getCurrentRawStream(self._device)
        )  # much quicker than `current_stream`
        _checked(
            driver.cuLaunchKernel(
                function,
                grid,
                1,
                1,
                block,
                1,
                1,
                0,
                stream,
                ctypes.addressof(pointers),
                0,
            ),
            f"kernel {name}",
        )


class Nvrtc:
    """The runtime compiler that this torch was built with."""

    def __init__(self) -> None:
        major = (torch.version.cuda or "").split(".")[0]
        if not major:
            raise RendererError(
                "this torch is built without CUDA; the gsplat renderer needs one with it"
            )
        name = f"libnvrtc.so.{major}"
        wheels = [Path(p) for p in (*sys.path, *site.getsitepackages()) if p]
        for candidate in (
            name,
            *(str(f) for folder in wheels for f in folder.glob(f"nvidia/*/lib/{name}")),
        ):
            with contextlib.suppress(OSError):
                self._library = ctypes.CDLL(candidate)
                break
        else:
            raise RendererError(
                f"{name} is not found; pip install nvidia-cuda-nvrtc, or CUDA {major}, brings it"
            )
        first = ctypes.c_int()
        second = ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(first), ctypes.byref(second))
        self.version = f"{first.value}.{second.value}"

    def compile(self, source: str, options: tuple[str, ...]) -> bytes:
        """Machine code."""
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
            flags = [o.encode() for o in options]
            status = self._library.nvrtcCompileProgram(
                program, len(flags), (ctypes.c_char_p * len(flags))(*flags)
            )
            if status:
                log = (
                    self._bytes("nvrtcGetProgramLog", program)
                    .rstrip(b"\0")
                    .decode(errors="replace")
                )
                raise RendererError(
                    f"NVRTC {self.version} rejects the viewer's CUDA kernels:\n{log}"
                )
            return self._bytes("nvrtcGetCUBIN", program)
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _bytes(self, name: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"{name}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(name, program, text)
        return text.raw

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise RendererError(f"NVRTC: {name} failed with error {status}")


def _load(image: bytes) -> Any:
    text = ctypes.create_string_buffer(image)
    return _checked(driver.cuModuleLoadData(ctypes.addressof(text)), "cuModuleLoadData")


def _checked(result: Any, what: str) -> Any:
    """The value of a cuda-bindings call, which returns (status, *values)."""
    status, *values = result
    if status:
        raise RendererError(f"CUDA: {what} failed: {status.name}")
    return values[0] if values else None


# -- streams ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def on_stream(stream: torch.cuda.Stream) -> Iterator[None]:
    """Work on this stream and its GPU, which torch selects with it, without gradients. May be entered again inside."""
    with torch.cuda.stream(stream), torch.no_grad():
        yield


class Clock:
    """Measures how long the GPU takes for what lies between `begin` and `end` on a CUDA stream.

    The stream is named each time: to ask torch for the current one takes longer than to record an event.
    """

    MOST = 64

    def __init__(self) -> None:
        self._running: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()
        self._idle: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._begun: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
        self._ms: float | None = None

    def begin(self, stream: torch.cuda.Stream) -> None:
        pair = self._begun or (self._idle.pop() if self._idle else None)
        self._begun = pair or (
            torch.cuda.Event(enable_timing=True),
            torch.cuda.Event(enable_timing=True),
        )
        self._begun[0].record(stream)

    def end(self, stream: torch.cuda.Stream) -> None:
        """Without a `begin`: nothing."""
        if self._begun is not None:
            pair = self._begun
            self._begun = None
            pair[1].record(stream)
            if len(self._running) < self.MOST:  # otherwise they are not read
                self._running.append(pair)

    def extend(self, stream: torch.cuda.Stream) -> None:
        """Count in what the stream was given since `end`. Before `ms` is read."""
        if self._running:
            self._running[-1][1].record(stream)

    @property
    def ms(self) -> float | None:
        """Milliseconds of the last one that is finished; None before. Never waits."""
        while self._running and self._running[0][1].query():
            pair = self._running.popleft()
            self._ms = pair[0].elapsed_time(pair[1])
            self._idle.append(pair)
        return self._ms

    @property
    def news(self) -> float | None:
        """As `ms`, but None if nothing was finished since the last time."""
        before = len(self._running)
        ms = self.ms
        return ms if len(self._running) < before else None

    def clear(self) -> None:
        """Forget the events, which belong to one GPU."""
        self._running.clear()
        self._idle.clear()
        self._begun = None
