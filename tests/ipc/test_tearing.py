"""No torn frame is ever shown: frames of one value each, published flat out by another process."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.frames import host_array
from support.wait import turns

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Program, Programs

_WRITER = """
import torch, splatview
i = 0
print("ready", flush=True)
while True:  # a tensor each: of one that changes, a late copy may be amid the change (test_stream.py)
    splatview.publish(torch.full((400, 400, 4), i % 251, dtype=torch.uint8), "frames")
    i += 1
"""
_SLOTS = 8


@dataclass
class Watched:
    shown: int = 0
    torn: int = 0
    given_up: int = 0


def _watch(subscriber: Subscriber, check: bool, between: int, enough: Callable[[Watched], bool]) -> Watched:
    """Read frames half by half, while so many copies are made in between, until there was enough to see."""
    seen, last = Watched(), 0
    for _ in turns("enough frames", rest=False):
        if enough(seen):
            break
        subscriber.poll()
        for stream in subscriber.streams:
            stream.open()
            frame = stream.read(last)
            if frame is None:
                continue
            with frame:
                pixels = host_array(frame.tensors["image"])
                first = pixels[:200].copy()
                copies = stream.run.counters["copies"]
                for _ in turns("more copies"):
                    if stream.run.counters["copies"] >= copies + between:
                        break
                second = pixels[200:].copy()
                if check and not frame.intact():
                    seen.given_up += 1
                    continue
                last = frame.version
                seen.shown += 1
                seen.torn += len({int(first.min()), int(first.max()), int(second.min()), int(second.max())}) > 1
    return seen


@pytest.fixture(scope="module")
def writer(lasting: Programs) -> Iterator[tuple[Program, Path]]:
    """A program that publishes flat out, and its runtime folder."""
    folder = Path(f"/tmp/sv-tearing-{os.getpid()}")  # short: sockets are made in it
    program = lasting.code(_WRITER, SPLATVIEW_RUNTIME_DIR=str(folder))
    assert program.line() == "ready"
    yield program, folder
    program.killed()
    shutil.rmtree(folder)


@pytest.fixture
def flat_out(writer: tuple[Program, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Subscriber]:
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(writer[1]))
    with Subscriber() as subscriber:
        yield subscriber


def test_every_frame_shown_is_whole(flat_out: Subscriber) -> None:
    seen = _watch(flat_out, check=True, between=0, enough=lambda seen: seen.shown == 100)
    assert (seen.shown, seen.torn) == (100, 0)


def test_slow_readings_are_given_up_not_shown(flat_out: Subscriber) -> None:
    seen = _watch(flat_out, check=True, between=2 * _SLOTS, enough=lambda seen: seen.given_up == 6)
    assert (seen.given_up, seen.torn) == (6, 0)


def test_the_sequence_check_is_what_keeps_frames_whole(flat_out: Subscriber) -> None:
    """The counter-proof: the same reading without the check shows torn frames."""
    seen = _watch(flat_out, check=False, between=2 * _SLOTS, enough=lambda seen: seen.torn == 6)
    assert seen.torn == 6
