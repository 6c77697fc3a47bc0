"""The driver, and GPU memory of our own: devices by UUID, contexts only where they are asked for, forgeries refused."""

from __future__ import annotations

import gc
import os
import random
import socket

import pytest
import torch
from support.gpu_memory import told, used
from support.meters import open_files

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FdMemory, IpcMemory
from splatview_ipc.cuda import driver, memory

pytestmark = pytest.mark.cuda

MB = 1 << 20


@pytest.mark.parametrize("dtype", limits.ITEM_SIZE)
def test_memory_of_our_own(dtype: str) -> None:
    kind = getattr(torch, dtype)
    own = memory.Allocation(5 * MB, 0)
    assert own.size == 6 * MB
    assert own.gpu == driver.gpu_uuid(0)
    t = own.tensor(dtype, (100, 7), offset=512)
    values = (torch.rand(100, 7) * 200).to(kind)
    t.copy_(values)
    opened = memory.open_memory(FdMemory("t-1", (own.size,), own.gpu), [own.fd()])
    torch.cuda.synchronize()
    again = opened.tensor(dtype, (7, 100), (1, 7), 512)
    assert torch.equal(again.cpu(), values.t())
    with pytest.raises(SharingError, match="does not lie within"):
        own.tensor(dtype, (6 * MB,), offset=512)
    opened.close()
    own.close()
    del again
    assert torch.equal(t.cpu(), values), "the tensor keeps it"


def test_memory_of_our_own_is_given_back() -> None:
    torch.empty(4, dtype=torch.uint8, device="cuda").fill_(1)  # kernels are loaded when they are first used
    memory.Allocation(MB, 0).close()
    gc.collect()  # what other tests left
    fds, before = open_files(), used()
    for i in range(20):
        own = memory.Allocation(256 * MB, 0)
        t = own.tensor("uint8", (256 * MB,))
        t.fill_(1)
        own.close()
        if i == 10 and told():
            assert used() >= before + 256 * MB, "the tensor keeps it"
        del t
        gc.collect()
    assert open_files() <= fds
    assert used() < before + 8 * MB


def test_forged_memory_is_refused_and_cuda_goes_on() -> None:
    """Handles of nothing, descriptors of something else, other sizes than the memory's, a GPU that is not here."""
    torch.zeros(1, device="cuda")
    gpu, unknown, luck = driver.gpu_uuid(0), "f" * 32, random.Random(0)
    own, ends, pipe = memory.Allocation(2 * MB, 0), socket.socketpair(), os.pipe()
    before, files = used(), open_files()
    forged: list[tuple[FdMemory | IpcMemory, list[int]]] = [
        (IpcMemory(handle, 4096, gpu), [])
        for handle in (bytes(64), b"\xff" * 64, *(luck.randbytes(64) for _ in range(20)))]
    forged += [(FdMemory("t-1", (2 * MB,), gpu), [fd]) for fd in (
        os.open("/dev/null", os.O_RDWR), os.dup(pipe[0]), os.memfd_create("splatview-x"), os.dup(ends[0].fileno()))]
    for pieces in ((4 * MB,), (2 * MB, 2 * MB), (1,), (limits.MAX_SEGMENT,), (3 * MB,)):
        more = [os.open("/dev/null", os.O_RDWR) for _ in pieces[1:]]
        forged.append((FdMemory("t-1", pieces, gpu), [own.fd(), *more]))
    forged += [(FdMemory("t-1", (2 * MB,), unknown), [own.fd()]), (IpcMemory(bytes(64), 4096, unknown), [])]
    for ref, fds in forged:
        opened = memory.open_memory(ref, fds)
        with pytest.raises(SharingError, match="not visible" if ref.gpu == unknown else "."):
            opened.pointer()
        opened.close()
        torch.cuda.synchronize()
        assert int(torch.ones(5, device="cuda").sum()) == 5, ref
    assert open_files() <= files
    assert used() <= before + 32 * MB
    own.close()
    for one in ends:
        one.close()
    for end in pipe:
        os.close(end)
