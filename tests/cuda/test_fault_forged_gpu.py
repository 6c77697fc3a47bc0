"""Forged CUDA handles, sizes, GPUs, offsets and events: the viewer refuses them in words, keeps nothing of them open,
and its CUDA goes on."""

from __future__ import annotations

import os
import random
import socket
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.gpu_memory import MB, used
from support.impostor import Impostor, info
from support.meters import open_files
from support.reading import next_frame, stream_of
from support.trainers import Trainer

from splatview_ipc.control import descriptors, limits, mail, messages
from splatview_ipc.control.errors import SharingError
from splatview_ipc.cuda import driver
from splatview_ipc.cuda.memory import Allocation, open_memory
from splatview_ipc.shm.segment import PAGE, Segment
from splatview_ipc.shm.slot_layout import CAPACITY, MAGIC, MAGIC_WORD, SLOTS
from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Programs

pytestmark = pytest.mark.cuda

UNKNOWN = "f" * 32
"""No GPU's UUID."""


@pytest.fixture
def gpu() -> str:
    torch.zeros(1, device="cuda")
    return driver.gpu_uuid(0)


def works() -> bool:
    """Whether CUDA goes on."""
    torch.cuda.synchronize()
    return int(torch.ones(5, device="cuda").sum()) == 5


def test_handles_of_nothing(gpu: str) -> None:
    luck = random.Random(0)
    before, files = used(), open_files()
    for handle in (bytes(64), b"\xff" * 64, *(luck.randbytes(64) for _ in range(20))):
        memory = open_memory(messages.IpcMemory(handle, 4096, gpu))
        with pytest.raises(SharingError):
            memory.pointer()
        memory.close()
    assert works()
    assert open_files() <= files
    assert used() <= before + 16 * MB


@pytest.mark.parametrize("what", ["/dev/null", "a pipe", "a segment", "a socket"])
def test_descriptors_that_are_no_gpu_memory(gpu: str, what: str) -> None:
    before = open_files()
    others = socket.socketpair()
    pipe = os.pipe()
    fd = {"/dev/null": lambda: os.open("/dev/null", os.O_RDWR), "a pipe": lambda: os.dup(pipe[0]),
          "a segment": lambda: os.memfd_create("splatview-x"), "a socket": lambda: os.dup(others[0].fileno())}[what]()
    memory = open_memory(messages.FdMemory("t-1", (2 * MB,), gpu), [fd])
    with pytest.raises(SharingError):
        memory.pointer()
    memory.close()
    for one in others:
        one.close()
    for end in pipe:
        os.close(end)
    assert works()
    assert open_files() <= before


@pytest.mark.parametrize("pieces", [(4 * MB,), (2 * MB, 2 * MB), (1,), (limits.MAX_SEGMENT,), (3 * MB,)],
                         ids=["larger", "two", "a byte", "4 TB", "odd"])
def test_sizes_that_are_not_so(gpu: str, pieces: tuple[int, ...]) -> None:
    allocation = Allocation(2 * MB, 0)
    files, before = open_files(), used()
    fds = [allocation.fd()] + [os.open("/dev/null", os.O_RDWR) for _ in pieces[1:]]
    memory = open_memory(messages.FdMemory("t-1", pieces, gpu), fds)
    with pytest.raises(SharingError):
        memory.pointer()
    memory.close()
    assert works()
    assert open_files() <= files
    assert used() <= before + 16 * MB
    allocation.close()


def test_a_gpu_that_is_not_here(gpu: str) -> None:
    allocation = Allocation(2 * MB, 0)
    for memory in (open_memory(messages.FdMemory("t-1", (2 * MB,), UNKNOWN), [allocation.fd()]),
                   open_memory(messages.IpcMemory(bytes(64), 4096, UNKNOWN))):
        with pytest.raises(SharingError, match="not visible"):
            memory.pointer()
        memory.close()
    allocation.close()


def test_tensors_beyond_their_memory(gpu: str) -> None:
    allocation = Allocation(2 * MB, 0)
    memory = open_memory(messages.FdMemory("t-1", (allocation.size,), gpu), [allocation.fd()])
    top = allocation.size
    for dtype, shape, strides, offset in (
            ("float32", (top // 4 + 1,), (1,), 0), ("float32", (1,), (1,), top), ("float32", (1,), (1,), 2),
            ("float32", (2**40,) * 4, (2**40,) * 4, 0), ("float64", (2,), (top // 8,), 0), ("uint8", (1,), (1,), -1),
            ("float32", (4,), (-1,), 64), ("complex64", (1,), (1,), 0), ("float32", (4, 4), (4,), 0)):
        with pytest.raises(SharingError):
            memory.tensor(dtype, shape, strides, offset)
    assert memory.tensor("uint8", (top,), (1,), 0).numel() == top
    memory.close()
    allocation.close()
    assert works()


@pytest.fixture
def liar(runtime_dir: Path) -> Iterator[Impostor]:
    liar = Impostor(endpoint=mail.endpoint)
    yield liar
    liar.close()


@pytest.fixture
def honest(tmp_path: Path, programs: Programs, runtime_dir: Path) -> Trainer:
    trainer = Trainer(programs)
    trainer.do("scene = make(100, 3); splatview.publish(scene, 'honest')")
    return trainer


def ring_of(gpu: str, capacity: int, memory: messages.FdMemory) -> tuple[Segment, messages.DeviceRingRef]:
    """A ring's control page that is as it should be, over memory that is not."""
    segment = Segment(PAGE * 5, "ring")
    words = memoryview(segment.map).cast("Q")
    words[MAGIC_WORD], words[SLOTS], words[CAPACITY] = MAGIC, 4, capacity
    words.release()
    return segment, messages.DeviceRingRef(segment.ref, memory)


@pytest.mark.parametrize("case", ["handle", "gpu", "ring too small", "ring of no memory", "no such token"])
def test_a_run_that_offers_them_is_refused_and_others_are_seen(
        liar: Impostor, honest: Trainer, gpu: str, case: str, wait_until: Callable[..., Any]) -> None:
    shape = {name: (100, *tail) for name, tail in {"means": (3,), "quats": (4,), "scales": (3,), "opacities": (),
                                                   "rgb": (3,)}.items()}
    tensors = tuple(messages.TensorRef(name, "float32", s, tuple(torch.empty(s).stride()), 0, 4096 * i)  # type: ignore
                    for i, (name, s) in enumerate(shape.items()))
    control = Segment(PAGE * 5, "inplace")
    words = memoryview(control.map).cast("Q")
    words[MAGIC_WORD], words[SLOTS] = MAGIC, 4
    words.release()
    segments, token = [control], ""
    if case == "ring of no memory":
        token = descriptors.offer(1, lambda start, stop: [os.open("/dev/null", os.O_RDWR)])
    memory = messages.FdMemory(token or "fds-0", (PAGE if case == "ring too small" else 2 * MB,), gpu)
    if case.startswith("ring") or case == "no such token":
        segment, ref = ring_of(gpu, PAGE, memory)
        segments.append(segment)
        way = "device-ring"
    else:
        shared = messages.IpcMemory(b"\7" * 64, 2 * MB, UNKNOWN if case == "gpu" else gpu)
        ref = messages.InPlaceRef(control.ref, gpu, 1, (shared,), tensors)
        way = "in-place"
    with Subscriber() as viewer:
        seen = stream_of(viewer, "honest")
        next_frame(viewer, seen).close()
        wait_until(lambda: (liar.hear(), viewer.poll(), liar.viewers)[-1])
        liar.tell(liar.welcome(), messages.Manifest((info(0, kind="gaussians", shape=(100, 3), dtype="float32",
                                                          device="cuda:0", transports=(way,), gpu=gpu),), ()))
        asked = 0
        run = wait_until(lambda: (liar.hear(), viewer.poll(), next(
            (r for r in viewer.runs if r.streams and r.name == "impostor"), None))[-1])

        def refused() -> bool:
            nonlocal asked
            liar.hear()
            opens = sum(isinstance(message, messages.Open) for message in liar.heard)
            if opens > asked:  # at the first refusal it asks once more
                asked = opens
                liar.tell(messages.Offer(0, way, ref))  # type: ignore[arg-type]
            viewer.poll()
            reader = run.streams[0]._reader
            if case == "ring of no memory" and reader is not None:  # which is not looked at before it is asked for
                with pytest.raises(SharingError):
                    reader.memory.pointer()  # type: ignore[attr-defined]
                return True
            return bool(run.streams[0].fault)

        left: list[frozenset[Any]] = []
        for _ in range(3):  # what CUDA opens at the first try stays
            run.streams[0].open()
            wait_until(refused, what="a refusal")
            run.streams[0].release()
            left.append(open_files())
        honest.do("fill(scene, 7); splatview.publish(scene, 'honest')")
        with next_frame(viewer, seen, after=1) as frame:
            frame.wait(torch.cuda.current_stream().cuda_stream)
            assert bool((frame.tensors["means"].torch() == 7).all())  # type: ignore[union-attr]
        assert works()
        wait_until(lambda: (liar.hear(), viewer.poll(), open_files() <= left[0])[-1], what="nothing is left open")
    if token:
        descriptors.withdraw(token)
    for segment in segments:
        segment.close()
