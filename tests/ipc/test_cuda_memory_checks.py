"""GPU memory, as far as it can be checked without a GPU: refusals and closed files."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
from support.meters import open_files
from support.programs import in_child

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FdMemory, IpcMemory, TorchMemory, encode
from splatview_ipc.cuda import memory, retiring
from splatview_ipc.transports.torch_ipc import read_export

_GPU = "0123456789abcdef" * 2


def _make_file() -> int:
    return os.memfd_create("not-cuda", os.MFD_CLOEXEC)


@pytest.mark.parametrize(
    ("ref", "fd_count"),
    [
        (FdMemory("t-1", (4096,), _GPU), 0),
        (FdMemory("t-1", (4096, 4096), _GPU), 1),
        (FdMemory("t-1", (4096,), _GPU), 2),
        (FdMemory("t-1", (0,), _GPU), 1),
        (FdMemory("t-1", (1 << 42, 1), _GPU), 2),
        (IpcMemory(b"x" * 64, 0, _GPU), 0),
        (IpcMemory(b"x" * 64, 4096, _GPU), 1),
    ],
    ids=str,
)
def test_invalid_memory_is_refused_and_its_descriptors_closed(
    ref: FdMemory | IpcMemory, fd_count: int
) -> None:
    files_before = open_files()
    with pytest.raises(SharingError):
        memory.open_memory(ref, [_make_file() for _ in range(fd_count)])
    assert open_files() <= files_before


def test_retired_memory_is_given_back_once_idle_by_its_own_process_alone() -> None:
    is_idle = threading.Event()
    freed_by: list[int] = []

    def free() -> None:
        freed_by.append(os.getpid())

    retiring.retire(is_idle.is_set, free)
    assert not retiring.release_idle()
    is_idle.set()

    def release_in_child() -> None:
        assert retiring.release_idle()
        assert not freed_by

    in_child(release_in_child)
    assert retiring.release_idle()
    assert freed_by == [os.getpid()]


_EXPORT = [b"\x02c" + bytes(64), 4096, 512, "/torch_123_456", 7]
"""Handle, bytes of the allocation, offset, counter file, offset there."""


def _write_export(content: bytes) -> list[int]:
    fd = _make_file()
    os.write(fd, content)
    return [fd]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (0, b"\x02x" + bytes(64)),
        (0, b"\x02c" + bytes(63)),
        (0, b"\x02e" + bytes(1 << 15)),
        (1, 4095),
        (1, 0),
        (2, 2**42),
        (2, -1),
        (3, "/torch_1_2/../x"),
        (3, "/torch_" + "1" * 100),
        (4, 10_000),
        (4, -1),
        (4, "7"),
    ],
)
def test_forged_export_of_torch_is_refused(field: int, value: Any) -> None:
    files_before = open_files()
    ref = TorchMemory("t-1", 4096, _GPU)
    valid = _write_export(encode(_EXPORT))
    assert read_export(ref, valid).counter_offset == 7
    fields = list(_EXPORT)
    fields[field] = value
    forged = _write_export(encode(fields))
    pickled = _write_export(b"\x80\x04.")
    too_long = _write_export(encode(_EXPORT) + bytes(1 << 20))
    for fds in (forged, pickled, too_long, valid + valid, []):
        with pytest.raises(SharingError):
            read_export(ref, fds)
    for fd in (*valid, *forged, *pickled, *too_long):
        os.close(fd)
    assert open_files() <= files_before
