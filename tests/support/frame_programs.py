"""Programs that publish numbered pictures for `splatview.frames`, as text for `python -c`."""

from __future__ import annotations

NUMBERED = """
import sys, time, torch, splatview
name, pause, first = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
image = torch.zeros(90, 160, 3, dtype=torch.uint8)
i = first
while True:
    i += 1
    image.fill_(i % 251)
    splatview.publish(image, name, number=i)
    if i == first + 1:
        print("ready", flush=True)
    time.sleep(pause)
"""
"""Arguments: the stream's name, seconds between two pictures, the number before the first. A picture is filled with its
number modulo 251."""


def holds_its_number(frame) -> bool:
    """Whether every pixel of a frame is of the picture whose number its metadata tell."""
    wanted = frame.meta["number"] % 251
    pixels = frame.numpy()
    return int(pixels.min()) == int(pixels.max()) == wanted
