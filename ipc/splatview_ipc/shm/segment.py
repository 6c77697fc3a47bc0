"""Shared-memory segments: sealed memfds that unrelated processes of one user open through /proc, or are handed.

A segment has no name in any file system, so nothing is left behind when a process dies, however it dies. It is
sealed against shrinking and growing before anyone else hears of it: a mapping can never raise SIGBUS.
(multiprocessing.shared_memory unlinks a segment when an unrelated reader exits, and torch's own CPU sharing
lets a peer grow the file: neither is used.)
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import resource
import secrets
import weakref
from typing import TYPE_CHECKING, Protocol

from splatview_ipc.control import descriptors, limits
from splatview_ipc.control.errors import SharingError, UnreachableError

if TYPE_CHECKING:
    from splatview_ipc.control.messages import SegmentRef

PAGE = 64 * 1024
"""Alignment of what is mapped on its own: the largest page size of any Linux we run on."""

# fcntl has had names for these since Python 3.8, but only where it was built on a system that knew them.
_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW = 0x1, 0x2, 0x4
_PREFIX = "/memfd:splatview-"
_MAP_NORESERVE = 0x4000
_MAP_FAILED = ctypes.c_void_p(-1).value
_PAGEMAP = "/proc/self/pagemap"
_PRESENT, _SWAPPED, _OF_FILE = 0x80, 0x40, 0x20
"""In the highest byte of a page's entry there. A page of a file that was copied counts as anonymous memory."""
_COPIED = bytes(b for b in range(256) if b & (_PRESENT | _SWAPPED) and not b & _OF_FILE)
_MADV_REMOVE, _MADV_POPULATE_WRITE = 9, 23
_MAPPED_AT_ONCE = 8 << 20
"""Bytes whose pages are mapped in one system call: up to 10 ms on a slow machine."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *3 * (ctypes.c_int,), ctypes.c_long)
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes, _libc.madvise.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int


def round_up(n: int, to: int) -> int:
    return (n + to - 1) // to * to


class Segment:
    """A segment that this process made and writes."""

    def __init__(self, size: int, label: str, reserved: int | None = None):
        """`size` in bytes, rounded up to whole pages; `label` is a letter or a few, shown in /proc/PID/maps.
        `reserved`: the bytes at its start that get memory now, all by default; `reserve` allocates the rest.

        Raises SharingError when the memory is not to be had.
        """
        self.size = round_up(size, PAGE)
        self.reserved = self.size if reserved is None else round_up(reserved, PAGE)
        """Bytes at the start that have memory. A write behind them may raise SIGBUS."""
        # Descriptor numbers are used again: the token tells this segment from whatever has its number later.
        self.token = f"{label}-{secrets.token_hex(8)}"
        if self.size > limits.MAX_SEGMENT:
            raise SharingError(f"a shared segment of {self.size} bytes is over the limit of {limits.MAX_SEGMENT}")
        try:
            self.fd = os.memfd_create(f"splatview-{self.token}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as e:
            raise SharingError(f"no shared memory ({e.strerror}): memfd_create failed") from None
        try:
            # Allocated now, with the GIL released: a full machine says so here, not as SIGBUS at a later write.
            os.ftruncate(self.fd, self.size)
            os.posix_fallocate(self.fd, 0, self.reserved)
            fcntl.fcntl(self.fd, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_SEAL)
            self.map = mmap.mmap(self.fd, self.size)
            descriptors.offer([self.fd], self.token)
        except (OSError, ValueError) as e:
            os.close(self.fd)
            raise self._lacking(e) from None

    def _lacking(self, error: Exception) -> SharingError:
        return SharingError(f"no shared memory for {self.size / 1e6:.1f} MB ({error}): "
                            "free some memory, or publish less at once")

    def reserve(self, count: int) -> bool:
        """Allocate the next `count` bytes and map them into this process; return whether all are allocated.

        Afterwards the first write to them costs as much as any other. Both steps release the GIL, and the second one
        holds the lock of the process's address space for a few milliseconds at a time, since it delays allocations in
        other threads. Not in two threads at once. Raises SharingError when the memory is not to be had.
        """
        start, end = self.reserved, min(self.reserved + count, self.size)
        if start < end:
            try:
                os.posix_fallocate(self.fd, start, end - start)
            except OSError as e:
                raise self._lacking(e) from None
            for part in range(start, end, _MAPPED_AT_ONCE):
                _map_pages(self.map, part, min(_MAPPED_AT_ONCE, end - part))
            self.reserved = end
        return end == self.size

    def free(self, start: int, count: int) -> None:
        """Return the memory of whole pages to the system at once, also where other processes have them mapped, who
        read zeros there from now on. For data that nothing refers to any more."""
        _madvise(self.map, start, count, _MADV_REMOVE)

    @property
    def ref(self) -> SegmentRef:
        """How another process is told of it."""
        from splatview_ipc.control.messages import SegmentRef

        return SegmentRef(self.fd, self.size, self.token)

    def close(self) -> None:
        """Give the memory back; readers keep what they have mapped. Idempotent."""
        if self.fd >= 0:
            descriptors.withdraw(self.token)
            os.close(self.fd)
            self.fd = -1
            close_map(self.map)


def open_segment(ref: SegmentRef, pid: int) -> int:
    """A file descriptor on the segment that process `pid` announced, through /proc, after checking that it is one.

    Raises UnreachableError when /proc does not show it (it is gone, the process is of another PID namespace or
    user), other SharingErrors when it has another size than announced, or could still shrink.
    """
    path = f"/proc/{pid}/fd/{ref.fd}"
    try:
        # Looked at before it is opened: opening an arbitrary file may have effects (a FIFO blocks, a tape rewinds).
        _check_name(path, ref)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as e:
        raise UnreachableError(f"cannot open the memory of process {pid}: {e.strerror}. Is the run still there, and "
                           "does the viewer run as the same user?") from None
    check_segment(fd, ref)  # its name again, since the number may have changed hands in between
    return fd


def check_segment(fd: int, ref: SegmentRef) -> None:
    """Raise SharingError, and close the descriptor, unless it is the sealed segment that was announced."""
    path = f"/proc/self/fd/{fd}"
    try:
        _check_name(path, ref)
        size = os.fstat(fd).st_size
        seals = fcntl.fcntl(fd, _F_GET_SEALS)
        if size != ref.size or not seals & _SEAL_SHRINK or not seals & _SEAL_GROW:
            raise SharingError(f"{path} has {size} bytes, seals {seals:#x}; {ref.size} sealed bytes were announced")
    except (OSError, SharingError) as e:
        os.close(fd)
        raise e if isinstance(e, SharingError) else SharingError(f"{path}: {e}") from None


def _check_name(path: str, ref: SegmentRef) -> None:
    if os.readlink(path).partition(" ")[0] != _PREFIX + ref.token:
        raise UnreachableError(f"{path} is not the segment that was announced")


def map_segment(fd: int, size: int, prot: int) -> mmap.mmap:
    """Map the first `size` bytes of a segment that another process made; `fd` stays the caller's (a mapping keeps a
    descriptor of its own). Raises SharingError."""
    try:
        return mmap.mmap(fd, size, prot=prot)
    except (OSError, ValueError) as e:  # it may not be written to, for example
        lacking = isinstance(e, OSError) and e.errno in (errno.EMFILE, errno.ENFILE)
        what_to_do = ". Raise the viewer's limit of open files (ulimit -n), or show fewer streams" if lacking else ""
        raise SharingError(f"cannot map {size} bytes: {e}{what_to_do}") from None


def map_private(fd: int, size: int, offset: int) -> ctypes.Array[ctypes.c_char]:
    """Map a part of a segment copy-on-write: a write makes a private copy of its page, which the segment never shows.

    offset: bytes, a multiple of PAGE. The memory is unmapped when the array and all buffers over it are gone. Python's
    mmap keeps a descriptor for each mapping: a program that keeps many frames would have none left.
    Raises SharingError.
    """
    mapping = _libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_NORESERVE, fd, offset)
    if mapping == _MAP_FAILED:
        raise SharingError(f"cannot map {size} bytes copy-on-write: {os.strerror(ctypes.get_errno())}")
    array = (ctypes.c_char * size).from_address(mapping)
    weakref.finalize(array, _libc.munmap, mapping, size).atexit = False  # other exit handlers may still read it
    return array


def has_private_pages(address: int, size: int) -> bool:
    """Return whether a private mapping has copies of its own of any page between two addresses.

    True as well where the kernel does not tell (no /proc, no access to it). Linux: admin-guide/mm/pagemap.
    """
    first, end = address // mmap.PAGESIZE, (address + size - 1) // mmap.PAGESIZE + 1
    wanted = 8 * (end - first)
    try:
        fd = os.open(_PAGEMAP, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        entries = os.pread(fd, wanted, 8 * first)
    except OSError:
        return True
    finally:
        os.close(fd)
    if len(entries) != wanted:
        return True
    flags = entries[7::8]
    return len(flags.translate(None, _COPIED)) != len(flags)


def page_faults() -> int:
    """Return the number of page faults of this process, all threads; 0 where the system does not count them."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt


def close_map(mapping: mmap.mmap) -> None:
    """Unmap now, or, where views of the mapping are still held, when the last of them goes."""
    try:
        mapping.close()
    except BufferError:
        pass


def _map_pages(mapping: mmap.mmap, start: int, count: int) -> None:
    """Map the pages of allocated memory into this process for writing. Nothing may have been written there yet."""
    if _madvise(mapping, start, count, _MADV_POPULATE_WRITE) == errno.EINVAL:  # Linux before 5.14: write every byte
        ctypes.memset(_address(mapping) + start, 0, count)


def _madvise(mapping: mmap.mmap, start: int, count: int, advice: int) -> int:
    """`mmap.madvise` with the GIL released; return the error number, 0 on success."""
    return 0 if not _libc.madvise(_address(mapping) + start, count, advice) else ctypes.get_errno()


def _address(mapping: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


class Source(Protocol):
    """Where a reader gets the memory that a trainer announced. Neither call waits."""

    def segment(self, ref: SegmentRef) -> int:
        """A file descriptor, the caller's, on a sealed segment. Raises SharingError, NotYet."""
        ...

    def descriptors(self, token: str, count: int) -> list[int]:
        """`count` file descriptors, the caller's, that the trainer offers under a token. Raises SharingError, NotYet.

        They are asked for at the first call; who needs several things asks again for all until the last has come."""
        ...

    def forget(self, token: str) -> None:
        """What stands under this token is not asked for again."""
        ...

    def alive(self) -> bool:
        """Return whether the process that announced it still runs."""
        ...
