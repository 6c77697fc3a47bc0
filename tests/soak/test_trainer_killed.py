"""A trainer is killed in the middle of a write, many times: its viewer keeps the last whole frame, learns that the run
has ended, and clears away what is left."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from support.frames import host_array
from support.wait import at_random, wait_until

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Program, Programs

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.subscriber.remote_stream import RemoteStream

AT_ONCE = 5
TRAINERS = """
import ctypes, json, mmap, os, signal, sys, time, torch, splatview
from splatview.api import session as publishing
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that are killed leave no zombies
seen, value = {}, 0

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
    frame = torch.full((1000, 1000, 4), value, dtype=torch.uint8)  # a new one: copies for late viewers are whole
    splatview.publish(frame, "frames", grey=value)
    shared[0] = max(shared[0], *(active.version for active in stream()._active.values()), 0)

def stream():
    return publishing.begun().streams["frames"]

def train():
    publish()
    run = publishing.begun()
    while run.control.counters()["copies"] < 5 or not stream().readers:  # until a viewer reads
        publish()
        time.sleep(0.001)
    if at:
        sys.settrace(trace)
        for i in range(50):
            publish()
        sys.settrace(None)
        with open(told + ".lines.part", "w") as file:
            json.dump(list(seen), file)
        os.rename(told + ".lines.part", told + ".lines")
    while at in ("", "none"):
        publish()

for line in iter(sys.stdin.readline, ""):
    at, nth, told = json.loads(line)
    if (pid := os.fork()) == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with this program
        with open(told, "w+b") as file:
            file.truncate(8)
            shared = memoryview(mmap.mmap(file.fileno(), 8)).cast("Q")
        train()
        os._exit(0)
    print(pid, flush=True)
"""
"""Forks a trainer for each line: the line of code (file:line) at which it kills itself when it comes there for the nth
time, as soon as a viewer reads it ("none": it tells which lines there are; "": neither); n; the file for the newest
version that is in shared memory. The count that viewers see may be ahead of that: a publish that finds the helper
thread sharing the version before it is counted and not shared."""


@dataclass
class Watched:
    """A run that a viewer watches to its end."""

    pid: int
    at: str
    told: Path
    """Where it says which version it has shared."""
    stream: RemoteStream | None = None
    held: Frame | None = None
    version: int = 0
    """The newest that was read."""

    @property
    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def look(self, viewer: Subscriber) -> None:
        """Read what is new; every frame is whole, or not taken."""
        viewer.poll()
        if self.stream is None:
            self.stream = next((s for s in viewer.streams if s.run.pid == self.pid), None)
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

    @property
    def shared(self) -> int:
        """The newest version that it knew to be in shared memory; 0: it did not come to say so."""
        return int.from_bytes(self.told.read_bytes(), sys.byteorder)

    def ended(self, viewer: Subscriber) -> bool:
        """Whether the viewer knows of its end."""
        viewer.poll()
        assert self.stream is not None
        return not self.stream.run.alive

    def check_last(self) -> None:
        """What its viewer has of it now that it is gone."""
        assert self.stream is not None
        assert self.held is not None
        assert whole(self.held) or not self.held.intact()
        frame = self.stream.read()
        assert frame is not None
        assert frame.intact()
        assert whole(frame)
        assert frame.version >= max(self.version, self.shared), "an older frame than the last one that was shared"
        frame.close()
        self.held.close()


def whole(frame: Frame) -> bool:
    """Whether all of a picture is of the value that its own metadata names."""
    pixels = host_array(frame.tensors["image"])
    return bool(int(pixels.min()) == int(pixels.max()) == frame.meta["grey"])


@pytest.fixture
def trainers(programs: Programs) -> Program:
    return programs.code(TRAINERS)


def start(trainers: Program, at: str, nth: int, told: Path) -> Watched:
    trainers.say(json.dumps([at, nth, str(told)]))
    return Watched(int(trainers.line()), at, told)


def test_the_last_whole_frame_stays(trainers: Program, tmp_path: Path, runtime_dir: Path) -> None:
    chance, kills, known = random.Random(8), 60, False
    with Subscriber() as viewer:
        told = start(trainers, "none", 0, tmp_path / "told")
        lines_file = tmp_path / "told.lines"
        wait_until(lambda: (told.look(viewer), lines_file.exists())[-1], what="the lines of a publish")
        lines = json.loads(lines_file.read_text())
        assert {"publish.py", "stream.py", "cpu_ring.py", "slot_writer.py"} <= {n.partition(":")[0] for n in lines}
        os.kill(told.pid, signal.SIGKILL)
        wait_until(lambda: told.ended(viewer))
        where = [*(chance.choice(lines) for _ in range(kills // 2)), *[""] * (kills // 2)]
        chance.shuffle(where)
        for first in range(0, kills, AT_ONCE):
            some = [start(trainers, at, chance.randint(1, 5), tmp_path / f"{first}-{number}")
                    for number, at in enumerate(where[first:first + AT_ONCE])]
            wait_until(lambda some=some: ([t.look(viewer) for t in some],
                                          all(t.version >= 3 or not t.alive for t in some))[-1],
                       what="every trainer is read")
            for t in some:
                if not t.at:
                    at_random(chance, 0.05, lambda t=t: t.look(viewer))
                    os.kill(t.pid, signal.SIGKILL)
            wait_until(lambda some=some: all([t.ended(viewer) for t in some]), what="their ends are known")
            for t in some:
                t.check_last()
                known |= t.shared > 0
        assert [r for r in viewer.runs if r.alive] == []
        wait_until(lambda: (viewer.poll(), list(runtime_dir.iterdir()) == [])[-1], what="all is cleared away")
    assert known
