"""Shared-memory segments: sealed memfds, which a trainer hands to its viewers.

The viewers are of the same user. A segment has no name in any file system, so nothing
is left behind when a process dies, however it dies. It is sealed against shrinking and
growing before any other process gets it: a mapping can never raise SIGBUS.
(multiprocessing.shared_memory unlinks a segment when an unrelated reader exits, and
torch's own CPU sharing lets a peer grow the file: neither is used.)
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import secrets
from typing import TYPE_CHECKING

from splatview_ipc.control import descriptors
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import SegmentRef
from splatview_ipc.system import free_memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PAGE = 64 * 1024
"""Alignment of what is mapped on its own: the largest page size of any supported
Linux."""

# fcntl has had names for these since Python 3.8, but only where it was built on a
# system that knew them.
_F_ADD_SEALS = 1033
_F_GET_SEALS = 1034
_SEAL_SEAL = 0x1
_SEAL_SHRINK = 0x2
_SEAL_GROW = 0x4
_MADV_POPULATE_WRITE = 23
_POPULATE_BYTES = 8 << 20
"""Bytes whose pages are mapped in one system call, up to 10 ms on a slow machine: it
holds a lock that delays allocations in other threads."""
_SPARE = 256 << 20
"""Bytes that stay free for the training, at most; as much as a segment takes, below."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.madvise.restype = ctypes.c_int


def round_up(n: int, to: int) -> int:
    return (n + to - 1) // to * to


class Segment:
    """A segment that this process made and writes."""

    def __init__(self, size: int, label: str):
        """Allocate and map all memory now.

        The GIL is released; it takes about a second per gigabyte. A full machine is an
        error here, not SIGBUS at a later write. Raises SharingError when that would
        leave too little for the training, or the system denies it.

        Args:
            size: in bytes, rounded up to whole pages.
            label: a letter or a few, shown in /proc/PID/maps.
        """
        self.size = round_up(size, PAGE)
        self.token = f"{label}-{secrets.token_hex(12)}"
        _check_free_memory(size)
        self.fd = -1
        try:
            flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
            self.fd = os.memfd_create(f"splatview-{label}", flags)
            os.ftruncate(self.fd, self.size)
            os.posix_fallocate(self.fd, 0, self.size)
            fcntl.fcntl(self.fd, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_SEAL)
            self.map = mmap.mmap(self.fd, self.size)
        except (OSError, ValueError) as e:
            if self.fd >= 0:
                os.close(self.fd)
            raise SharingError(
                f"no shared memory for {self.size / 1e6:.1f} MB ({e}): free some memory, or "
                "publish less at once"
            ) from None
        _populate(self.map)
        descriptors.offer(1, lambda start, stop: [os.dup(self.fd)], self.token)
        self.ref = SegmentRef(self.token, self.size)
        """The segment's description for another process."""

    def close(self) -> None:
        """Release the memory; readers keep what they have mapped. Idempotent."""
        # First: after Ctrl-C right after `close`, and in a signal's handler, its number may
        # be another file's.
        fd = self.fd
        self.fd = -1
        if fd >= 0:
            descriptors.withdraw(self.token)
            os.close(fd)
            close_map(self.map)


def _check_free_memory(size: int) -> None:
    """Raise SharingError if a segment leaves too little memory to the training.

    `size` is in bytes. Small segments are not checked.
    """
    if size <= 1 << 20:
        return
    available = free_memory.available_bytes()
    spare = min(size, _SPARE)
    if available is not None and available < size + spare:
        raise SharingError(
            f"not enough memory: the frames need {size / 1e6:,.0f} MB, and "
            f"{spare / 1e6:,.0f} MB stay free for the training, but "
            f"{available / 1e6:,.0f} MB are left. Free some memory, or publish less at "
            "once; tried again every second"
        )


def _populate(mapping: mmap.mmap) -> None:
    """Map all pages for writing.

    Linux before 5.14 maps them at the first write instead.
    """
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    size = len(mapping)
    for start in range(0, size, _POPULATE_BYTES):
        length = min(_POPULATE_BYTES, size - start)
        _libc.madvise(address + start, length, _MADV_POPULATE_WRITE)


def open_segment(
    ref: SegmentRef, fds: Mapping[str, Sequence[int]], min_size: int
) -> mmap.mmap:
    """Map a segment that another process announced, for reading.

    Raises SharingError when it is missing, has less than `min_size` bytes or another
    size than announced, or could still shrink or grow.

    Args:
        ref: the announced segment.
        fds: the descriptors by token.
        min_size: bytes.
    """
    segment_fds = fds.get(ref.token, ())
    if len(segment_fds) != 1 or ref.size < min_size:
        raise SharingError(
            f"memory of {ref.size} bytes was announced, with {len(segment_fds)} "
            f"descriptors; at least {min_size} bytes and one descriptor are needed"
        )
    fd = segment_fds[0]
    try:
        size = os.fstat(fd).st_size
        seals = fcntl.fcntl(fd, _F_GET_SEALS)
    except OSError:
        size = 0
        seals = 0
    is_sealed = bool(seals & _SEAL_SHRINK) and bool(seals & _SEAL_GROW)
    if size != ref.size or not is_sealed:
        raise SharingError(
            f"what was handed over has {size} bytes, seals {seals:#x}; {ref.size} sealed "
            "bytes were announced"
        )
    try:
        return mmap.mmap(fd, ref.size, prot=mmap.PROT_READ)
    except (OSError, ValueError) as e:
        raise SharingError(f"cannot map {ref.size} bytes: {e}") from None


def close_map(mapping: mmap.mmap) -> None:
    """Unmap memory now, or when the last view of the mapping goes, if some are left."""
    with contextlib.suppress(BufferError):
        mapping.close()
