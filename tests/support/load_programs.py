"""Programs that publish and look as fast as they can, as text, and what their values say of themselves.

A value of version v is filled with `shade(v)` and has as many Gaussians, or as large an image, as `count(v)` or
`extent(v)` say: who reads it can tell whether all of it is of one version.
"""

from __future__ import annotations

SHADES = 251
"""Values repeat after so many versions: a prime, so that they fall in with nothing else that repeats."""
SMALL = 500
"""Gaussians of a scene before it grows to four times as many."""


def shade(version: int) -> int:
    """What each number of a version is, 0 to 250."""
    return version % SHADES


def count(version: int) -> int:
    """Gaussians of a version: another number at each, none at every tenth, four times as many for half of the time."""
    if version % 10 == 0:
        return 0
    return (version * 37 % SMALL + 1) * (4 if version // 100 % 2 else 1)


def extent(version: int) -> tuple[int, int]:
    """Height and width of a version's image: four times as many pixels for half of the time."""
    side = 2 if version // 100 % 2 else 1
    return (version * 7 % 31 + 1) * side, (version * 11 % 43 + 1) * side


VALUES = '''
import itertools, json, sys, time
import torch, splatview
from splatview import publishing
SHAPES = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": (), "sh0": (1, 3), "shN": (3, 3)}
def scene(n, value, device="cpu"):
    return {name: torch.full((n, *shape), float(value), device=device) for name, shape in SHAPES.items()}
def image(extent, value, device="cpu"):
    return torch.full((*extent, 3), value, dtype=torch.uint8, device=device)
def counters():
    return publishing._publisher.board.counters()
'''
"""What trainers begin with."""

GROWING = VALUES + """
from support.load_programs import count, extent, shade
device, pause = sys.argv[1], float(sys.argv[2])
for version in itertools.count(1):
    splatview.publish(scene(count(version), shade(version), device), "scene", step=version)
    splatview.publish(image(extent(version), shade(version), device), "picture", step=version)
    time.sleep(pause)
"""
"""A trainer whose values change in size at every version. Arguments: device, seconds between two versions."""

READER = """
import sys, time
import numpy as np
from splatview.ipc import Subscriber
seen, frames, told = {}, 0, 0.0
with Subscriber() as subscriber:
    while True:
        subscriber.poll()
        idle = True
        for stream in subscriber.streams:
            stream.open()
            frame = stream.read(seen.get(stream.name, 0))
            if frame is None:
                continue
            with frame:
                value = frame.version % 251
                wrong = [name for name, t in frame.tensors.items() if t.array.size and
                         (t.array.min() != value or t.array.max() != value)]
                if frame.intact():
                    if wrong or frame.meta.get("step") not in (None, frame.version):
                        sys.exit(f"version {frame.version} of {stream.name}: {wrong}, meta {frame.meta}")
                    if frame.version <= seen.get(stream.name, 0):
                        sys.exit(f"version {frame.version} of {stream.name} after {seen[stream.name]}")
                    seen[stream.name], idle, frames = frame.version, False, frames + 1
        if time.monotonic() > told + 0.02:
            told = time.monotonic()
            print(frames, *(f"{name}={version}" for name, version in seen.items()), flush=True)
        if idle:
            time.sleep(0.0005)
"""
"""A viewer that reads whatever there is and looks whether all of it is of one version: it prints how many frames it has
read, and the newest version of each stream by name, 50 times a second; what is wrong ends it with code 1."""
