"""No torn frame is ever shown.

Another process publishes frames of one value each, as fast as it can.
"""

from __future__ import annotations

import numpy as np
from support.frames import host_array
from support.programs import Programs
from support.reading import stream_of
from support.wait import polls

from splatview_ipc.subscriber.subscriber import Subscriber

# Each frame is a tensor of its own: of one that changes, a late copy may be amid the change
# (test_stream.py).
_WRITER = """
import torch, splatview
i = 0
print("ready", flush=True)
while True:
    splatview.publish(torch.full((400, 400, 4), i % 251, dtype=torch.uint8), "frames")
    i += 1
"""
_SLOTS = 8
_MIN_FRAMES = 6


def _has_one_value(*arrays: np.ndarray) -> bool:
    low = min(int(array.min()) for array in arrays)
    high = max(int(array.max()) for array in arrays)
    return low == high


def test_frame_is_complete_or_reported_as_torn(
    programs: Programs, subscriber: Subscriber
) -> None:
    """Half of them are read so slowly that they are overwritten meanwhile.

    Without the check these would be shown torn.
    """
    assert programs.code(_WRITER).line() == "ready"
    stream = stream_of(subscriber, "frames")
    complete_frames = 0
    torn_frames = 0
    last_version = 0
    for _ in polls("enough frames", pauses=False):
        if min(complete_frames, torn_frames) >= _MIN_FRAMES:
            break
        subscriber.poll()
        frame = stream.read(last_version)
        if frame is None:
            continue
        with frame:
            pixels = host_array(frame.tensors["image"])
            first_half = pixels[:200].copy()
            reads_fast = complete_frames <= torn_frames
            overwritten_at = stream.run.counters["copies"] + 2 * _SLOTS
            for _ in polls("more copies"):
                if reads_fast or stream.run.counters["copies"] >= overwritten_at:
                    break
            second_half = pixels[200:].copy()
            last_version = frame.version
            is_complete = _has_one_value(first_half, second_half)
            if is_complete:
                complete_frames += 1
            else:
                torn_frames += 1
                assert not frame.intact()
