"""Programs that publish and look as fast as they can, as text, and what their values say of themselves.

A value of version v is filled with v modulo `SHADES`: who reads it can tell whether all of it is of one version.
"""

from __future__ import annotations

SHADES = 251
"""Values repeat after so many versions: a prime, so that they fall in with nothing else that repeats."""

VALUES = '''
import json, sys, time
import torch, splatview
from splatview.api import session as publishing
SHAPES = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": (), "sh0": (1, 3), "shN": (3, 3)}
def scene(n, value, device="cpu"):
    return {name: torch.full((n, *shape), float(value), device=device) for name, shape in SHAPES.items()}
def image(extent, value, device="cpu"):
    return torch.full((*extent, 3), value, dtype=torch.uint8, device=device)
def counters():
    return publishing.begun().control.counters()
'''
"""What trainers begin with."""

READER = """
import sys, time
import numpy as np
from splatview_ipc.subscriber.subscriber import Subscriber
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
