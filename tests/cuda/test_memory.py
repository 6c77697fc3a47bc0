"""GPU memory between two programs: found, exported, opened, read exactly, given back."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch
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


def test_large_tensors_in_many_chunks_and_only_what_they_touch(owner: Start, allocator: str) -> None:
    peer = owner("""
big = torch.arange(100 << 20, dtype=torch.int32, device="cuda").to(torch.uint8)
other = torch.arange(30 << 20, dtype=torch.int32, device="cuda").to(torch.float32)
torch.cuda.synchronize()
share({"big": big, "other": other})
hear()
share({"part": big[51 << 20 :][: 1 << 20]})
hear()
""")
    memories, refs = peer.memories()
    big, other = tensor_of(memories, refs["big"]), tensor_of(memories, refs["other"])
    assert torch.equal(big, torch.arange(100 << 20, dtype=torch.int32, device="cuda").to(torch.uint8))
    assert torch.equal(other, torch.arange(30 << 20, dtype=torch.int32, device="cuda").to(torch.float32))
    pieces = [piece.size for m in memories for piece in m.pieces]
    if allocator == "expandable":
        assert len(pieces) > 2
        assert sum(pieces) < 300 * MB
        assert all(size % (2 * MB) == 0 for size in pieces)
    else:
        assert not pieces
    peer.say()
    part, part_refs = peer.memories()
    assert torch.equal(tensor_of(part, part_refs["part"]), big[51 * MB : 52 * MB])
    if allocator == "expandable":
        assert sum(piece.size for m in part for piece in m.pieces) <= 40 * MB
    peer.say()
    for m in [*memories, *part]:
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
