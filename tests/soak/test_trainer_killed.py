"""A trainer is killed in the middle of a write, a hundred times: its viewer keeps the last whole frame and learns that
the run has ended, and the next run clears away what is left."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from support.frames import host_array
from support.repetitions import exhaustive

from splatview.ipc import Frame, RemoteStream, Subscriber, subscriber, taken
from splatview.ipc.ways.layout import DONE, FIRST_SLOT, SEQ, WORDS_PER_SLOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Program, Programs


AT_ONCE = 5
TOLD_WITHIN = 2.0
"""Seconds within which a viewer has to say that a run has ended, on a machine that does nothing else."""

TRAINER = """
import json, mmap, os, signal, sys, time, torch, splatview
from splatview import publishing
at, nth = sys.argv[1], int(sys.argv[2])
with open(sys.argv[3], "w+b") as file:
    file.truncate(8)
    shared = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
frame, seen, value = torch.zeros(1000, 1000, 4, dtype=torch.uint8), {}, 0

def trace(what, event, arg):
    name = what.f_code.co_filename
    if "/ipc/" not in name and "/splatview/" not in name:
        return None
    where = os.path.basename(name) + ":" + str(what.f_lineno)
    seen[where] = seen.get(where, 0) + 1
    if where == at and seen[where] == nth:
        os.kill(os.getpid(), signal.SIGKILL)
    return trace

def publish():
    global value
    value = (value + 1) % 251
    frame.fill_(value)
    splatview.publish(frame, "frames", grey=value)
    shared[0] = max(shared[0], *(outlet.version for outlet in stream()._outlets.values()), 0)

def stream():
    return publishing._entries["frames"].stream

publish()
run = publishing.begun()
while run.board.counters()["copies"] < 5 or not any(run.board.leased(0)()):  # until a viewer reads
    publish()
    time.sleep(0.001)
print("read", flush=True)
if at:
    sys.settrace(trace)
    for i in range(50):
        publish()
    sys.settrace(None)
    print(json.dumps(list(seen)), flush=True)
while at in ("", "none"):
    publish()
"""
"""Arguments: the line of code (file:line) at which it kills itself when it comes there for the nth time, as soon as a
viewer reads it ("none": it tells which lines there are; "": neither); n; the file for the newest version that is in
shared memory. The count that viewers see may be ahead of that: a publish that finds the helper thread sharing the
version before it is counted and not shared."""

PUBLISHER = """
import time, torch, splatview
splatview.publish(torch.zeros(40, 40, 3), "render")
print("ready", flush=True)
while True:
    splatview.publish(torch.zeros(40, 40, 3), "render")
"""

MEMORY = """
import time, splatview
splatview.publish_memory()
print("on", flush=True)
time.sleep(1e6)
"""

WRITER = """
import time
from splatview.recording import Recording

class Large:
    def __reduce__(self):
        print("within", flush=True)
        time.sleep(1e6)

Recording("run-1", None, print).write({"entries": [*range(100_000)], "more": Large()}, "asked")
"""


@dataclass
class Watched:
    """A run that a viewer watches to its end."""

    child: Program
    at: str
    told: Path
    """Where it says which version it has shared."""
    stream: RemoteStream | None = None
    held: Frame | None = None
    version: int = 0
    """The newest that was read."""
    died: float = 0.0

    def look(self, viewer: Subscriber) -> None:
        """Read what is new; every frame is whole, or not taken."""
        if self.stream is None:
            self.stream = next((s for s in viewer.streams if s.run.pid == self.child.pid), None)
        if self.stream is None:
            return
        self.stream.open()
        frame = self.stream.read(self.version)
        if frame is not None:
            right = whole(frame)
            assert right or not frame.intact()
            if right:
                assert frame.version > self.version
                self.version = frame.version
            if self.held is not None:
                self.held.close()
            self.held = frame

    @classmethod
    def start(cls, programs: Programs, folder: Path, at: str, nth: int = 0) -> Watched:
        """Start `TRAINER`, which says in a new file of this folder what it has shared."""
        told = folder / f"shared-{len(os.listdir(folder))}"
        told.touch()
        return cls(programs.start(TRAINER, at, nth, told), at, told)

    @property
    def shared(self) -> int:
        """The newest version that it knew to be in shared memory; 0: it did not come to say so."""
        return int.from_bytes(self.told.read_bytes(), sys.byteorder)

    @property
    def within(self) -> bool:
        """Whether a slot was being written when it died."""
        assert self.stream is not None
        reader: Any = self.stream._reader
        slots = [FIRST_SLOT + i * WORDS_PER_SLOT for i in range(reader.slots)]
        return any(reader._words[s + SEQ] % 2 or reader._words[s + DONE] != reader._words[s + SEQ] for s in slots)


def whole(frame: Frame) -> bool:
    """Whether all of a picture is of the value that its own metadata names."""
    pixels = host_array(frame.tensors["image"])
    return bool(int(pixels.min()) == int(pixels.max()) == frame.meta["grey"])


def until_read(viewer: Subscriber, trainers: list[Watched], wait_until: Callable[..., Any]) -> None:
    def read() -> bool:
        viewer.poll()
        for t in trainers:
            t.look(viewer)
        return all(t.version >= 3 or not t.child.alive for t in trainers)

    try:
        wait_until(read, what="every trainer is read")
    except AssertionError as e:
        told = [(t.child.pid, t.child.alive, t.version, s and (s.run.alive, s.run.welcomed, s.run.refused, s.version,
                 s.fault, s.run.counters)) for t in trainers for s in [t.stream]]
        raise AssertionError(f"{e}: {told}, runs {[(r.pid, r.alive, r.welcomed, r.refused) for r in viewer.runs]}, "
                             f"fault {viewer.fault}") from None


def until_told(viewer: Subscriber, trainers: list[Watched], wait_until: Callable[..., Any]) -> float:
    """Wait until the viewer knows of all their ends; how many seconds the last took from its death on."""
    worst = 0.0
    open_ends = list(trainers)

    def told() -> bool:
        nonlocal worst
        viewer.poll()
        for t in list(open_ends):
            if not t.died and not t.child.alive:
                t.died = time.monotonic()
            assert t.stream is not None
            if t.died and not t.stream.run.alive:
                worst = max(worst, time.monotonic() - t.died)
                open_ends.remove(t)
        return not open_ends

    wait_until(told, what="the viewer knows that the runs have ended")
    return worst


@pytest.mark.parametrize("kills", [10, exhaustive(20), exhaustive(100)])
def test_the_last_whole_frame_stays(
        kills: int, programs: Programs, tmp_path: Path, wait_until: Callable[..., Any],
        capsys: pytest.CaptureFixture[str]) -> None:
    chance, worst, within, itself, known, ahead = random.Random(8), 0.0, 0, 0, 0, 0
    with Subscriber() as viewer:
        told = Watched.start(programs, tmp_path, "none")
        until_read(viewer, [told], wait_until)
        assert told.child.line() == "read"
        lines = json.loads(told.child.line())
        assert {"publishing.py", "stream.py", "ring.py", "slots.py", "tally.py"} <= {n.partition(":")[0] for n in lines}
        told.child.kill()
        until_told(viewer, [told], wait_until)
        at = [*(chance.choice(lines) for _ in range(kills // 2)), *[""] * (kills - kills // 2)]
        chance.shuffle(at)
        for start in range(0, kills, AT_ONCE):
            trainers = [Watched.start(programs, tmp_path, where, chance.randint(1, 5))
                        for where in at[start:start + AT_ONCE]]
            until_read(viewer, trainers, wait_until)
            for t in trainers:
                if not t.at:
                    end = time.monotonic() + chance.uniform(0, 0.05)
                    while time.monotonic() < end:
                        t.look(viewer)
                    t.child.kill()
                    t.died = time.monotonic()
            worst = max(worst, until_told(viewer, trainers, wait_until))
            for t in trainers:
                itself += bool(t.at) and t.child.wait() is None
                within += t.within
                check_last(t)
                known += t.shared > 0
                assert t.stream is not None
                ahead += t.stream.version > t.shared
        assert [r for r in viewer.runs if r.alive] == []
    with capsys.disabled():
        print(f"\n{kills} trainers killed, {itself} of them by themselves at a chosen line, {within} within a write; "
              f"their ends told after {worst:.2f} s at most; {ahead} had counted a version more than they had shared")
    assert within >= kills // 10
    assert itself >= kills // 4
    assert known >= kills // 2


def check_last(trainer: Watched) -> None:
    """What its viewer has of a trainer that is gone."""
    stream, held = trainer.stream, trainer.held
    assert stream is not None
    assert held is not None
    assert held.intact()
    assert whole(held), "the picture that is shown has changed"
    frame = stream.read()
    assert frame is not None
    assert frame.intact()
    assert whole(frame)
    assert frame.version >= max(trainer.version, trainer.shared), "an older frame than the last one that was shared"
    frame.close()
    held.close()


def test_the_next_run_clears_away_what_is_left(programs: Programs, runtime_dir: Path) -> None:
    """Without any viewer: folders and sockets are removed; memory without a name went with its process."""
    before = set(os.listdir("/dev/shm"))
    for _ in range(10):
        child = programs.start(PUBLISHER)
        assert child.line() == "ready"
        child.kill()
    assert len(list(runtime_dir.iterdir())) == 1, "each has cleared away the one before it"
    last = programs.start(PUBLISHER)
    assert last.line() == "ready"
    (folder,) = runtime_dir.iterdir()
    assert f"-{last.pid}-" in folder.name
    last.kill()
    assert not [name for name in set(os.listdir("/dev/shm")) - before if "splatview" in name or str(last.pid) in name]


def test_a_snapshot_half_written_goes_with_its_writer(
        programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    """Not before: a snapshot of many gigabytes' entries takes its time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    writer = programs.start(WRITER)
    assert writer.line() == "within"
    (part,) = taken.folder().iterdir()
    assert part.name.endswith(".part")
    long_ago = time.time() - 86400
    os.utime(part, (long_ago, long_ago))
    taken.tidy()
    assert part.exists()
    writer.kill()
    next_run = programs.start(MEMORY)
    assert next_run.line() == "on"
    wait_until(lambda: not part.exists(), what="the next run has tidied it away")
    next_run.kill()


def test_the_viewer_says_so(programs: Programs, wait_until: Callable[..., Any], tmp_path: Path,
                            monkeypatch: pytest.MonkeyPatch) -> None:
    """As people see it: the last picture, and words over it; a browser's page has the same words around it."""
    from splatview.viewer_app.app import App, AppOptions
    from splatview.viewer_app.interface import overlay
    from splatview.viewer_app.pictures import save_png
    from splatview.viewer_app.screens.offscreen import OffscreenScreen
    from splatview.viewer_app.state import ENDED

    app = App(OffscreenScreen(900, 520), AppOptions(max_fps=500))
    written: list[str] = []
    around: list[str] = []
    draw_tag = overlay._tag

    def tag(scale: float, picture: Any, lines: Any) -> None:
        written.extend(text for text, _ in lines)
        draw_tag(scale, picture, lines)

    monkeypatch.setattr(overlay, "_tag", tag)
    monkeypatch.setattr(app.screen, "caption", lambda caption: around.append(caption.trouble))
    try:
        child = programs.start(TRAINER, "", 0, tmp_path / "shared")

        def shown() -> bool:
            app.turn()
            slot = app.seat.shown
            return slot is not None and slot.view is not None and not slot.view.empty

        wait_until(shown, what="a picture")
        assert ENDED not in written + around
        child.kill()
        died = time.monotonic()

        def said() -> bool:
            app.turn()
            return not app.state.entries[0].alive

        wait_until(said, what="the run has ended")
        took = time.monotonic() - died
        wait_until(lambda: (app.turn(), ENDED in written and ENDED in around)[-1], what="the words are drawn")
        for _ in range(20):
            app.turn()
        pixels = app.screen.pixels()[..., :3]
        save_png(pixels, tmp_path / "ended.png")
        print(f"said after {took:.2f} s: {ENDED}", tmp_path / "ended.png")
        slot = app.seat.shown
        assert slot is not None
        assert slot.view is not None
        assert not slot.entry.fault
        rect = app.seat.layout()
        middle = pixels[rect.y + rect.height // 2, rect.x + rect.width // 2].tolist()
        assert middle[0] == middle[1] == middle[2] > 0
        assert set(written) == {ENDED}
        assert around[-1] == ENDED
        top = pixels[rect.y + 8:rect.y + 40, rect.x + rect.width // 2 - 60:rect.x + rect.width // 2 + 60].astype(int)
        assert top.max() - top.min() > 100, "letters over the picture's one grey"
    finally:
        app.close()


def test_the_end_is_told_within_two_seconds() -> None:
    """How often a viewer looks whether its runs are there: what it was told of their ends is late by no more."""
    assert 0 < subscriber._SCAN_PERIOD <= subscriber._SCAN_LATEST < TOLD_WITHIN
