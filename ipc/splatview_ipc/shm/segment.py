"""Shared-memory segments: sealed memfds, whose descriptors a trainer hands to viewers of the same user.

A segment has no name in any file system, so nothing is left behind when a process dies, however it dies. It is
sealed against shrinking and growing before any other process gets it: a mapping can never raise SIGBUS.
(multiprocessing.shared_memory unlinks a segment when an unrelated reader exits, and torch's own CPU sharing
lets a peer grow the file: neither is used.)
"""

from __future__ import annotations

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
"""Alignment of what is mapped on its own: the largest page size of any Linux we run on."""

# fcntl has had names for these since Python 3.8, but only where it was built on a system that knew them.
_F_ADD_SEALS = 1033
_F_GET_SEALS = 1034
_SEAL_SEAL = 0x1
_SEAL_SHRINK = 0x2
_SEAL_GROW = 0x4
_MADV_POPULATE_WRITE = 23
_MAPPED_AT_ONCE = 8 << 20
"""Bytes whose pages are mapped in one system call, up to 10 ms on a slow machine: it holds a lock that delays
allocations in other threads."""
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
        """`size` in bytes, rounded up to whole pages; `label` is a letter or a few, shown in /proc/PID/maps.

        All memory is allocated and mapped now, with the GIL released, about a second per gigabyte: a full machine is
        an error here, not SIGBUS at a later write. Raises SharingError when that would leave too little for the
        training, or the system denies it.
        """
        self.size = round_up(size, PAGE)
        self.token = f"{label}-{secrets.token_hex(12)}"
        available = free_memory.available_bytes() if size > 1 << 20 else None
        spare = min(size, _SPARE)
        if available is not None and available < size + spare:
            raise SharingError(
                f"not enough memory: the frames need {size / 1e6:,.0f} MB, and {spare / 1e6:,.0f} MB "
                f"stay free for the training, but {available / 1e6:,.0f} MB are left. Free some memory, "
                "or publish less at once; tried again every second"
            )
        self.fd = -1
        try:
            self.fd = os.memfd_create(
                f"splatview-{label}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
            )
            os.ftruncate(self.fd, self.size)
            os.posix_fallocate(self.fd, 0, self.size)
            fcntl.fcntl(self.fd, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_SEAL)
            self.map = mmap.mmap(self.fd, self.size)
        except (OSError, ValueError) as e:
            if self.fd >= 0:
                os.close(self.fd)
            raise SharingError(
                f"no shared memory for {self.size / 1e6:.1f} MB ({e}): free some memory, or publish "
                "less at once"
            ) from None
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        for start in range(
            0, self.size, _MAPPED_AT_ONCE
        ):  # Linux before 5.14 maps at the first write instead
            _libc.madvise(
                address + start,
                min(_MAPPED_AT_ONCE, self.size - start),
                _MADV_POPULATE_WRITE,
            )
        descriptors.offer(1, lambda start, stop: [os.dup(self.fd)], self.token)
        self.ref = SegmentRef(self.token, self.size)
        """The segment's description for another process."""

    def close(self) -> None:
        """Give the memory back; readers keep what they have mapped. Idempotent."""
        # First: after Ctrl-C behind `close`, and in a signal's handler, its number may be another file's.
        fd = self.fd
        self.fd = -1
        if fd >= 0:
            descriptors.withdraw(self.token)
            os.close(fd)
            close_map(self.map)


def open_segment(
    ref: SegmentRef, fds: Mapping[str, Sequence[int]], min_size: int
) -> mmap.mmap:
    """Map a segment that another process announced, by its descriptor in `fds`, for reading.

    Raises SharingError when it is missing, has less than `least` bytes or another size than announced, or could still
    shrink or grow.
    """
    found = fds.get(ref.token, ())
    if len(found) != 1 or ref.size < min_size:
        raise SharingError(
            f"memory of {ref.size} bytes was announced, with {len(found)} descriptors; at least {min_size} "
            "bytes and one descriptor are needed"
        )
    try:
        real = os.fstat(found[0]).st_size
        seals = fcntl.fcntl(found[0], _F_GET_SEALS)
    except OSError:
        real = 0
        seals = 0
    if real != ref.size or not seals & _SEAL_SHRINK or not seals & _SEAL_GROW:
        raise SharingError(
            f"what was handed over has {real} bytes, seals {seals:#x}; {ref.size} sealed bytes were "
            "announced"
        )
    try:
        return mmap.mmap(found[0], ref.size, prot=mmap.PROT_READ)
    except (OSError, ValueError) as e:
        raise SharingError(f"cannot map {ref.size} bytes: {e}") from None


def close_map(mapping: mmap.mmap) -> None:
    """Unmap now, or, where views of the mapping are still held, when the last of them goes."""
    try:
        mapping.close()
    except BufferError:
        pass
