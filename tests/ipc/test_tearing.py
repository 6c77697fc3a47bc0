"""No torn frame is ever shown: frames of one value each, published flat out by another process."""

from __future__ import annotations

from support.frames import host_array
from support.programs import Programs
from support.reading import stream_of
from support.wait import turns

from splatview_ipc.subscriber.subscriber import Subscriber

WRITER = """
import torch, splatview
i = 0
print("ready", flush=True)
while True:  # a tensor each: of one that changes, a late copy may be amid the change (test_stream.py)
    splatview.publish(torch.full((400, 400, 4), i % 251, dtype=torch.uint8), "frames")
    i += 1
"""
SLOTS = 8


def test_a_frame_is_whole_or_given_up(
    programs: Programs, subscriber: Subscriber
) -> None:
    """Half of them are read so slowly that they are overwritten meanwhile: without the check they would be torn."""
    assert programs.code(WRITER).line() == "ready"
    stream = stream_of(subscriber, "frames")
    whole = 0
    torn = 0
    last = 0
    for _ in turns("enough frames", rest=False):
        if min(whole, torn) >= 6:
            break
        subscriber.poll()
        frame = stream.read(last)
        if frame is None:
            continue
        with frame:
            pixels = host_array(frame.tensors["image"])
            first = pixels[:200].copy()
            copies = stream.run.counters["copies"]
            for _ in turns("more copies"):
                if whole <= torn or stream.run.counters["copies"] >= copies + 2 * SLOTS:
                    break
            second = pixels[200:].copy()
            last = frame.version
            same = (
                len(
                    {
                        int(value)
                        for half in (first, second)
                        for value in (half.min(), half.max())
                    }
                )
                == 1
            )
            assert same or not frame.intact()
            whole = whole + same
            torn = torn + (not same)
