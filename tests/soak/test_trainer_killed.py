"""A trainer is killed in the middle of a write, many times: its viewer keeps the last whole frame, learns that the run
has ended, and clears away what is left."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from support.frames import host_array
from support.reading import stream_of
from support.wait import wait_until

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Programs

    from splatview_ipc.subscriber.remote_stream import RemoteStream

KILLS = 40
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
        sys.settrace(trace)
        while True:
            publish()
            time.sleep(0.005)  # slow enough that each version is written
    print(pid, flush=True)
"""
"""Forks a trainer for each line, a number: of lines of ours that it runs, once a viewer reads it, before it kills
itself."""


def test_the_last_whole_frame_stays(programs: Programs, runtime_dir: Path) -> None:
    trainers, chance = programs.code(TRAINERS), random.Random(8)
    read = 0
    with Subscriber() as viewer:
        for _ in range(KILLS):
            trainers.say(str(chance.randint(1, 3000)))
            stream, version = stream_of(viewer, "frames", int(trainers.line())), 0

            def ended(stream: RemoteStream = stream) -> bool:
                """Read what is new; every frame is whole, or not taken."""
                nonlocal version
                viewer.poll()
                if (frame := stream.read(version)) is not None:
                    with frame:
                        pixels = host_array(frame.tensors["image"])
                        whole = int(pixels.min()) == int(pixels.max()) == frame.meta["grey"]
                        assert whole or not frame.intact()
                        version = max(version, frame.version if whole else 0)
                return not stream.run.alive

            wait_until(ended, what="its end is known")
            if version:  # else it ended before it was read
                last = stream.read()
                assert last is not None and last.intact() and last.version >= version
                last.close()
                read += 1
        assert read > KILLS * 0.8
        wait_until(lambda: (viewer.poll(), list(runtime_dir.iterdir()) == [])[-1], what="all is cleared away")
