"""GPU memory, as far as it can be checked without a GPU: what is refused, what is closed, what waits."""

from __future__ import annotations

import os
import sys
import threading
import types
from typing import Any

import pytest
import torch
from support.open_files import open_files
from support.wait import PATIENCE

from splatview.ipc.cuda import driver, export, memory, retiring
from splatview.ipc.cuda.tensors import span
from splatview.ipc.errors import SharingError
from splatview.ipc.messages import FdMemory, IpcMemory
from splatview.viewer_app.recovering.health import cuda_is_lost

GPU = "0123456789abcdef" * 2
without_driver = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def some_fd() -> int:
    return os.memfd_create("not-cuda", os.MFD_CLOEXEC)


@pytest.mark.parametrize("has", [(), ("cuda",)])
def test_torch_uses_no_cuda_while_it_is_imported(has: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A module is there from the beginning of its import; what it holds comes one by one."""
    imported = types.ModuleType("torch")
    for name in has:
        setattr(imported, name, types.SimpleNamespace(is_initialized=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", imported)
    assert driver.torch_with_cuda() is None
    assert driver.current_stream(0) == 0
    assert not driver.is_capturing()
    assert cuda_is_lost() == ""


@pytest.mark.parametrize("make", [
    lambda t: t, lambda t: t[::2, 1:4], lambda t: t.t(), lambda t: t[0], lambda t: t[3:3], lambda t: t[5, 2],
    lambda t: t[1].expand(4, 6)])
def test_span_is_what_a_tensor_reaches_over(make: Any) -> None:
    t = make(torch.arange(60).reshape(10, 6))
    flat = set(t.flatten().tolist())
    assert span(t.shape, t.stride()) == (max(flat) - min(flat) + 1 if flat else 0)


@pytest.mark.parametrize(("ref", "count"), [
    (FdMemory("t-1", (4096,), GPU), 0), (FdMemory("t-1", (4096, 4096), GPU), 1), (FdMemory("t-1", (4096,), GPU), 2),
    (FdMemory("t-1", (0,), GPU), 1), (FdMemory("t-1", (1 << 42, 1), GPU), 2), (IpcMemory(b"x" * 63, 4096, GPU), 0),
    (IpcMemory(b"x" * 64, 0, GPU), 0), (IpcMemory(b"x" * 64, 4096, GPU), 1)], ids=str)
def test_memory_that_cannot_be_is_refused_and_its_descriptors_closed(ref: FdMemory | IpcMemory, count: int) -> None:
    before = open_files()
    with pytest.raises(SharingError):
        memory.open_memory(ref, [some_fd() for _ in range(count)])
    assert open_files() <= before


def test_memory_keeps_its_descriptors_until_the_last_share_is_gone() -> None:
    before = open_files()
    opened = memory.open_memory(FdMemory("t-1", (4096, 8192), GPU), [some_fd(), some_fd()])
    assert (opened.size, opened.gpu) == (12288, GPU)
    assert [piece.size for piece in opened.pieces] == [4096, 8192]
    share, other = opened.hold(), opened.hold()
    opened.close()
    opened.close()
    assert len(open_files() - before) == 2
    share.close()
    share.close()
    assert len(open_files() - before) == 2
    del other
    assert open_files() <= before
    with pytest.raises(SharingError, match="closed"):
        opened.hold()


class Mapped:
    """What a driver would say of chunks mapped at some addresses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, chunks: dict[int, int], mapping: str = "known"):
        self.chunks, self.mapping = chunks, mapping
        monkeypatch.setattr(driver, "pointer_attribute", self.attribute)
        monkeypatch.setattr(driver, "handle", self.retain)
        monkeypatch.setattr(driver, "release", lambda name, *args: "")

    def find(self, address: int) -> tuple[int, int] | None:
        return next(((base, size) for base, size in self.chunks.items() if base <= address < base + size), None)

    def attribute(self, attribute: int, address: int) -> int:
        chunk = self.find(address)
        if chunk is None or (self.mapping == "refused" and attribute in (18, 19)):
            raise driver.CudaError("cuPointerGetAttribute", "CUDA_ERROR_INVALID_VALUE")
        if self.mapping == "whole reservation":
            chunk = min(self.chunks), 1 << 37
        return {14: 1, 18: chunk[1], 19: chunk[0]}.get(attribute, 0)

    def retain(self, name: str, address: int) -> int:
        assert name == "cuMemRetainAllocationHandle"
        chunk = self.find(address)
        if chunk is None:
            raise driver.CudaError(name, "CUDA_ERROR_INVALID_VALUE")
        return 1000 + chunk[0]


GRANULE = 2 << 20
BASE = 0x7F0000000000


@pytest.mark.parametrize("mapping", ["known", "refused", "whole reservation"])
def test_the_chunks_behind_tensors(monkeypatch: pytest.MonkeyPatch, mapping: str) -> None:
    a, b, c = BASE, BASE + 10 * GRANULE, BASE + 13 * GRANULE
    far = BASE + 40 * GRANULE
    Mapped(monkeypatch, {a: 10 * GRANULE, b: 3 * GRANULE, c: GRANULE, far: 2 * GRANULE}, mapping)
    for address, chunk in [(a, a), (a + 9 * GRANULE + 5, a), (b, b), (c - 1, b), (c + 77, c), (far + GRANULE, far)]:
        assert export.chunk_at(address)[0] == chunk
    assert export.chunk_at(b + GRANULE) == (b, 3 * GRANULE)
    with pytest.raises(SharingError, match="no shareable memory"):
        export.chunk_at(far - 1)
    finder = export._Finder()
    finder.add(c + 3, c + 9)
    finder.add(a + 5, b + 1)  # two chunks, the third of which lies next to them
    finder.add(far, far + 2 * GRANULE)
    together = [(a, 10 * GRANULE), (b, 3 * GRANULE), (c, GRANULE)]
    assert finder.runs() == [(together, False), ([(far, 2 * GRANULE)], False)]
    finder = export._Finder()
    finder.add(a, a + 1)
    finder.add(c, c + 1)
    assert finder.runs() == [([(a, 10 * GRANULE)], False), ([(c, GRANULE)], False)], "only what is touched"
    with pytest.raises(SharingError, match="no shareable memory"):
        finder.add(far, far + 2 * GRANULE + 1)


@pytest.mark.parametrize(("attributes", "says"), [
    ({17: 5}, "cudaMallocAsync cannot be shared"), ({8: 1}, "managed memory"), ({}, "no way to export it"),
    ({14: 8}, "handle types 0x8")])
def test_memory_that_cannot_be_shared_is_refused_with_the_reason(
        monkeypatch: pytest.MonkeyPatch, attributes: dict[int, int], says: str) -> None:
    monkeypatch.setattr(driver, "pointer_attribute", lambda attribute, pointer: attributes.get(attribute, 0))
    with pytest.raises(SharingError, match=says):
        export._Finder().add(BASE, BASE + 1)


def test_what_is_retired_is_freed_when_it_is_ready_and_nothing_waits() -> None:
    ready, freed = threading.Event(), threading.Event()
    retiring.retire(ready.is_set, freed.set)  # if it waited, it would do so for ever
    assert not freed.is_set()
    quick = threading.Event()
    retiring.retire(lambda: True, quick.set)
    assert quick.wait(PATIENCE)  # not held up by the other
    ready.set()
    assert retiring.settle(PATIENCE)
    assert freed.is_set()
