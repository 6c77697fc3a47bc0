"""Many viewers come and go: nothing of them is left, in the trainer or in their own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.meters import footprint, settled
from support.soak import Stopwatch, next_line
from support.wait import wait_until

if TYPE_CHECKING:
    from support.programs import Programs

TRAINER = """
import sys, time, torch, splatview
step, side = 1, 100
frame = torch.zeros(side, side, 3, dtype=torch.uint8)
scene = {"means": torch.zeros(500, 3), "quats": torch.zeros(500, 4), "scales": torch.zeros(500, 3),
         "opacities": torch.zeros(500), "sh0": torch.zeros(500, 1, 3)}
while True:
    frame.fill_(step % 251)
    for tensor in scene.values():
        tensor.fill_(step)
    splatview.publish(frame, "frame", step=step)
    splatview.publish(scene, "scene", step=step)
    if step == 1:
        print("ready", flush=True)
    step += 1
    time.sleep(0.002)
"""
"""Publishes an image and a scene of one value each."""

CYCLE = """
import sys, time
import numpy as np
from splatview_ipc.subscriber.subscriber import Subscriber

def right(frame):
    "Whether everything in it is of the step that its metadata name; None: it was written over, and says so."
    step = frame.meta["step"]
    good = all(bool(np.all(t.array == (step % 251 if name == "image" else np.float32(step))))
               for name, t in frame.tensors.items())
    return good if frame.intact() else None

sys.stdin = None
for cycle in range(int(sys.argv[1])):
    with Subscriber() as subscriber:
        wanted = {"frame", "scene"}
        while wanted:
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
                frame = stream.read()
                if frame is not None and stream.name in wanted:
                    assert right(frame), (cycle, stream.name, frame.meta)
                    wanted.discard(stream.name)
                    if cycle % 3:
                        frame.close()
            time.sleep(0.0005)
    del frame, stream
    if cycle in (20, int(sys.argv[1]) - 1):
        print(cycle, flush=True)
time.sleep(1e6)
"""
"""Attaches, reads both streams and detaches, so often; says when it has warmed up, and when it is done."""


def test_hundreds_come_and_go(programs: Programs) -> None:
    trainer = programs.code(TRAINER)
    assert next_line(trainer) == "ready"
    viewer = programs.code(CYCLE, 520)
    assert next_line(viewer) == "20"
    # What one viewer that is there takes is not counted: between two there may be one, or none.
    room = {"descriptors": 16, "segments": 8, "segment_bytes": 4 << 20, "threads": 2}
    base, mine, clock = footprint(trainer.pid), footprint(viewer.pid), Stopwatch()
    assert next_line(viewer) == "519", viewer.stderr.read() if viewer.poll() is not None else ""
    print(f"\n500 viewers one after another in {clock}; trainer {footprint(trainer.pid)}")
    settled(base, wait_until, trainer.pid, **room)
    settled(mine, wait_until, viewer.pid, **room)
