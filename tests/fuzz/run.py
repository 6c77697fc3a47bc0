"""Fuzz targets: `python -m fuzz.run TARGET [INPUTS]`, from within tests/.

A target gets its seeds, its crafted inputs, then INPUTS damaged ones. Each has limits
of memory and of CPU time. The kernel keeps the latter, also where a library holds the
interpreter's lock: a process that takes more is ended (SIGXCPU). The input of a failure
is kept in a file.
"""

from __future__ import annotations

import copy
import json
import math
import random
import resource
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.scene_files import little_memory

from fuzz.targets import TARGETS, Target

CPU_SECONDS = 30
"""For one input. Linear readers take a fifth of it, quadratic ones more."""
BOMBS = [
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xdc\xff\xff",
    b"\xde\xff\xff",
    b"\x91" * 3000,
    b"\x81\xa1a" * 1500,  # lengths and depths of msgpack
    b"\xcf" + b"\xff" * 8,
    b"\xd3\x80" + b"\x00" * 7,
    b"\xcf\x80" + b"\x00" * 7,  # integers around 2^63
    b"\xcb\x7f\xf8" + b"\x00" * 6,
    b"\xcb\x7f\xf0" + b"\x00" * 6,
    b"\xcb\xff\xf0" + b"\x00" * 6,  # NaN, infinities
    b"\xc7\xff\x01",
    b"\xd6\xff\x00\x00\x00\x00",
    b"\xc1",
    b"\xa1\xff",
    b"\x00",
    b"\xff",
    b"\xff" * 8,
    b"\x00" * 8,
    b"[" * 3000,
    b'{"a":' * 1500,
    b"-1",
    b"1e999",
    b"NaN",
    b"9223372036854775808",
    b'"\\ud800"',
    b"null",  # JSON
    b"1" + b"0" * 4300,
    b"../../../../etc/passwd\x00",
    b"cposix\nsystem\n(S'true'\ntR.",
]
"""Pieces on which decoders have stumbled."""


def mutated(seeds: Sequence[bytes], luck: random.Random) -> bytes:
    """Return a seed with up to four pieces cut out, overwritten, doubled or put in."""
    data = luck.choice(list(seeds))
    for _ in range(luck.randrange(5)):
        start = luck.randrange(len(data) + 1)
        length = luck.randrange(min(len(data) + 1, 64))
        new = luck.randbytes(luck.randrange(12))
        tail = data[start + length :]
        bit = b""
        if start < len(data):
            bit = bytes([data[start] ^ 1 << luck.randrange(8)])
        data = luck.choice(
            [
                data[:start],
                data[:start] + tail,
                data[:start] + new + data[start + len(new) :],
                data[:start] + new + data[start:],
                data[:start] + luck.choice(BOMBS) + tail,
                data[:start] + data[start : start + length] * 2 + tail,
                data[:start] + bit + data[start + 1 :],
            ]
        )
    return data


ODD: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    10**400,
    -(10**400),
    1e308,
    -1e308,
    5e-324,
    float("nan"),
    float("inf"),
    -float("inf"),
    "",
    "x",
    "\ud800",
    "a\0b",
    "NaN",
    "1",
    "9" * 5000,
    "../../etc/passwd",
    "\u202e",
    "x" * 20_000,
    [],
    {},
    [[]],
    [None],
    [[[[]]]],
    {"": None},
    [0] * 5000,
    [[1, 2], [3]],
    ["a", "b", "c"],
    [10**400] * 16,
    [float("nan")] * 16,
    [1e308] * 16,
    [[10**400] * 4] * 4,
    {"0": 1},
    {"camera": 5},
    {"\ud800": 1},
]


def odd_document(documents: Sequence[Any], luck: random.Random) -> bytes:
    """Return a document as JSON with one to three odd values.

    Values are replaced, doubled, left out or renamed.
    """
    document = json.loads(json.dumps(luck.choice(documents)))
    for _ in range(luck.randint(1, 3)):
        holder = document
        while isinstance(holder, (dict, list)) and holder:
            keys = range(len(holder))
            if isinstance(holder, dict):
                keys = holder
            key = luck.choice(list(keys))
            inner = holder[key]
            if isinstance(inner, (dict, list)) and inner and luck.random() < 0.7:
                holder = inner
                continue
            value = holder.pop(key)
            if isinstance(holder, list):
                holder[key:key] = luck.choice(
                    [
                        [],
                        [value, copy.deepcopy(value)],
                        [copy.deepcopy(luck.choice(ODD))],
                    ]
                )
            elif luck.random() < 0.7:
                odd_key = luck.choice(
                    ["", "x", "\ud800", "0", "-1", "1" * 400, "a" * 3000]
                )
                holder |= luck.choice(
                    [{odd_key: value}, {key: copy.deepcopy(luck.choice(ODD))}]
                )
            break
    return json.dumps(document).encode()


def inputs(target: Target, count: int) -> Iterator[tuple[str, bytes]]:
    """Yield inputs with their names; the same ones each time."""
    seeds = target.seeds()
    luck = random.Random(0)
    for seed in seeds:
        # This imports and compiles what the target needs, without limits.
        target.run(seed)
    yield from target.crafted(seeds[0]).items()
    for i in range(count):
        if target.documents and i % 2:
            data = odd_document(target.documents, luck)
        else:
            data = mutated(seeds, luck)
        yield f"input {i}", data


def main(name: str, count: str = "1000000") -> int:
    if name not in TARGETS:
        print(
            f"there is no target {name!r}; there are {', '.join(TARGETS)}",
            file=sys.stderr,
        )
        return 2
    path = Path(tempfile.gettempdir(), f"splatview-fuzz-{name}")
    label = ""
    try:
        for label, data in inputs(TARGETS[name], int(count)):
            path.write_bytes(data)
            # The last line names the failing input where the process is ended.
            print(f"{label} ({len(data):,} bytes, {path})", flush=True)
            used = resource.getrusage(resource.RUSAGE_SELF)
            seconds = math.ceil(used.ru_utime + used.ru_stime) + CPU_SECONDS
            _, hard_limit = resource.getrlimit(resource.RLIMIT_CPU)
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, hard_limit))
            with little_memory():
                TARGETS[name].run(data)
    except Exception:
        traceback.print_exc()
        return 1
    path.unlink(missing_ok=True)
    print(f"{name}: nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
