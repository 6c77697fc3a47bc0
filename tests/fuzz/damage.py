"""Damage to well-formed bytes, and odd values in well-formed JSON: what lies near them finds more than noise does."""

from __future__ import annotations

import copy
import json
import random
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

BOMBS = [
    b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff",
    b"\xdc\xff\xff", b"\xde\xff\xff", b"\x91" * 3000, b"\x81\xa1a" * 1500,  # lengths and depths of msgpack
    b"\xcf" + b"\xff" * 8, b"\xd3\x80" + b"\x00" * 7, b"\xcf\x80" + b"\x00" * 7,  # integers around 2^63
    b"\xcb\x7f\xf8" + b"\x00" * 6, b"\xcb\x7f\xf0" + b"\x00" * 6, b"\xcb\xff\xf0" + b"\x00" * 6,  # NaN, infinities
    b"\xc7\xff\x01", b"\xd6\xff\x00\x00\x00\x00", b"\xc1", b"\xa1\xff", b"\x00", b"\xff", b"\xff" * 8, b"\x00" * 8,
    b"[" * 3000, b'{"a":' * 1500, b"-1", b"1e999", b"NaN", b"9223372036854775808", b'"\\ud800"', b"null",  # JSON
    b"../../../../etc/passwd\x00", b"cposix\nsystem\n(S'true'\ntR.",
]
"""What decoders have stumbled over."""


def damaged(seeds: Sequence[bytes], max_size: int = 1 << 16) -> st.SearchStrategy[bytes]:
    """One of the seeds with one to a few pieces cut out, overwritten, doubled or put in; or anything at all."""
    number = st.integers(0, 2**32 - 1)
    cuts = st.tuples(st.sampled_from(range(7)), number, number, st.binary(max_size=12), st.sampled_from(BOMBS))
    near = st.tuples(st.sampled_from(list(seeds)), st.lists(cuts, min_size=0, max_size=4)).map(
        lambda drawn: _apply(*drawn)[:max_size])
    return st.one_of(near, near, near, st.binary(max_size=400), st.sampled_from(BOMBS))


def mutated(seeds: Sequence[bytes], luck: random.Random) -> bytes:
    """As `damaged`, without Hypothesis: for runs of hours."""
    cuts = [(luck.randrange(7), luck.getrandbits(32), luck.getrandbits(32), luck.randbytes(luck.randrange(12)),
             luck.choice(BOMBS)) for _ in range(luck.randrange(5))]
    return _apply(luck.choice(list(seeds)), cuts)


def _apply(data: bytes, cuts: Sequence[tuple[int, int, int, bytes, bytes]]) -> bytes:
    for what, first, second, new, bomb in cuts:
        at = first % (len(data) + 1)
        length = second % min(len(data) + 1, 64)
        if what == 0:
            data = data[:at]
        elif what == 1:
            data = data[:at] + data[at + length :]
        elif what == 2:
            data = data[:at] + new + data[at + len(new) :]
        elif what == 3:
            data = data[:at] + new + data[at:]
        elif what == 4:
            data = data[:at] + bomb + data[at + length :]
        elif what == 5:
            data = data[:at] + data[at : at + length] * 2 + data[at + length :]
        elif data:
            at %= len(data)
            data = data[:at] + bytes([data[at] ^ 1 << second % 8]) + data[at + 1 :]
    return data


ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, -(10**400), 1e308, -1e308, 5e-324,
    float("nan"), float("inf"), -float("inf"), "", "x", "\ud800", "a\0b", "NaN", "1", "9" * 5000, "../../etc/passwd",
    "\u202e", "x" * 20_000, [], {}, [[]], [None], [[[[]]]], {"": None}, [0] * 5000, [[1, 2], [3]], ["a", "b", "c"],
    [10**400] * 16, [float("nan")] * 16, [1e308] * 16, [[10**400] * 4] * 4, {"0": 1}, {"camera": 5}, {"\ud800": 1},
]


def odd(data: bytes, documents: Sequence[Any]) -> str:
    """One of the documents with one to three of its values replaced, doubled, left out or given another name. The same
    bytes always make the same."""
    luck = random.Random(data)
    made = json.loads(json.dumps(luck.choice(documents)))
    for _ in range(luck.randint(1, 3)):
        places = list(_places(made))
        if not places:
            break
        holder, key = luck.choice(places)
        what = luck.randrange(6)
        if what == 0:
            del holder[key]
        elif what == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif what == 1:
            holder[luck.choice(["", "x", "\ud800", "0", "-1", "1" * 400, "a" * 3000])] = holder.pop(key)
        else:
            holder[key] = copy.deepcopy(luck.choice(ODD))
    return json.dumps(made)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Each value within another: what holds it, and where."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 2000:
        holder = waiting.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, inner in items:
            found.append((holder, key))
            waiting.append(inner)
    return found
