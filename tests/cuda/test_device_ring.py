"""The ring in GPU memory: no torn frame, however the trainer hurries; readers without CUDA; everything given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.programs import Programs
from support.sharing import Peer, close_fds, send_ring
from support.wait import PATIENCE, turns

from splatview_ipc.control.frame import DeviceTensor
from splatview_ipc.transports.device_ring import DeviceRingReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.cuda

TRAINER = """
import itertools
from collections import deque
from splatview_ipc.transports.device_ring import DeviceRingWriter
from support.sharing import send_ring
from support.transports import Handed
from support.wait import all_retired
a = torch.rand(4096, 4096, device="cuda")
b = a @ a
def tensors(kind):
    if kind == "image":
        return {"image": torch.zeros(1080, 1920, 4, dtype=torch.uint8, device="cuda")}, {"layout": "HWC"}
    n = 300_000
    shapes = {"means": (n, 3), "quats": (n, 4), "scales": (n, 3), "opacities": (n,), "sh0": (n, 3), "shN": (n, 8, 3)}
    return ({name: torch.zeros(shape, device="cuda") for name, shape in shapes.items()},
            {"color": "sh", "activated": True, "sh_degree": 2, "antialiased": False})
def session(kind, ahead, streams):
    sides = [torch.cuda.Stream() if streams > 1 else torch.cuda.current_stream() for _ in range(streams)]
    frames = [tensors(kind) for _ in sides]
    writer = DeviceRingWriter.make(frames[0][0], False)
    torch.cuda.synchronize()
    with Handed(writer.ref) as fds:
        send_ring(s, writer.ref, fds)
    written, events = 0, deque()
    s.setblocking(False)
    for i in itertools.count():
        try:
            if not s.recv(10):
                sys.exit("the test went away")
            break
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
    s.settimeout(60)
    writer.close()
    torch.cuda.synchronize()
    say(f"{i} {written} {all_retired()}")
while True:
    s.settimeout(None)
    order = s.recv(1 << 16)
    if not order:
        break
    kind, ahead, streams = order.decode().split()
    session(kind, int(ahead), int(streams))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A program that publishes whenever it is told to."""
    started, folder = Programs(tmp_path_factory.mktemp("trainer")), tmp_path_factory.mktemp("ring")
    peer = Peer(started, folder, TRAINER)
    assert peer.socket  # connected
    yield peer
    peer.close()
    started.close()


class Trainer:
    """It publishes flat out, frames of one value each: the version's."""

    def __init__(self, program: Peer, kind: str = "image", ahead: int = 0, streams: int = 1):
        """`ahead`: matrix products before each step, so that the program is far ahead of the GPU."""
        self.peer = program
        self._publishes = True
        self.peer.say(f"{kind} {ahead} {streams}")
        self.ref, self.fds = self.peer.ring()
        self._readers: list[DeviceRingReader] = []

    def reader(self) -> DeviceRingReader:
        self._readers.append(DeviceRingReader(self.ref, self.fds))
        return self._readers[-1]

    def pass_on(self, to: Peer) -> None:
        """Tell another program of the ring; it calls `receive_ring`."""
        send_ring(to.socket, self.ref, self.fds)

    def stop(self) -> tuple[int, int]:
        """Steps, and versions written; everything has been given back."""
        self._publishes = False
        self.peer.say("stop")
        steps, written, settled = self.peer.hear().split()
        assert settled == "True"
        print(f"{steps} steps, {written} written")
        return int(steps), int(written)

    def close(self) -> None:
        if self._publishes:
            self.stop()
        for reader in self._readers:
            reader.close()
        close_fds(self.fds)


@pytest.fixture
def trainer(program: Peer) -> Iterator[Callable[..., Trainer]]:
    started: list[Trainer] = []

    def start(*args: Any, **kwargs: Any) -> Trainer:
        started.append(Trainer(program, *args, **kwargs))
        return started[-1]

    yield start
    for t in started:
        t.close()


class Watch:
    """What a reader saw: frames shown, of these wrong ones, and those given up as torn."""

    def __init__(self, reader: DeviceRingReader, enough: int):
        """Until `enough` were shown."""
        self.shown = self.wrong = self.given_up = self.last = 0
        for _ in turns(f"{enough} frames", rest=False):
            if self.shown == enough:
                break
            frame = reader.read(self.last)
            if frame is None:
                continue
            with frame:
                parts = []
                for t in frame.tensors.values():
                    assert isinstance(t, DeviceTensor)
                    parts += torch.aminmax(t.torch())
                values = set(torch.stack(parts).tolist())
                if not frame.intact():
                    self.given_up += 1
                    continue
                assert frame.version > self.last
                self.last = frame.version
                self.shown += 1
                self.wrong += values != {(frame.version - 1) % 251}
        print(f"shown {self.shown}, wrong {self.wrong}, given up {self.given_up}, last version {self.last}")


@pytest.mark.parametrize(("kind", "ahead", "streams", "enough"), [
    ("image", 0, 1, 500), ("image", 2, 3, 60), ("gaussians", 0, 1, 200), ("gaussians", 2, 1, 60)])
def test_every_frame_shown_is_whole(trainer: Callable[..., Trainer], kind: str, ahead: int, streams: int,
                                    enough: int) -> None:
    t = trainer(kind, ahead, streams)
    seen = Watch(t.reader(), enough)
    steps, written = t.stop()
    assert seen.wrong == 0
    assert steps > written or not ahead, "the trainer was never so far ahead that it had to skip"


CHILD = """
import os, sys, time
from support.sharing import close_fds, receive_ring
from splatview_ipc.transports.device_ring import DeviceRingReader
ref, fds = receive_ring(s)
reader = DeviceRingReader(ref, fds)
"""


def child(programs: Programs, folder: Path, source: str) -> Peer:
    begin = "import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.settimeout(60)\n" \
            "s.connect(sys.argv[1])\n"
    return Peer(programs, folder, CHILD + source, begin=begin)


def test_a_reader_that_is_killed_changes_nothing(trainer: Callable[..., Trainer], programs: Programs,
                                                 tmp_path: Path) -> None:
    t = trainer("image")
    victim = child(programs, tmp_path, """
import torch
frame, image = None, None
while frame is None:
    frame = reader.read()
image = frame.tensors["image"].torch()
s.send(str(int(image.amax())).encode())
while True:
    image.amax()  # work on the GPU under way, a frame held
""")
    t.pass_on(victim)
    assert 0 <= int(victim.hear()) <= 250
    victim.process.kill()
    victim.process.wait(timeout=PATIENCE)
    victim.close()
    seen = Watch(t.reader(), enough=200)
    assert (seen.shown, seen.wrong) == (200, 0)
    t.stop()


def test_following_a_ring_takes_no_cuda(trainer: Callable[..., Trainer], programs: Programs, tmp_path: Path) -> None:
    t = trainer("image")
    follower = child(programs, tmp_path, """
shown = last = 0
end = time.monotonic() + 30
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
close_fds(fds)
s.send(b"done")
s.recv(10)
""")
    t.pass_on(follower)
    assert follower.hear() == "done"
    follower.say()
    out, err = follower.process.communicate(timeout=PATIENCE)
    assert out.split() == ["100", "False", "False", "False"], err
    follower.close()
    t.stop()
