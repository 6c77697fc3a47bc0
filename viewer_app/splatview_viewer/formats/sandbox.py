"""Runs a function on untrusted files in a confined child process with limits.

    answer, arrays = run(read_any, [path], limits_for(size), Answer)

Decoders of untrusted files can take all memory, loop without end, crash, or be taken
over. The child process inherits the open files and nothing else, and the kernel refuses
it network, programs and other files (`confinement`). It writes arrays to a memory file;
the viewer seals that file, checks the description of the arrays against its size, and
maps it.

A function for the sandbox has a module of its own, gets `File`s and a progress report,
and returns an answer, which is a msgspec struct, and arrays. The child process starts
in 0.3 s, with torch in 2 s.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import json
import math
import mmap
import os
import re
import resource
import selectors
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    BinaryIO,
    Literal,
    NamedTuple,
    NoReturn,
)

import msgspec
import numpy as np
from msgspec import Meta

from splatview_ipc.system import child_program
from splatview_ipc.system.free_memory import available_bytes
from splatview_viewer.core.errors import FileError
from splatview_viewer.core.regular import open_regular
from splatview_viewer.formats import confinement
from splatview_viewer.formats.common import Progress, fault_text, silent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BASE = 3 << 29
"""Bytes of memory that the child may take in any case."""
PER_BYTE = 64
"""Bytes of memory that the child may take for each byte of the files: packed scenes
become so large."""
FREE_SHARE = 1 / 3
"""The part of the free memory that the child may take at most."""
CPU_BASE = 30
"""Seconds of the processor that the child may take in any case."""
CPU_PER_BYTE = 1 / (1 << 20)
"""Seconds of the processor that the child may take for each byte of the files."""
CPU_GRACE = 2
"""Seconds of the processor after which a child that ignores the end of its time is
killed."""
MAX_FILES = 64
"""Descriptors that the child may have open beside those that it inherits: modules are
opened one by one."""
AT_ONCE = 2
"""Child processes at a time; other files wait."""
SECRETS = re.compile("TOKEN|SECRET|PASSW|KEY|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
"""Names of environment variables that the child does not get: what it answers is shown
to the one who sent the file."""
POLL = 0.1
"""Seconds within which a cancel is noticed."""
WAIT_BASE = 60
"""Seconds that a child may take in any case."""
WAIT_FACTOR = 10
"""Seconds that a child may take for each second of the processor, which others use as
well."""
MAX_ERRORS = 1 << 16
"""Bytes that a child may write to stderr, of which the last are shown."""
MAX_LINE = 1 << 20
"""Bytes of one message of the child."""
_ALIGN = 64
_PR_SET_PDEATHSIG = 1
_MEMORY_FILE = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING

_slots = threading.BoundedSemaphore(AT_ONCE)
_Extent = Annotated[int, Meta(ge=0, le=1 << 40)]


class Limits(NamedTuple):
    """Limits of a child process."""

    memory: int
    """Bytes beyond what its imports take, and bytes of its result."""
    seconds: int
    """Time of the processor."""


class File(NamedTuple):
    """An inherited file."""

    path: Path
    """Opens it."""
    name: str
    """Its name for the user."""


class StoredArray(msgspec.Struct, frozen=True):
    """An array in the memory file, little endian, after the one before it."""

    dtype: Literal["b1", "u1", "u2", "u8", "i2", "i4", "i8", "f4", "f8"]
    shape: Annotated[tuple[_Extent, ...], Meta(max_length=3)]


class Going(msgspec.Struct, frozen=True, array_like=True, tag="progress"):
    """Progress of the child."""

    activity: str
    fraction: float


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="error"):
    """The error for which the files cannot be read."""

    reason: str


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """The written result: the answer as JSON, and the arrays in the memory file."""

    answer: msgspec.Raw
    columns: Annotated[list[StoredArray], Meta(max_length=64)] = []


# -- in the viewer ---------------------------------------------------------------------


def limits_for(
    size: int, free_share: float = FREE_SHARE, per_byte: int = PER_BYTE
) -> Limits:
    """Return the limits for files of `size` bytes.

    Args:
        size: the size of all files.
        free_share: the part of the free memory that the child may take at most.
        per_byte: bytes of memory that it may take for each byte of the files.
    """
    memory = BASE + per_byte * size
    free = available_bytes()
    if free is not None:
        memory = min(memory, int(free_share * free))
    return Limits(memory, int(CPU_BASE + CPU_PER_BYTE * size))


def run(
    function: Callable[[list[File], Progress], tuple[Any, list[np.ndarray]]],
    paths: Sequence[Path],
    limits: Limits,
    answer: Any,
    *,
    prepare: Callable[[list[File]], None] | None = None,
    progress: Progress = silent,
) -> tuple[Any, list[np.ndarray]]:
    """Run a function on files in a child process, and wait for its result.

    Args:
        function, prepare: functions of a module. `prepare` imports what takes much
            memory, without limits yet.
        paths: regular files, which the child inherits opened.
        limits: on memory and processor time.
        answer: the type, or union of types, of the answer.
        progress: called with the activity and how far it is (0 to 1), at least ten
            times a second; an exception of it ends the child.

    Returns:
        The function's answer and its arrays, which are mapped.

    Raises:
        FileError: the function raised, the child crashed or reached a limit, or its
            result is not what it describes.
        OSError: a file cannot be opened.
    """
    while not _slots.acquire(timeout=POLL):
        progress("waiting for other files", 0.0)
    with ExitStack() as opened:
        opened.callback(_slots.release)
        files = [opened.enter_context(open_regular(path)).fileno() for path in paths]
        out = os.memfd_create("splatview-file", _MEMORY_FILE)
        opened.callback(os.close, out)
        errors = _make_error_file()
        opened.callback(os.close, errors)
        if prepare is None:
            functions = (function,)
        else:
            functions = (prepare, function)
        job = {
            "functions": [f"{f.__module__}:{f.__qualname__}" for f in functions],
            "files": files,
            "out": out,
            "limits": limits,
            "names": [*map(str, paths)],
        }
        process = opened.enter_context(
            subprocess.Popen(
                child_program.command("splatview_viewer.formats", json.dumps(job)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",
                pass_fds=[*files, out],
                env=_child_environment(),
            )
        )
        opened.callback(process.kill)
        timeout = WAIT_BASE + WAIT_FACTOR * limits.seconds
        done = await_result(process, errors, progress, timeout=timeout)
        # No other process may write a file that is mapped.
        process.kill()
        process.wait()
        decoded = decode_answer(bytes(done.answer), answer)
        return decoded, map_arrays(done.columns, seal_and_map(out))


def _make_error_file() -> int:
    """Return a memory file for a child's stderr.

    It is of a fixed size: a child's output there fills neither disk nor memory.
    """
    errors = os.memfd_create("splatview-errors", _MEMORY_FILE)
    os.ftruncate(errors, MAX_ERRORS)
    fcntl.fcntl(errors, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
    return errors


def _child_environment() -> dict[str, str]:
    """Return the environment of a child, without secrets."""
    inherited = {k: v for k, v in os.environ.items() if not SECRETS.search(k)}
    # One thread is enough, and memory that others reserve counts against the limit.
    return child_program.environment(
        inherited,
        OPENBLAS_NUM_THREADS="1",
        OMP_NUM_THREADS="1",
        PYTHONUNBUFFERED="",
        PYTHONWARNINGS="ignore",
        CUDA_VISIBLE_DEVICES="",
    )


def await_result(
    process: subprocess.Popen[bytes], errors: int, progress: Progress, timeout: float
) -> Done:
    """Return the description of a child's result, once it is written.

    Args:
        process: the child.
        errors: the descriptor of its stderr.
        progress: called with the activity and how far it is (0 to 1).
        timeout: seconds within which it has to answer, counted in waits of `POLL`.

    Raises:
        FileError: as `run`.
    """
    out = process.stdout
    assert out is not None
    os.set_blocking(out.fileno(), False)
    last = Going("starting", 0.0)
    unread = b""
    data = None
    with selectors.DefaultSelector() as selector:
        selector.register(out, selectors.EVENT_READ)
        while data != b"":
            progress(last.activity, last.fraction)
            if not selector.select(POLL):
                # Waits, not a clock: nothing is late because this process was stopped
                # meanwhile.
                timeout -= POLL
                if timeout < 0:
                    raise FileError(
                        "the program that reads the file does not answer: it hangs, or "
                        "its file system does"
                    )
                continue
            data = out.read(1 << 16)
            *lines, unread = (unread + (data or b"")).split(b"\n")
            if len(unread) > MAX_LINE:
                raise FileError(
                    f"the program that reads the file wrote more than {MAX_LINE:,} "
                    "bytes without an end of line"
                )
            for line in lines:
                message = decode_answer(line, Going | Failed | Done)
                if isinstance(message, Done):
                    return message
                if isinstance(message, Failed):
                    raise FileError(message.reason)
                last = message
                progress(last.activity, last.fraction)
    raise _child_error(process.wait(), errors)


def _child_error(code: int, errors: int) -> FileError:
    """Return the error for a child that ended without a result.

    Args:
        code: its exit status.
        errors: the descriptor of its stderr.
    """
    end = os.lseek(errors, 0, os.SEEK_CUR)
    tail = os.pread(errors, 400, max(0, end - 400)).rstrip(b"\0")
    last_line = tail.decode("utf-8", "replace").strip().rpartition("\n")[2]
    was_killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    if was_killed or "MemoryError" in last_line or "bad_alloc" in last_line:
        return FileError(
            "not enough memory to load it, or it is made to exhaust memory"
        )
    if code == -signal.SIGXCPU:
        return FileError(
            "reading it took more of the processor's time than any file of its size "
            "needs"
        )
    if code < 0:
        names = [s.name for s in signal.Signals if s == -code]
        name = names[0] if names else str(-code)
        return FileError(
            f"the program that reads the file crashed ({name}): it is damaged, or made "
            "to do that"
        )
    cause = ""
    if last_line:
        cause = f": {last_line}"
    return FileError(f"the program that reads the file ended with {code}{cause}")


def decode_answer(data: bytes, answer: Any) -> Any:
    """Decode JSON of a child as a value of the type `answer`.

    Raises FileError where it is of another type.
    """
    try:
        return msgspec.json.decode(data, type=answer)
    except (msgspec.MsgspecError, ValueError, RecursionError) as e:
        raise FileError(
            f"the program that read it described the result wrongly: {e}"
        ) from None


def seal_and_map(fd: int) -> mmap.mmap | None:
    """Seal a memory file and map it privately; return None for an empty one."""
    size_seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    try:
        fcntl.fcntl(
            fd, fcntl.F_ADD_SEALS, size_seals | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        )
    except OSError as e:
        raise FileError(
            "the result of the program that read it cannot be sealed: "
            f"{e.strerror or e}"
        ) from None
    size = os.fstat(fd).st_size
    if not size:
        return None
    return mmap.mmap(fd, size, access=mmap.ACCESS_COPY)


def map_arrays(
    columns: list[StoredArray], mapping: mmap.mmap | None
) -> list[np.ndarray]:
    """Return the arrays of a result. Raises FileError for one outside of the mapping.

    Args:
        columns: descriptions of the arrays.
        mapping: the memory file of the result; None if it is empty.
    """
    available = 0 if mapping is None else len(mapping)
    arrays: list[np.ndarray] = []
    offset = 0
    for column in columns:
        count = math.prod(column.shape)
        size = count * int(column.dtype[1:])
        if offset + size > available:
            raise FileError(
                "the program that read it described an array outside its result: "
                f"{column}"
            )
        dtype = f"<{column.dtype}"
        if mapping is not None and size:
            flat = np.frombuffer(mapping, dtype, count, offset)
        else:
            flat = np.zeros(0, dtype)
        arrays.append(flat.reshape(column.shape))
        offset += size + -size % _ALIGN
    return arrays


# -- in the child process --------------------------------------------------------------


class _Reporter:
    """Writes the messages of the child to its stdout."""

    def __init__(self) -> None:
        self._last: tuple[str, float] = ("", 0.0)

    def send(self, *values: Any) -> None:
        """Write one message, as a line of JSON."""
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()

    def progress(self, activity: str, fraction: float) -> None:
        """Report progress by the hundredth.

        It never falls, though a file that one way cannot read is read again.
        """
        _, last_fraction = self._last
        current = (activity, max(last_fraction, round(0.95 * fraction, 2)))
        if current != self._last:
            self._last = current
            self.send("progress", *current)


def serve(argument: str) -> NoReturn:
    """Do the job that `run` has described."""
    job: dict[str, Any] = json.loads(argument)
    # The kernel ends this process with the thread that started it, which waits; it does
    # so even while a decoder keeps all other threads from running.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    reporter = _Reporter()
    try:
        names = zip(job["files"], job["names"], strict=True)
        files = [File(Path(f"/proc/self/fd/{fd}"), name) for fd, name in names]
        *preparations, function = map(_import_function, job["functions"])
        for prepare in preparations:
            prepare(files)
        confinement.in_force = confinement.confine(job["files"])
        _set_limits(Limits(*job["limits"]), len(files))
        # As in `open_file`.
        with np.errstate(all="ignore"):
            answer, arrays = function(files, reporter.progress)
        reporter.progress("writing arrays", 1.0)
        with os.fdopen(job["out"], "wb") as out:
            columns = write_columns(out, arrays)
    except Exception as e:
        reporter.send("error", fault_text(e))
    else:
        reporter.send("done", msgspec.to_builtins(answer), msgspec.to_builtins(columns))
    # Taking everything apart would take longer than reading it.
    os._exit(0)


def _import_function(name: str) -> Callable[..., Any]:
    """Import a function by its name, `module:function`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _set_limits(limits: Limits, file_count: int) -> None:
    """Set the kernel's limits on this process, for good.

    To be called once everything is imported: libraries reserve address space that costs
    no memory.
    """
    with open("/proc/self/statm", encoding="ascii") as sizes:
        address_space = int(sizes.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    cpu_seconds = int(time.process_time()) + 1 + limits.seconds
    _set_limit(resource.RLIMIT_AS, address_space + limits.memory)
    _set_limit(resource.RLIMIT_FSIZE, limits.memory)
    _set_limit(resource.RLIMIT_NOFILE, MAX_FILES + file_count)
    _set_limit(resource.RLIMIT_CORE, 0)
    # The kernel first sends SIGXCPU, which can be ignored, and later SIGKILL.
    _set_limit(resource.RLIMIT_CPU, cpu_seconds, CPU_GRACE)


def _set_limit(kind: int, value: int, grace: int = 0) -> None:
    """Set a limit, and the hard one `grace` above it; both within the present one."""
    _, allowed = resource.getrlimit(kind)
    soft = value
    hard = soft + grace
    if allowed != resource.RLIM_INFINITY:
        soft = min(soft, allowed)
        hard = min(soft + grace, allowed)
    resource.setrlimit(kind, (soft, hard))


def write_columns(file: BinaryIO, arrays: list[np.ndarray]) -> list[StoredArray]:
    """Write arrays one after the other into an empty file; return their description."""
    columns: list[StoredArray] = []
    for array in arrays:
        kind = f"{array.dtype.kind}{array.dtype.itemsize}"
        # Converted, which checks that the array is one that the viewer accepts.
        description = {"dtype": kind, "shape": array.shape}
        columns.append(msgspec.convert(description, StoredArray))
        content = np.ascontiguousarray(array, f"<{kind}").reshape(-1)
        file.write(content.view(np.uint8).data)
        file.write(bytes(-array.nbytes % _ALIGN))
    return columns
