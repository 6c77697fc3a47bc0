"""Run a function on untrusted files in a confined child process with limits on memory,
descriptors and CPU time.

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
PER_BYTE = 64
"""Bytes of memory that the child may take in any case, and for each byte of the files:
packed scenes become so large."""
FREE_SHARE = 1 / 3
"""The part of the free memory that the child may take at most."""
CPU_BASE = 30
CPU_PER_BYTE = 1 / (1 << 20)
"""Seconds of the processor that the child may take in any case, and for each byte of
the files."""
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
WAIT_FACTOR = 10
"""Seconds that a child may take in any case, and for each of the processor's, which
others use as well."""
MAX_ERRORS = 1 << 16
"""Bytes that a child may write to stderr, of which the last are shown."""
MAX_LINE = 1 << 20
"""Bytes of one message of the child."""
_ALIGN = 64
_PR_SET_PDEATHSIG = 1
_MEMORY_FILE = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING

_turns = threading.BoundedSemaphore(AT_ONCE)
_Extent = Annotated[int, Meta(ge=0, le=1 << 40)]


class Limits(NamedTuple):
    """What a child process may take."""

    memory: int
    """Bytes beyond what its imports take, and bytes of its result."""
    seconds: int
    """Of the processor."""


class File(NamedTuple):
    """An inherited file."""

    path: Path
    """Opens it."""
    name: str
    """Its name for the user."""


class StoredArray(msgspec.Struct, frozen=True):
    """An array in the memory file, behind the one before: dtype (little endian) and
    shape.
    """

    dtype: Literal["b1", "u1", "u2", "u8", "i2", "i4", "i8", "f4", "f8"]
    shape: Annotated[tuple[_Extent, ...], Meta(max_length=3)]


class Going(msgspec.Struct, frozen=True, array_like=True, tag="progress"):
    """How far the child is."""

    activity: str
    fraction: float


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="error"):
    """Why the files cannot be read."""

    reason: str


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """The result is written: the answer as JSON, and where the arrays are."""

    answer: msgspec.Raw
    columns: Annotated[list[StoredArray], Meta(max_length=64)] = []


# -- in the viewer ---------------------------------------------------------------------


def limits_for(
    size: int, free_share: float = FREE_SHARE, per_byte: int = PER_BYTE
) -> Limits:
    """Return the limits for files of `size` bytes: `per_byte` of memory a byte, within
    a part of what is free.
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
    """Run a function on files in a child process; return its answer and its arrays,
    mapped. For a thread that may wait.

    Args:
        function, prepare: functions of a module. `prepare` imports what takes much
            memory, without limits yet.
        paths: regular files, which the child inherits opened.
        answer: the type, or union of types, of the answer.
        progress: called with what is going on and how far it is (0 to 1), at least ten
            times a second; what it raises ends the child.

    Raises:
        FileError: the function raised, the child crashed or reached a limit, or its
            result is not what it describes.
        OSError: a file cannot be opened.
    """
    while not _turns.acquire(timeout=POLL):
        progress("waiting for other files", 0.0)
    with ExitStack() as opened:
        opened.callback(_turns.release)
        files = [opened.enter_context(open_regular(path)).fileno() for path in paths]
        out = os.memfd_create("splatview-file", _MEMORY_FILE)
        opened.callback(os.close, out)
        names = [
            f"{called.__module__}:{called.__qualname__}"
            for called in (prepare, function)
            if called
        ]
        job = {
            "functions": names,
            "files": files,
            "out": out,
            "limits": limits,
            "names": [*map(str, paths)],
        }
        # Of a fixed size: what a child writes there fills neither disk nor memory.
        errors = os.memfd_create("splatview-errors", _MEMORY_FILE)
        opened.callback(os.close, errors)
        os.ftruncate(errors, MAX_ERRORS)
        fcntl.fcntl(errors, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        process = opened.enter_context(
            subprocess.Popen(
                child_program.command("splatview_viewer.formats", json.dumps(job)),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",
                pass_fds=[*files, out],
                # One thread is enough, and what others reserve counts against the
                # bound.
                env=child_program.environment(
                    {k: v for k, v in os.environ.items() if not SECRETS.search(k)},
                    OPENBLAS_NUM_THREADS="1",
                    OMP_NUM_THREADS="1",
                    PYTHONUNBUFFERED="",
                    PYTHONWARNINGS="ignore",
                    CUDA_VISIBLE_DEVICES="",
                ),
            )
        )
        opened.callback(process.kill)
        done = await_result(
            process, errors, progress, timeout=WAIT_BASE + WAIT_FACTOR * limits.seconds
        )
        process.kill()
        process.wait()  # what is mapped is never written by another process
        return decode_answer(bytes(done.answer), answer), map_arrays(
            done.columns, seal_and_map(out)
        )


def await_result(
    process: subprocess.Popen[bytes], errors: int, progress: Progress, timeout: float
) -> Done:
    """Return the description of a child's result, once it is written.

    Raises FileError as `run`.

    Args:
        errors: the descriptor of its stderr.
        patience: seconds of this process's own turns within which it has to answer.
    """
    out = process.stdout
    assert out is not None
    os.set_blocking(out.fileno(), False)
    last = ("starting", 0.0)
    rest = b""
    data = None
    with selectors.DefaultSelector() as selector:
        selector.register(out, selectors.EVENT_READ)
        while data != b"":
            progress(*last)
            if not selector.select(POLL):
                # Turns, not a clock: nothing is late because this process was stopped
                # meanwhile.
                timeout -= POLL
                if timeout < 0:
                    raise FileError(
                        "the program that reads the file does not answer: it hangs, or "
                        "its file system does"
                    )
                continue
            data = out.read(1 << 16)
            *lines, rest = (rest + (data or b"")).split(b"\n")
            if len(rest) > MAX_LINE:
                raise FileError(
                    f"the program that reads the file wrote more than {MAX_LINE:,} "
                    "bytes "
                    "without an end of line"
                )
            for line in lines:
                message = decode_answer(line, Going | Failed | Done)
                if isinstance(message, Done):
                    return message
                if isinstance(message, Failed):
                    raise FileError(message.reason)
                last = message.activity, message.fraction
                progress(*last)
    code = process.wait()
    end = os.lseek(errors, 0, os.SEEK_CUR)
    tail = os.pread(errors, 400, max(0, end - 400)).rstrip(b"\0")
    said = tail.decode("utf-8", "replace").strip().rpartition("\n")[2]
    if (
        code in (-signal.SIGKILL, 128 + signal.SIGKILL)
        or "MemoryError" in said
        or "bad_alloc" in said
    ):
        raise FileError("not enough memory to load it, or it is made to exhaust memory")
    if code == -signal.SIGXCPU:
        raise FileError(
            "reading it took more of the processor's time than any file of its size "
            "needs"
        )
    if code < 0:
        name = next((s.name for s in signal.Signals if s == -code), str(-code))
        raise FileError(
            f"the program that reads the file crashed ({name}): it is damaged, or made "
            "to do that"
        )
    raise FileError(
        f"the program that reads the file ended with {code}"
        + (f": {said}" if said else "")
    )


def decode_answer(data: bytes, answer: Any) -> Any:
    """Return JSON of a child as a value of a type.

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
    try:
        fcntl.fcntl(
            fd,
            fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_SHRINK
            | fcntl.F_SEAL_GROW
            | fcntl.F_SEAL_WRITE
            | fcntl.F_SEAL_SEAL,
        )
    except OSError as e:
        raise FileError(
            "the result of the program that read it cannot be sealed: "
            f"{e.strerror or e}"
        ) from None
    size = os.fstat(fd).st_size
    return mmap.mmap(fd, size, access=mmap.ACCESS_COPY) if size else None


def map_arrays(columns: list[StoredArray], room: mmap.mmap | None) -> list[np.ndarray]:
    """Return the arrays of a result.

    Raises FileError for one that would lie outside.
    """
    arrays = []
    at = 0
    for column in columns:
        count = math.prod(column.shape)
        size = count * int(column.dtype[1:])
        if at + size > (0 if room is None else len(room)):
            raise FileError(
                "the program that read it described an array outside its result: "
                f"{column}"
            )
        dtype = f"<{column.dtype}"
        if room is not None and size:
            whole = np.frombuffer(room, dtype, count, at)
        else:
            whole = np.zeros(0, dtype)
        arrays.append(whole.reshape(column.shape))
        at += size + -size % _ALIGN
    return arrays


# -- in the child process --------------------------------------------------------------


def serve(argument: str) -> NoReturn:
    """Do the job that `run` has described."""
    job: dict[str, Any] = json.loads(argument)
    # By the kernel, also while a decoder keeps all other threads from running; the
    # thread that started it waits.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    last = "", 0.0

    def say(*words: Any) -> None:
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()

    def progress(what: str, fraction: float) -> None:
        """Report by the hundredth.

        It never falls, though a file that one way cannot read is read again.
        """
        nonlocal last
        now = what, max(last[1], round(0.95 * fraction, 2))
        if now != last:
            last = now
            say("progress", *now)

    try:
        files = [
            File(Path(f"/proc/self/fd/{fd}"), name)
            for fd, name in zip(job["files"], job["names"], strict=True)
        ]
        *prepare, function = (
            getattr(importlib.import_module(module), name)
            for module, _, name in (text.partition(":") for text in job["functions"])
        )
        for called in prepare:
            called(files)
        confinement.in_force = confinement.confine(job["files"])
        # For good, once everything is imported: libraries reserve address space that
        # costs no memory.
        with open("/proc/self/statm", encoding="ascii") as sizes:
            space = int(sizes.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        memory, seconds = job["limits"]
        for kind, most in (
            (resource.RLIMIT_AS, space + memory),
            (resource.RLIMIT_FSIZE, memory),
            (resource.RLIMIT_NOFILE, MAX_FILES + len(files)),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_CPU, int(time.process_time()) + 1 + seconds),
        ):
            allowed = resource.getrlimit(kind)[1]
            most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
            # Of the processor's time the kernel's first word is SIGXCPU, which can be
            # ignored; its last is SIGKILL.
            hard = most
            if kind == resource.RLIMIT_CPU:
                hard += CPU_GRACE
                if allowed != resource.RLIM_INFINITY:
                    hard = min(hard, allowed)
            resource.setrlimit(kind, (most, hard))
        with np.errstate(all="ignore"):  # as open_file
            answer, arrays = function(files, progress)
        progress("writing arrays", 1.0)
        with os.fdopen(job["out"], "wb") as out:
            columns = write_columns(out, arrays)
    except Exception as e:
        say("error", fault_text(e))
    else:
        say("done", msgspec.to_builtins(answer), msgspec.to_builtins(columns))
    os._exit(0)  # taking everything apart would take longer than reading it


def write_columns(file: BinaryIO, arrays: list[np.ndarray]) -> list[StoredArray]:
    """Write arrays one behind the other, from the beginning of an empty file; return
    what they are.
    """
    columns = []
    for array in arrays:
        kind = f"{array.dtype.kind}{array.dtype.itemsize}"
        columns.append(
            msgspec.convert({"dtype": kind, "shape": array.shape}, StoredArray)
        )
        file.write(
            np.ascontiguousarray(array, f"<{kind}").reshape(-1).view(np.uint8).data
        )
        file.write(bytes(-array.nbytes % _ALIGN))
    return columns
