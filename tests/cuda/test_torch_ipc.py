"""Tensors by torch's own handles, between two programs: shared without a copy, an export a reader, all returned."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
import torch
from support.reading import next_frame, stream_of, values
from support.sharing import OWNER, close_fds
from support.trainers import Trainer

from splatview_ipc.control.messages import InPlaceRef
from splatview_ipc.transports.torch_ipc import TorchIpcReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.programs import Programs
    from support.sharing import Peer

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.subscriber.subscriber import Subscriber

pytestmark = pytest.mark.cuda

BEGIN = OWNER + """
import gc, threading
from splatview_ipc.control import descriptors
from splatview_ipc.control.messages import tokens
from splatview_ipc.transports.torch_ipc import TorchIpcWriter
from support.wait import all_retired
def fetch(ref):  # as the trainer answers a viewer
    return {token: descriptors.take(token, 0, count)[0] for token, count in tokens(ref).items()}
def lend(writer):
    found = fetch(writer.ref)
    fds = [fd for own in found.values() for fd in own]
    socket.send_fds(s, [msgspec.msgpack.encode((writer.ref, {token: len(own) for token, own in found.items()}))], fds)
    for fd in fds:
        os.close(fd)
def write(writer, image, version):
    assert writer.write("image", {"image": image}, {"layout": "HW"}, version)
"""


def borrow(peer: Peer) -> tuple[InPlaceRef, dict[str, list[int]]]:
    body, fds = peer._receive()
    ref, counts = msgspec.msgpack.decode(body, type=tuple[InPlaceRef, dict[str, int]])
    return ref, {token: [fds.pop(0) for _ in range(count)] for token, count in counts.items()}


def reader_of(peer: Peer) -> TorchIpcReader:
    ref, found = borrow(peer)
    try:
        return TorchIpcReader(ref, found)
    finally:
        close_fds(found)


def newest(reader: TorchIpcReader, after: int = 0) -> Frame:
    frame = reader.read(after)
    assert frame is not None
    frame.wait(torch.cuda.current_stream().cuda_stream)
    return frame


def image_of(frame: Frame) -> torch.Tensor:
    return frame.tensors["image"].torch()  # type: ignore[union-attr]


def test_every_reference_is_returned(owner: Callable[[str], Peer]) -> None:
    """Of viewers that return theirs, that never open what they fetched, and that keep it for too long."""
    peer = owner("""
gc.collect()
torch.cuda.ipc_collect()
before = torch.cuda.memory_allocated()
image = torch.full((1000, 1000), 7.0, device="cuda")
writer = TorchIpcWriter({"image": image})
write(writer, image, 1)
for _ in range(20):
    for fds in fetch(writer.ref).values():
        for fd in fds:
            os.close(fd)
for _ in range(3):
    lend(writer)
hear()
held = torch.cuda.memory_allocated() - before
writer.close()
all_retired()
del image, writer
gc.collect()
torch.cuda.ipc_collect()
say(f"{held} {torch.cuda.memory_allocated() - before}")
hear()
""")
    first, kept, unread = reader_of(peer), reader_of(peer), borrow(peer)
    close_fds(unread[1])
    with newest(first) as frame:
        assert float(image_of(frame).min()) == 7.0
    first.close()
    frame = newest(kept)
    peer.say()
    said = peer.hear()
    held, left = (int(n) for n in said.split()[:2])
    assert held >= 4_000_000
    assert left <= 0, said  # less: of what ran before it
    assert not frame.intact(), "the trainer has given it back"
    frame.close()
    kept.close()
    gc.collect()
    peer.say()


def test_a_fetch_spoils_no_capture_of_a_graph(owner: Callable[[str], Peer]) -> None:
    peer = owner("""
image = torch.zeros(64, 64, device="cuda")
writer = TorchIpcWriter({"image": image})
write(writer, image, 1)
graph = torch.cuda.CUDAGraph()
image.add_(1)  # its kernel is loaded
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    image.add_(1)
    thread = threading.Thread(target=lend, args=(writer,))
    thread.start()
    thread.join()
    image.add_(1)
graph.replay()
torch.cuda.synchronize()
say(str(float(image.max())))
hear()
writer.close()
""")
    reader = reader_of(peer)
    assert peer.hear() == "3.0"
    with newest(reader) as frame:
        assert float(image_of(frame).min()) == 3.0
    reader.close()
    peer.say()


def test_a_training_is_followed_by_torchs_handles(programs: Programs, subscriber: Subscriber) -> None:
    """From `publish` to a viewer, through a densification, where SPLATVIEW_SHARE=torch; and a part of a storage."""
    trainer = Trainer(programs, SPLATVIEW_SHARE="torch")
    trainer.do("""
scene = make(1000, 1)
base = torch.arange(300 * 200, device="cuda").to(torch.float32).view(300, 200)
def publish():
    splatview.publish(scene)
    splatview.publish(base[20:100:2, 10:90], "part", copy=False)
publish()
""")
    part = torch.arange(300 * 200, dtype=torch.float32).view(300, 200)[20:100:2, 10:90].numpy()
    stream, other = stream_of(subscriber), stream_of(subscriber, "part")
    version = seen = 0
    for count, value, code in (1000, 1, ""), (1000, 2, "fill(scene, 2)"), (2000, 3, "scene = make(2000, 3)"):
        if code:
            trainer.do(f"{code}; base += 1; publish()")
        with next_frame(subscriber, stream, version) as frame, next_frame(subscriber, other, seen) as image:
            version, seen, got = frame.version, image.version, values(frame)
            assert frame.intact() and np.array_equal(values(image)["image"], part + value - 1)
        assert (stream.sharing, other.sharing) == ("torch-ipc", "torch-ipc"), stream.fallback + other.fallback
        assert got["means"].shape == (count, 3)
        assert {float(extreme) for t in got.values() for extreme in (t.min(), t.max())} == {value}
