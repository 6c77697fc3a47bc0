"""Pickles that PyTorch does not write, or damaged ones: the compiled machine leaves them, and stays in its arrays."""

from __future__ import annotations

import os
import pickle
import random
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support.machine_cases import as_objects, by_machine, data, listing
from support.memory_data import event, snapshot
from support.wait import PATIENCE

from splatview.viewer_app.errors import FileError
from splatview.viewer_app.memory.loading.entries import MAX_DEVICES
from splatview.viewer_app.memory.loading.machine import OddError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def text(s: str) -> bytes:
    return b"X" + struct.pack("<I", len(s)) + s.encode()


ENTRY = b"}(" + text("action") + text("alloc") + b"u"
FRAME = b"}(" + text("filename") + text("a.py") + b"u"
LEFT = {
    "an object": b"cposix\nsystem\n" + text("touch x") + b"\x85R",
    "a list that grows when its stack is known": b"](" + b"}(" + text("action") + text("alloc") + text("frames") +
                                                b"](" + FRAME + b"eq\x01uh\x01(" + FRAME + b"ee",
    "an empty stack that grows": b"](" + b"}(" + text("action") + text("alloc") + text("frames") +
                                 b"]q\x01uh\x01(" + FRAME + b"ee",
    "an event that is changed": b"](" + ENTRY + b"q\x01h\x01(" + text("size") + b"K\x01ue",
    "an event alone": ENTRY, "an event among others": b"](" + ENTRY + b"Ne",
    "others among events": b"](N" + ENTRY + b"e",
    "an event in two traces": b"](" + ENTRY + b"q\x01h\x01e", "no key": b"}(Nu", "a list as a key": b"}(]Nu",
    "a number among frames": b"](" + FRAME + b"K\1e", "a number among events": b"](" + ENTRY + b"K\1e",
    "a mapping among frames": b"](" + FRAME + b"}(" + text("x") + b"Nue",
    "too many traces": b"](" + (b"](" + ENTRY + b"e") * (MAX_DEVICES + 1) + b"e",
    "frames one by one": b"]" + FRAME + b"a" + FRAME + b"a",
    **{f"{key} {name}": b"](}(" + text("action") + text("oom") + text(key) + number + b"ue"
       for key in ("addr", "size", "time_us", "device_free")
       for name, number in (("below 0", b"\x8a\1\xff"), ("of 2**62", b"\x8a\x08" + bytes(7) + b"\x40"),
                            ("that is true", b"\x88"), ("of 1.0", b"G\x3f\xf0" + bytes(6)))},
    "no number": b"}(" + text("action") + text("alloc") + text("size") + b"Nu", "below a mark": b"](N(ae",
    "below two marks": b"N(N(\x86", "a mapping that is a list": b"](NNu", "a list that is a mapping": b"}(NNe",
    "no memo": b"h\x05", "a far memo": b"Nr\xff\xff\xff\x7f", "two values": b"NN",
    "a long number": b"\x8a\x09" + b"\1" * 9, "a mark at the end": b"N(", "protocol 1": b"I5\n", "nothing": b"",
    "no text": b"X\x02\0\0\0\xff\xfe", "texts that are one only together": b"](X\1\0\0\0\xc3X\1\0\0\0\xa4e",
    "memo of nothing": b"\x94", "memo of a mark": b"N(\x940", "append to nothing": b"Na", "items of nothing": b"(u",
    "items to a number": b"K\1(NNu", "a pair of nothing": b"N\x86", "items without a mark": b"}NNu",
    "odd items": b"}(" + text("a") + b"u", "protocol 6": b"\x80\x06N",
    "deep tuples": b")" + b"\x85" * 60,
}


@pytest.mark.parametrize("name", LEFT)
def test_what_it_does_not_know_it_leaves(name: str):
    with pytest.raises(OddError):
        by_machine(b"\x80\x04" + LEFT[name] + b".")


@pytest.mark.parametrize("key", ["stream", "pool_id"])
def test_too_many_streams_and_pools_are_left(key: str):
    events = [{**event("alloc", 512), key: i if key == "stream" else (i, 1)} for i in range(32_769)]
    with pytest.raises(OddError):
        by_machine(pickle.dumps(snapshot(events), 4))
    assert len(by_machine(pickle.dumps(snapshot(events[:-2]), 4)).traces[0].events) == 32_767


def test_what_ends_early_is_left():
    plain = pickle.dumps(data(60), 4)
    for n in range(0, len(plain) - 1, 7):
        with pytest.raises(OddError):
            by_machine(plain[:n])


FUZZ = """
import random, sys
sys.path[:0] = sys.argv[1:]
from support.machine_cases import by_machine
from test_memory_loading_odd import mutations
from splatview.viewer_app.errors import FileError
from splatview.viewer_app.memory._kept import kept
from splatview.viewer_app.memory.loading.machine import OddError
import numba
assert numba.config.BOUNDSCHECK == 1
read = 0
for plain in mutations(4000):
    try:
        by_machine(plain)
        read += 1
    except (OddError, FileError):
        pass
print("read", read)
"""


def mutations(count: int) -> Iterator[bytes]:
    """Damaged pickles: bytes changed, opcodes put in, parts left out, doubled and exchanged."""
    rng = random.Random(11)
    whole = [pickle.dumps(data(n), p) for n, p in ((12, 4), (30, 2))] + [
        b"\x80\x04}(" + text("segments") + b"](" + LEFT[name] + b"eu." for name in LEFT]
    opcodes = b"(.0NGJKMXaehjqrsut}])\x80\x85\x86\x87\x88\x89\x8a\x8c\x94\x95"
    for _ in range(count):
        plain = bytearray(rng.choice(whole if rng.random() < 0.3 else whole[:2]))
        for _ in range(rng.choice((1, 1, 2, 6))):
            plain += b"." * (not plain)
            at, to = rng.randrange(len(plain)), rng.randrange(len(plain))
            what = rng.randrange(5)
            if what == 0:
                plain[at] = rng.randrange(256)
            elif what == 1:
                plain[at: at] = bytes([rng.choice(opcodes)])
            elif what == 2:
                plain[at] = rng.choice(opcodes)
            elif what == 3:
                del plain[at: at + rng.randrange(8)]
            else:
                plain[at: at] = plain[to: to + rng.randrange(40)]
        yield bytes(plain)


@pytest.mark.exhaustive  # compiles the kernel anew, with checks
def test_it_never_leaves_its_arrays(tmp_path: Path):
    """Damaged pickles through a kernel that is compiled with checks of every place."""
    here = os.path.dirname(__file__)
    done = subprocess.run([sys.executable, "-c", FUZZ, here, os.path.dirname(here)], capture_output=True, text=True,
                          timeout=PATIENCE,
                          env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split()[1]) > 100, "some are still sound"


@pytest.mark.exhaustive
def test_damaged_ones_that_are_read_are_read_as_python_reads_them():
    same = 0
    for plain in mutations(2500):
        try:
            found = listing(by_machine(plain))
        except (OddError, FileError):
            continue
        try:
            expected = listing(as_objects(plain))
        except FileError as e:
            pytest.fail(f"refused: {e}")
        except Exception as e:  # where bytes of a frame of bytes are missing Python ends, and nothing hangs on it
            assert "frame" in str(e) or "exhausted" in str(e) or "truncated" in str(e), e
            continue
        assert found == expected
        same += 1
    assert same > 50
