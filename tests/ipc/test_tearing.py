"""No torn frame is ever shown: frames of one value each, published flat out by another process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from support.frames import host_array
from support.wait import PATIENCE

from splatview.ipc import Subscriber
from splatview.ipc.board import BoardReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from support.programs import Programs

_WRITER = """
import sys, time, torch, splatview
frame = torch.zeros(400, 400, 4, dtype=torch.uint8)
i = 0
print("ready", flush=True)
while True:
    frame.fill_(i % 251)
    splatview.publish(frame, "frames")
    i += 1
"""


@dataclass
class Watched:
    shown: int = 0
    torn: int = 0
    given_up: int = 0


def _watch(subscriber: Subscriber, check: bool, pause: float, enough: Callable[[Watched], bool]) -> Watched:
    """Read frames half by half, with a pause between, until there was enough to see."""
    seen, last, end = Watched(), 0, time.monotonic() + PATIENCE
    while time.monotonic() < end and not enough(seen):
        subscriber.poll()
        for stream in subscriber.streams:
            stream.open()
            frame = stream.read(last)
            if frame is None:
                continue
            with frame:
                pixels = host_array(frame.tensors["image"])
                first = pixels[:200].copy()
                time.sleep(pause)
                second = pixels[200:].copy()
                if check and not frame.intact():
                    seen.given_up += 1
                    continue
                last = frame.version
                seen.shown += 1
                seen.torn += len({int(first.min()), int(first.max()), int(second.min()), int(second.max())}) > 1
    return seen


@pytest.fixture
def flat_out(programs: Programs) -> Subscriber:
    writer = programs.code(_WRITER)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    return Subscriber()


@pytest.fixture
def no_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoardReader, "lease", lambda *args: None)


def test_every_frame_shown_is_whole(flat_out: Subscriber) -> None:
    seen = _watch(flat_out, check=True, pause=0.0, enough=lambda seen: seen.shown == 300)
    assert (seen.shown, seen.torn) == (300, 0)
    flat_out.close()


def test_a_lease_keeps_the_writer_away_from_a_slow_reader(flat_out: Subscriber) -> None:
    seen = _watch(flat_out, check=True, pause=0.05, enough=lambda seen: seen.shown == 20)
    assert (seen.shown, seen.torn) == (20, 0)
    flat_out.close()


@pytest.mark.exhaustive  # quick: a late reader
@pytest.mark.usefixtures("no_leases")
def test_without_leases_slow_readings_are_given_up_not_shown(flat_out: Subscriber) -> None:
    seen = _watch(flat_out, check=True, pause=0.05, enough=lambda seen: seen.given_up == 20)
    assert (seen.given_up, seen.torn) == (20, 0)
    flat_out.close()


@pytest.mark.usefixtures("no_leases")
def test_the_sequence_check_is_what_keeps_frames_whole(flat_out: Subscriber) -> None:
    """The counter-proof: the same reading without the check shows torn frames."""
    seen = _watch(flat_out, check=False, pause=0.05, enough=lambda seen: seen.torn == 6)
    assert seen.torn == 6
    flat_out.close()


def test_a_late_reader_never_sees_a_tensor_half_written(programs: Programs, wait_until: Callable[..., Any]) -> None:
    """The helper thread copies for readers who come late, while the trainer writes into that very tensor."""
    writer = programs.code("""
import time, torch, splatview
frame = torch.zeros(3000, 3000, dtype=torch.uint8)
splatview.publish(frame, "frames")
print("ready", flush=True)
while True:
    for value in range(1, 250):
        frame.fill_(value)
        time.sleep(0.002)
""")
    assert writer.stdout is not None
    writer.stdout.readline()
    with Subscriber() as subscriber:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
                frame = stream.read()
                if frame is not None:
                    with frame:
                        pixels = host_array(frame.tensors["image"])
                        extremes = int(pixels.min()), int(pixels.max())
                        if frame.intact():
                            assert extremes[0] == extremes[1]
            time.sleep(0.01)
