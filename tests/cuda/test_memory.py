"""GPU memory, between two programs and of our own: found, exported, opened, read exactly, given back; forgeries."""

from __future__ import annotations

import gc
import os
import random
import socket
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
from support.gpu_memory import used
from support.meters import open_files
from support.sharing import tensor_of, views

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FdMemory, IpcMemory
from splatview_ipc.cuda import driver, memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.sharing import Peer

    Start = Callable[..., Peer]

pytestmark = pytest.mark.cuda

MB = 1 << 20


@pytest.mark.parametrize("dtype", limits.ITEM_SIZE)
def test_every_type_and_every_view_arrives_exactly(owner: Start, allocator: str, dtype: str) -> None:
    peer = owner("""
from support.sharing import views
made = views(getattr(torch, sys.argv[2]))
base = made["whole"].cuda()
pad = torch.zeros(1000, device="cuda")
def at(t):  # the same view of the GPU's copy
    return base.as_strided(t.shape, t.stride(), t.storage_offset())
torch.cuda.synchronize()
share({name: at(t) for name, t in made.items()})
hear()
""", dtype)
    memories, refs = peer.memories()
    expected = views(getattr(torch, dtype))
    assert set(refs) == set(expected)
    assert all(bool(m.pieces) == (allocator == "expandable") for m in memories)
    for name, ref in refs.items():
        t = tensor_of(memories, ref)
        assert t.device == torch.device("cuda", 0)
        assert t.dtype == getattr(torch, dtype)
        assert t.stride() == expected[name].stride() or t.numel() < 2
        assert torch.equal(t.cpu(), expected[name]), name
    peer.say()
    for m in memories:
        m.close()


def mapped(address: int) -> bool:
    with driver.context(0):
        try:
            return bool(driver.pointer_attribute(2, address))  # the type of memory
        except driver.CudaError:
            return False


def test_a_tensor_keeps_its_memory(owner: Start) -> None:
    peer = owner("""
t = torch.full((4 << 20,), 9, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
share({"t": t})
hear()
""")
    gc.collect()  # what other tests left
    files = open_files()
    (opened,), refs = peer.memories()
    t = tensor_of([opened], refs["t"])
    address = opened.pointer()
    view = t[100:200].view(10, 10).float()[3:], t[7:]
    opened.close()
    opened.close()
    assert open_files() <= files
    with pytest.raises(SharingError, match="closed"):
        opened.pointer()
    del t
    gc.collect()
    assert mapped(address)
    assert bool((view[1] == 9).all())
    del view
    gc.collect()
    assert not mapped(address)
    peer.say()


def test_announced_sizes_are_held_against_the_memory(owner: Start, allocator: str) -> None:
    peer = owner("""
t = torch.zeros(30 << 20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
share({"t": t})
hear()
""")
    body, fds = peer._receive()
    ref = msgspec.msgpack.decode(body)[0][0]
    if allocator == "cudaMalloc":
        lie: Any = IpcMemory(ref["handle"], ref["size"] * 2, ref["gpu"])
    else:
        lie = FdMemory(ref["token"], tuple(size * 2 for size in ref["pieces"]), ref["gpu"])
    before = frozenset(file for file in open_files() if file[0] not in fds)
    opened = memory.open_memory(lie, fds)
    with pytest.raises(SharingError):
        opened.pointer()
    opened.close()
    assert open_files() <= before
    assert int(torch.ones(5, device="cuda").sum()) == 5, "CUDA goes on after a refusal"
    peer.say()


# ---- memory of our own, and forgeries of it


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
