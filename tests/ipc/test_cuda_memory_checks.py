"""GPU memory, as far as it can be checked without a GPU: what is refused, and what is closed."""

from __future__ import annotations

import os
from typing import Any

import pytest
from support.meters import open_files
from support.programs import in_child

from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FdMemory, IpcMemory, TorchMemory, encode
from splatview_ipc.cuda import memory, retiring
from splatview_ipc.transports.torch_ipc import read_export

GPU = "0123456789abcdef" * 2


def some_fd() -> int:
    return os.memfd_create("not-cuda", os.MFD_CLOEXEC)


@pytest.mark.parametrize(
    ("ref", "count"),
    [
        (FdMemory("t-1", (4096,), GPU), 0),
        (FdMemory("t-1", (4096, 4096), GPU), 1),
        (FdMemory("t-1", (4096,), GPU), 2),
        (FdMemory("t-1", (0,), GPU), 1),
        (FdMemory("t-1", (1 << 42, 1), GPU), 2),
        (IpcMemory(b"x" * 64, 0, GPU), 0),
        (IpcMemory(b"x" * 64, 4096, GPU), 1),
    ],
    ids=str,
)
def test_memory_that_cannot_be_is_refused_and_its_descriptors_closed(
    ref: FdMemory | IpcMemory, count: int
) -> None:
    before = open_files()
    with pytest.raises(SharingError):
        memory.open_memory(ref, [some_fd() for _ in range(count)])
    assert open_files() <= before


def test_what_is_retired_is_given_back_when_the_gpu_is_done() -> None:
    done = [False]
    given = []
    retiring.retire(lambda: done[0], lambda: given.append(os.getpid()))
    assert not retiring.release_idle()
    done[0] = True

    def turn_in_child() -> None:
        assert retiring.release_idle()
        assert not given, "the memory is the parent's"

    in_child(turn_in_child)
    assert retiring.release_idle()
    assert given == [os.getpid()]


EXPORT = [b"\x02c" + bytes(64), 4096, 512, "/torch_123_456", 7]


def export_file(fields: Any) -> list[int]:
    fd = some_fd()
    os.write(fd, fields if isinstance(fields, bytes) else encode(fields))
    return [fd]


@pytest.mark.parametrize(
    ("number", "value"),
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
def test_forged_exports_of_torch_are_refused(number: int, value: Any) -> None:
    before = open_files()
    memory = TorchMemory("t-1", 4096, GPU)
    good = export_file(EXPORT)
    assert read_export(memory, good).counter_offset == 7
    forged = export_file([*EXPORT[:number], value, *EXPORT[number + 1 :]])
    pickled = export_file(b"\x80\x04.")
    long = export_file(encode(EXPORT) + bytes(1 << 20))
    for fds in (forged, pickled, long, good + good, []):
        with pytest.raises(SharingError):
            read_export(memory, fds)
    for fd in (*good, *forged, *pickled, *long):
        os.close(fd)
    assert open_files() <= before
