"""GPU memory between two programs: found, exported, opened, read exactly, given back."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.gpu_memory import used
from support.meters import open_files
from support.programs import Programs
from support.sharing import PIECES, Peer, tensor_of
from support.wait import PATIENCE

from splatview_ipc.control import limits
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.messages import FdMemory, IpcMemory
from splatview_ipc.cuda import driver, memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start = Callable[..., Peer]

pytestmark = pytest.mark.cuda

ALLOCATORS = {"cudaMalloc": "", "expandable": "expandable_segments:True"}
MB = 1 << 20


REFUSED = """
from splatview_ipc.control.errors import SharingError
try:
    share({"t": torch.zeros(100, device="cuda")})
except SharingError as e:
    say(str(e))
hear()
"""


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Peer]]:
    """Every program that these tests need, all started at once."""
    started = Programs(tmp_path_factory.mktemp("owners"))

    def start(conf: str, source: str) -> Peer:
        return Peer(started, tmp_path_factory.mktemp("peer"), source, PYTORCH_CUDA_ALLOC_CONF=conf)

    made = {name: start(conf, PIECES) for name, conf in ALLOCATORS.items()}
    made |= {f"victim {name}": start(conf, PIECES) for name, conf in ALLOCATORS.items()}
    made["async"] = start("backend:cudaMallocAsync", REFUSED)
    assert all(peer.socket for peer in made.values())  # connected
    yield made
    for peer in made.values():
        peer.close()
    started.close()


@pytest.fixture(params=ALLOCATORS)
def allocator(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def owner(peers: dict[str, Peer], allocator: str) -> Start:
    def start(source: str, *args: str) -> Peer:
        peers[allocator].do(source, *args)
        return peers[allocator]

    return start


def views(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    namespace: dict[str, Any] = {"torch": torch}
    from support import sharing

    exec("def views" + sharing.OWNER.partition("def views")[2], namespace)
    return namespace["views"](dtype)


@pytest.mark.parametrize("dtype", limits.ITEM_SIZE)
def test_every_type_and_every_view_arrives_exactly(owner: Start, allocator: str, dtype: str) -> None:
    peer = owner("""
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
    print(allocator, "pieces", pieces, "sizes", [m.size for m in memories])
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


def test_nothing_is_left_after_many_openings(owner: Start) -> None:
    peer = owner("""
import os
t = torch.full((40 << 20,), 3, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
counts = []
while hear() == "again":
    share({"t": t, "half": t[20 << 20 :]})
    counts.append(len(os.listdir("/proc/self/fd")))
say(f"{counts[5]} {counts[-1]}")
hear()
""")

    def once() -> None:
        peer.say("again")
        memories, refs = peer.memories()
        assert int(tensor_of(memories, refs["half"])[-1]) == 3
        for m in memories:
            m.close()

    for _ in range(10):
        once()
    fds, before = open_files(), used()
    for _ in range(100):
        once()
    assert open_files() <= fds
    assert used() < before + 8 * MB
    peer.say("end")
    early, late = peer.hear().split()
    assert early == late, "descriptors stay open in the owner"
    peer.say()


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


def test_updates_are_seen(owner: Start) -> None:
    peer = owner("""
t = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
share({"t": t})
hear()
t.fill_(7)
torch.cuda.synchronize()
say("written")
hear()
""")
    (opened,), refs = peer.memories()
    t = tensor_of([opened], refs["t"])
    assert int(t.max()) == 0
    peer.say()
    assert peer.hear() == "written"
    assert int(t.min()) == 7
    opened.close()
    peer.say()


def test_memory_outlives_its_owner(peers: dict[str, Peer], allocator: str) -> None:
    peer = peers[f"victim {allocator}"]
    peer.do("""
t = torch.arange(8 << 20, dtype=torch.int32, device="cuda").to(torch.uint8)
torch.cuda.synchronize()
share({"t": t})
hear()
""")
    (opened,), refs = peer.memories()
    t = tensor_of([opened], refs["t"])
    expected = torch.arange(8 << 20, dtype=torch.int32, device="cuda").to(torch.uint8)
    assert torch.equal(t, expected)
    peer.process.kill()
    peer.process.wait(timeout=PATIENCE)
    torch.full((256 * MB,), 5, dtype=torch.uint8, device="cuda")
    assert torch.equal(t, expected)
    opened.close()


def test_memory_of_cuda_malloc_async_is_refused_with_the_reason(peers: dict[str, Peer]) -> None:
    said = peers["async"].hear()
    assert "cudaMallocAsync cannot be shared" in said
    assert "copy=True" in said


def test_announced_sizes_are_held_against_the_memory(owner: Start, allocator: str) -> None:
    peer = owner("""
t = torch.zeros(30 << 20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
share({"t": t})
hear()
""")
    body, fds = peer._receive()
    import msgspec

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
