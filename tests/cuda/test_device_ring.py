"""The ring in GPU memory: no torn frame, however the trainer hurries; readers without CUDA; everything given back."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from sharing import Peer

from ipc.frames import DeviceTensor
from ipc.ways import layout
from ipc.ways.device_ring import DeviceRingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from conftest import Processes

pytestmark = pytest.mark.cuda

TRAINER = """
import itertools, mmap
from collections import deque
from ipc import descriptors
from ipc.cuda import retiring
from ipc.ways.device_ring import DeviceRingWriter
kind, ahead, streams = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with open(sys.argv[5], "r+b") as f:
    leases = mmap.mmap(f.fileno(), 4096)
a = torch.rand(4096, 4096, device="cuda")
b = a @ a
def tensors():
    if kind == "image":
        return {"image": torch.zeros(1080, 1920, 4, dtype=torch.uint8, device="cuda")}, {"layout": "HWC"}
    n = 300_000
    shapes = {"means": (n, 3), "quats": (n, 4), "scales": (n, 3), "opacities": (n,), "sh0": (n, 3), "shN": (n, 8, 3)}
    return ({name: torch.zeros(shape, device="cuda") for name, shape in shapes.items()},
            {"color": "sh", "activated": True, "sh_degree": 2, "antialiased": False})
sides = [torch.cuda.Stream() if streams > 1 else torch.cuda.current_stream() for _ in range(streams)]
frames = [tensors() for _ in sides]
writer = DeviceRingWriter.make(frames[0][0], 1.0, lambda: leases[:8])
torch.cuda.synchronize()
socket.send_fds(s, [msgspec.msgpack.encode(writer.ref)], descriptors.copies(writer.ref.memory.token))
s.setblocking(False)
written, events = 0, deque()
for i in itertools.count():
    try:
        if s.recv(10):
            break
        sys.exit("the test went away")
    except BlockingIOError:
        pass
    with torch.cuda.stream(sides[i % streams]):
        for _ in range(ahead):
            torch.mm(a, a, out=b)
        made, meta = frames[i % streams]
        for t in made.values():
            t.fill_(i % 251)
        written += writer.write(kind, made, meta, i + 1)
        events.append(torch.cuda.Event())
        events[-1].record()
    if len(events) > (8 if ahead else 64):  # so many steps is it ahead of the GPU
        events.popleft().synchronize()
s.setblocking(True)
writer.close()
say(f"{i} {written} {retiring.settle()}")
hear()
"""


class Trainer:
    """A process that publishes flat out, frames of one value each: the version's."""

    def __init__(self, processes: Processes, folder: Path, kind: str = "image", ahead: int = 0, streams: int = 1):
        leases = folder / "leases"
        leases.write_bytes(bytes(4096))
        self._leases = os.open(leases, os.O_RDWR)
        self.peer = Peer(processes, folder, TRAINER, kind, str(ahead), str(streams), str(leases))
        self.ref, self.source = self.peer.ring()
        self._readers: list[DeviceRingReader] = []

    def reader(self, make: type[DeviceRingReader] = DeviceRingReader, leasing: bool = False) -> DeviceRingReader:
        column = len(self._readers)

        def lease(slot: int) -> None:
            if leasing:
                os.pwrite(self._leases, bytes([slot + 1]), column)

        self._readers.append(make(self.ref, self.source, lease))
        return self._readers[-1]

    def stop(self) -> tuple[int, int]:
        """Steps, and versions written; everything has been given back."""
        self.peer.say("stop")
        steps, written, settled = self.peer.hear().split()
        assert settled == "True"
        self.peer.say()
        out, err = self.peer.process.communicate(timeout=60)
        assert self.peer.process.returncode == 0, out + err
        print(f"{steps} steps, {written} written")
        return int(steps), int(written)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()
        self.source.close()
        self.peer.close()
        os.close(self._leases)


@pytest.fixture
def trainer(processes: Processes, tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    started: list[Trainer] = []

    def start(*args: Any, **kwargs: Any) -> Trainer:
        started.append(Trainer(processes, tmp_path, *args, **kwargs))
        return started[-1]

    yield start
    for t in started:
        t.close()


class Watch:
    """What a reader saw: frames shown, of these wrong ones, and those given up as torn."""

    def __init__(self, reader: DeviceRingReader, seconds: float, enough: int, pause: float = 0.0, check: bool = True):
        self.shown = self.wrong = self.given_up = self.last = 0
        end = time.monotonic() + seconds
        while self.shown < enough and time.monotonic() < end:
            frame = reader.read(self.last)
            if frame is None:
                time.sleep(2e-4)
                continue
            with frame:
                values = set()
                for part in range(2):
                    for t in frame.tensors.values():
                        assert isinstance(t, DeviceTensor)
                        half = t.torch().flatten().chunk(2)[part]
                        values |= set(torch.stack([half.amin(), half.amax()]).tolist())
                    if part == 0:
                        time.sleep(pause)
                if check and not frame.intact():
                    self.given_up += 1
                    continue
                assert frame.version > self.last
                self.last = frame.version
                self.shown += 1
                self.wrong += values != {(frame.version - 1) % 251}
        print(f"shown {self.shown}, wrong {self.wrong}, given up {self.given_up}, last version {self.last}")


@pytest.mark.parametrize(("kind", "ahead", "streams", "enough"), [
    ("image", 0, 1, 2000), ("image", 4, 1, 60), ("image", 0, 3, 500), ("image", 4, 3, 40), ("gaussians", 0, 1, 300),
    ("gaussians", 4, 1, 40)])
def test_every_frame_shown_is_whole(trainer: Callable[..., Trainer], kind: str, ahead: int, streams: int,
                                    enough: int) -> None:
    t = trainer(kind, ahead, streams)
    seen = Watch(t.reader(), seconds=25, enough=enough)
    steps, written = t.stop()
    assert seen.wrong == 0
    assert seen.shown >= enough // 2, "too few frames to prove anything"
    assert steps > written or not ahead, "the trainer was never so far ahead that it had to skip"


class Hasty(DeviceRingReader):
    """Takes the newest version, whether the GPU has copied it or not."""

    def newest(self, after: int) -> tuple[int, int]:
        found, best = (-1, 0), after
        for slot in range(self.slots):
            base = layout.FIRST_SLOT + slot * layout.WORDS_PER_SLOT
            seq, version = self._words[base + layout.SEQ], self._words[base + layout.VERSION]
            if seq % 2 == 0 and version > best:
                found, best = (slot, seq), version
        return found


def test_it_is_the_word_of_the_gpu_that_keeps_frames_whole(trainer: Callable[..., Trainer]) -> None:
    """The counter-proof: a reader that does not ask for it shows frames that are not there yet."""
    t = trainer("image", 4)
    seen = Watch(t.reader(Hasty), seconds=20, enough=60)
    t.stop()
    assert seen.shown >= 30
    assert seen.wrong > 5


def test_it_is_the_sequence_number_that_keeps_slow_readers_from_torn_frames(trainer: Callable[..., Trainer]) -> None:
    """Without leases: readings are given up, not shown; without the check they are shown torn."""
    t = trainer("image")
    checked = Watch(t.reader(), seconds=2, enough=30, pause=0.05)
    unchecked = Watch(t.reader(), seconds=10, enough=30, pause=0.05, check=False)
    t.stop()
    assert checked.wrong == 0
    assert checked.given_up > 5
    assert unchecked.wrong > 5


def test_leases_keep_the_writer_away_from_several_slow_readers(trainer: Callable[..., Trainer]) -> None:
    t = trainer("image")
    first, second = t.reader(leasing=True), t.reader(leasing=True)
    for reader in (first, second, first):
        seen = Watch(reader, seconds=10, enough=15, pause=0.03)
        assert (seen.shown, seen.wrong) == (15, 0)
        assert seen.given_up <= 3  # one write may have begun before the lease was seen
    held = first.read()
    assert held is not None
    last = Watch(second, seconds=10, enough=100)
    assert (last.shown, last.wrong) == (100, 0)
    assert held.intact(), "a frame that is held stays while others go by"
    held.close()
    t.stop()


CHILD = """
import os, sys, time
from sharing import receive_ring
from ipc.ways.device_ring import DeviceRingReader
ref, source = receive_ring(s)
leases = os.open(sys.argv[2], os.O_RDWR)
reader = DeviceRingReader.make(ref, source, lambda slot: os.pwrite(leases, bytes([slot + 1]), 5))
"""
HERE = Path(__file__).parent


def child(processes: Processes, folder: Path, source: str) -> Peer:
    path = os.pathsep.join([str(HERE.parent.parent), str(HERE), os.environ.get("PYTHONPATH", "")])
    below = folder / "child"
    below.mkdir()
    begin = "import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.settimeout(60)\n" \
            "s.connect(sys.argv[1])\n"
    return Peer(processes, below, CHILD + source, str(folder / "leases"), begin=begin, PYTHONPATH=path)


def test_a_reader_that_is_killed_changes_nothing(trainer: Callable[..., Trainer], processes: Processes,
                                                 tmp_path: Path) -> None:
    t = trainer("image")
    victim = child(processes, tmp_path, """
import torch
frame, image = None, None
while frame is None:
    frame = reader.read()
image = frame.tensors["image"].torch()
s.send(str(int(image.amax())).encode())
while True:
    image.amax()  # work on the GPU under way, a lease held
""")
    victim.pass_on(t.ref, t.source)
    assert 0 <= int(victim.hear()) <= 250
    victim.process.kill()
    victim.process.wait(timeout=30)
    victim.close()
    seen = Watch(t.reader(leasing=True), seconds=15, enough=200)
    assert (seen.shown, seen.wrong) == (200, 0)
    t.stop()


def test_following_a_ring_takes_no_cuda(trainer: Callable[..., Trainer], processes: Processes, tmp_path: Path) -> None:
    t = trainer("image")
    follower = child(processes, tmp_path, """
shown = last = 0
end = time.monotonic() + 20
while shown < 100 and time.monotonic() < end:
    frame = reader.read(last)
    if frame is None:
        time.sleep(1e-3)
        continue
    with frame:
        image = frame.tensors["image"]
        (piece,) = image.memory.pieces
        os.fstat(piece.fd)
        assert image.offset + 1080 * 1920 * 4 <= piece.size
        last, shown = frame.version, shown + 1
with open("/proc/self/maps") as f:
    maps = f.read()
print(shown, "libcuda.so" in maps, "/dev/nvidia" in maps, "torch" in sys.modules, flush=True)
reader.close()
source.close()
s.send(b"done")
s.recv(10)
""")
    follower.pass_on(t.ref, t.source)
    assert follower.hear() == "done"
    follower.say()
    out, err = follower.process.communicate(timeout=30)
    assert out.split() == ["100", "False", "False", "False"], err
    follower.close()
    t.stop()
