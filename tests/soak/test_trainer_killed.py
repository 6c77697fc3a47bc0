"""A trainer is killed in the middle of a write, many times: its viewer keeps the last whole frame, learns that the run
has ended, and clears away what is left."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.frames import host_array
from support.wait import at_random, wait_until

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Programs

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.subscriber.remote_stream import RemoteStream

KILLS, AT_ONCE = 60, 5
TRAINERS = """
import ctypes, os, signal, sys, time, torch, splatview
from splatview.api import session as publishing
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that are killed leave no zombies
value = 0

def trace(what, event, arg):
    global left
    name = what.f_code.co_filename
    if "/ipc/" not in name and "/splatview/" not in name:
        return None
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return trace

def publish():
    global value
    value = (value + 1) % 251
    frame = torch.full((1000, 1000, 4), value, dtype=torch.uint8)  # a new one: copies for late viewers are whole
    splatview.publish(frame, "frames", grey=value)

for line in iter(sys.stdin.readline, ""):
    if (pid := os.fork()) == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # it ends with this program
        left = int(line)
        publish()
        run = publishing.begun()
        while run.control.counters()["copies"] < 5 or not run.streams["frames"].readers:  # until a viewer reads
            publish()
            time.sleep(0.001)
        sys.settrace(trace if left else None)
        while True:
            publish()
            time.sleep(0.005 if left else 0)  # slow enough that each version is written
    print(pid, flush=True)
"""
"""Forks a trainer for each line, a number: of lines of ours that it runs, once a viewer reads it, before it kills
itself; 0: it publishes for ever."""


@dataclass
class Watched:
    """A run that a viewer watches to its end."""

    pid: int
    left: int
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
        self.stream = self.stream or next((s for s in viewer.streams if s.run.pid == self.pid), None)
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

    def ended(self, viewer: Subscriber) -> bool:
        """Whether the viewer knows of its end."""
        viewer.poll()
        assert self.stream is not None
        return not self.stream.run.alive

    def check_last(self) -> bool:
        """What its viewer has of it now that it is gone. False: it ended before it was read."""
        assert self.stream is not None
        if self.held is None:
            return False
        assert whole(self.held) or not self.held.intact()
        frame = self.stream.read()
        assert frame is not None and frame.intact() and whole(frame)
        assert frame.version >= self.version
        frame.close()
        self.held.close()
        return True


def whole(frame: Frame) -> bool:
    """Whether all of a picture is of the value that its own metadata names."""
    pixels = host_array(frame.tensors["image"])
    return bool(int(pixels.min()) == int(pixels.max()) == frame.meta["grey"])


def test_the_last_whole_frame_stays(programs: Programs, runtime_dir: Path) -> None:
    trainers, chance = programs.code(TRAINERS), random.Random(8)
    where = [chance.randint(1, 3000) for _ in range(KILLS // 2)] + [0] * (KILLS // 2)
    chance.shuffle(where)
    read = 0
    with Subscriber() as viewer:
        for first in range(0, KILLS, AT_ONCE):
            some = []
            for left in where[first:first + AT_ONCE]:
                trainers.say(str(left))
                some.append(Watched(int(trainers.line()), left))
            wait_until(lambda some=some: ([t.look(viewer) for t in some],
                                          all(t.version >= 3 or not t.alive for t in some))[-1],
                       what="every trainer is read")
            for t in some:
                if not t.left:
                    at_random(chance, 0.05, lambda t=t: t.look(viewer))
                    os.kill(t.pid, signal.SIGKILL)
            wait_until(lambda some=some: all([t.ended(viewer) for t in some]), what="their ends are known")
            read += sum(t.check_last() for t in some)
        assert read > KILLS * 0.8, read
        assert [r for r in viewer.runs if r.alive] == []
        wait_until(lambda: (viewer.poll(), list(runtime_dir.iterdir()) == [])[-1], what="all is cleared away")
