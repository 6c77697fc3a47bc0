"""Very many publishes: a million without a viewer, thousands of new tensors beside one. A trainer takes up no more at
the end than at the beginning."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from support.meters import MB, Footprint, footprint, settled
from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.programs import Program, Programs

SLACK = {"rss": 4 * MB}
"""By how much anonymous memory may differ between two looks: what the allocator has in hand. A million publishes that
left 8 bytes each would be twice as much."""
VALUES = '''
import json, sys, time
import torch, splatview
from splatview.api import session as publishing
SHAPES = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": (), "sh0": (1, 3), "shN": (3, 3)}
def scene(n, value):
    return {name: torch.full((n, *shape), float(value)) for name, shape in SHAPES.items()}
def image(extent, value):
    return torch.full((*extent, 3), value, dtype=torch.uint8)
def counters():
    return publishing.begun().control.counters()
'''

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

TOLD = '''
import gc
from dataclasses import asdict
from support.meters import footprint
def tell(count):
    "Print what we take up after so many publishes."
    gc.collect()
    print(json.dumps({"count": count, "footprint": asdict(footprint()), **counters(), "published": number_of,
                      "objects": len(gc.get_objects())}), flush=True)
def measure(blocks, size, call):
    "Publish in blocks, and tell after each; `call` gets the number of the publish, from 1 on."
    number = 0
    for block in range(blocks):
        for _ in range(size):
            number += 1
            call(number)
        tell(number)
    print("done", flush=True)
number_of = {}
def value_of(name):
    "What a stream's next version is filled with: READER looks at that."
    number_of[name] = number_of.get(name, 0) + 1
    return number_of[name] % 251
def looked_at():
    "Publish until a reader of all streams gets copies, however long that takes on a busy machine."
    number = 0
    while counters()["copies"] < 10 or not all(s.readers for s in publishing.begun().streams.values()):
        number += 1
        call(number)
        time.sleep(0.001)
'''
"""Behind VALUES: what counts. A value of version v is filled with v modulo 251. Argument: publishes of one block."""

ALONE = VALUES + TOLD + """
import numpy as np
one, many, array = image((48, 64), 7), scene(300, 7), np.zeros((20, 30, 3), np.uint8)
def call(number):
    kind = number & 7
    if kind < 3:
        splatview.publish(one, "still", step=number)
    elif kind < 5:
        splatview.publish(many, "scene", step=number)
    elif kind < 6:
        splatview.publish(array, "array")
    else:
        splatview.publish(one[:], "fresh")
measure(10, int(sys.argv[1]), call)
sys.stdin.readline()
"""


FRESH = VALUES + TOLD + """
def call(number):
    if number % 3:
        splatview.publish(image((8 + number % 97, 8 + number % 89), value_of("picture")), "picture")
    else:
        splatview.publish(torch.full((8 + number % 61, 70), float(value_of("grey"))), "grey")
    splatview.publish(scene(number % 1009, value_of("scene")), "scene", step=number_of["scene"])
for number in range(1, 1010):  # the largest of all is among them
    call(number)
looked_at()
measure(10, int(sys.argv[1]), call)
sys.stdin.readline()
"""


def told(trainer: Program) -> Iterator[dict[str, Any]]:
    """What a trainer tells, one after the other, until it is done."""
    while (line := trainer.line()) != "done":
        assert line, f"{trainer.end()[1]}"
        found = json.loads(line)
        found["footprint"] = Footprint(**found["footprint"])
        yield found


def steady(told: list[dict[str, Any]], **slack: int) -> None:
    """Assert that a trainer takes up at no time more than after the first of its blocks."""
    first = told[0]
    for later in told[1:]:
        assert later["footprint"].over(first["footprint"], **{**SLACK, **slack}) == {}, later["count"]
        assert later["objects"] <= first["objects"] + 200, later["count"]
        assert later["faults"] == 0


def last_seen(reader: Program, **versions: int) -> dict[str, int]:
    """Wait until a READER has seen these versions; all that it has seen."""
    while True:
        line = reader.line()
        assert line, f"{reader.end()[1]}"
        seen = {name: int(version) for name, version in (part.split("=") for part in line.split()[1:])}
        if all(seen.get(name, 0) >= version for name, version in versions.items()):
            return seen


def opened(reader: Program, *streams: str) -> Footprint:
    """What a READER takes up once it has read a version of each stream: on a busy machine long after it was there."""
    last_seen(reader, **dict.fromkeys(streams, 1))
    return footprint(reader.pid)


def test_a_million_publishes_without_a_viewer(programs: Programs) -> None:
    trainer = programs.code(ALONE, 100_000)
    blocks = list(told(trainer))
    assert blocks[-1]["count"] == 1_000_000
    steady(blocks)
    assert blocks[-1]["copies"] == 0
    assert blocks[0]["footprint"].segments == 1  # the control block


def test_ten_thousand_new_tensors_of_new_shapes(programs: Programs) -> None:
    publishes = 5000  # of two values each
    trainer, reader = programs.code(FRESH, publishes // 10), programs.code(READER)
    blocks, base = [], None
    for block in told(trainer):
        blocks.append(block)
        base = base or opened(reader, *block["published"])
    assert blocks[-1]["count"] == publishes
    steady(blocks, segment_bytes=8 * MB)
    last_seen(reader, **blocks[-1]["published"])
    assert base is not None
    settled(base, wait_until, reader.pid, rss=8 * MB, segment_bytes=8 * MB)
