"""Search: which allocations have to do with what somebody typed."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import frames as _frames
from splatview_viewer.kinds.snapshot.analysis.frames import categories
from splatview_viewer.kinds.snapshot.model import address_text, kept, live_mask, parse_size, pool_text, stream_text
from splatview_viewer.ui.format import age_text, exact_size_text, size_text

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Snapshot, Trace

HELP = ("function, file or file:line; 0x7f00 an address; 512MB, >1GiB, =4096, 10MB-20MB sizes; #12 a number; "
        "pool:private, stream:7, category:activations, live:1000, age:>1s; a minus before a word leaves out")
_PLACE = re.compile(r"(.*[^:\d]):(\d+)$")
_RANGE = re.compile(r"(.+?)(?:-|\.\.)(.+)$")
_AGE = re.compile(r"([<>]=?)(\d+(?:\.\d+)?)(us|ms|s|min|h)$")
_AGE_US = {"us": 1.0, "ms": 1e3, "s": 1e6, "min": 60e6, "h": 3600e6}


@dataclass(frozen=True)
class Hits:
    """Allocations that a search found."""

    mask: np.ndarray
    """bool (A,)"""
    words: tuple[str, ...]
    """How each word was understood."""
    count: int
    bytes: int
    """The sum of the sizes of all hits, live at one time or not."""


def search(snapshot: Snapshot, trace: Trace, text: str) -> Hits:
    """Find allocations. Several words are all needed; quotes hold words together; HELP says what a word can be.

    Anything can be typed: what is no size, address or such is looked for in functions and files (and compile contexts
    and metadata), and a word that finds nothing finds nothing. An empty text finds all.
    """
    try:
        words = shlex.split(text.replace("\\", "\\\\").replace("'", "\\'"))
    except ValueError:  # a quote that is not closed yet
        words = text.replace('"', " ").split()
    mask: np.ndarray | None = None
    said = []
    for word in words:
        negative = len(word) > 1 and word[0] == "-"
        found, meaning = _find(snapshot, trace, word[1:] if negative else word)
        said.append(f"not {meaning}" if negative else meaning)
        if negative:
            found = ~found
        mask = found if mask is None else mask & found
    if mask is None:
        mask = np.ones(len(trace.allocations), bool)
    return Hits(mask, tuple(said), int(np.count_nonzero(mask)), int(trace.allocations.size.sum(where=mask)))


def _find(snapshot: Snapshot, trace: Trace, word: str) -> tuple[np.ndarray, str]:
    """bool (A,), and what the word means."""
    key, _, value = word.lower().partition(":")
    if key in _KEYS and value:
        return _keyed(snapshot, trace, key, value)
    lower = word.lower()
    if re.fullmatch(r"0x[0-9a-f]{1,16}", lower):
        return _address(trace, int(lower, 16))
    if re.fullmatch(r"#\d{1,12}", lower):
        return np.arange(len(trace.allocations)) == int(lower[1:]), f"allocation {lower}"
    return _size(trace, lower) or _text(snapshot, trace, word)


def _address(trace: Trace, address: int) -> tuple[np.ndarray, str]:
    a = trace.allocations
    if address >= 1 << 64:
        return np.zeros(len(a), bool), f"no address is {address_text(address)}"
    size = np.maximum(np.maximum(a.size, a.rounded), 1).view(np.uint64)
    # The difference to a higher address is a huge number.
    return np.uint64(address) - a.addr < size, f"over the address {address_text(address)}"


def _size(trace: Trace, word: str) -> tuple[np.ndarray, str] | None:
    size = trace.allocations.size
    sign = re.match(r"[<>]=?|=", word)
    if sign is not None:
        parsed = parse_size(word[sign.end():])
        if parsed is None:
            return None
        value = round(parsed[0])
        masks = {"<": size.__lt__, ">": size.__gt__, "<=": size.__le__, ">=": size.__ge__, "=": size.__eq__}
        return masks[sign.group()](value), f"size {sign.group()} {exact_size_text(value)}"
    if (parsed := parse_size(word)) is not None:
        value, half = round(parsed[0]), parsed[1]
        if not half:
            mask, _ = _address(trace, value) if value > 1 << 20 else (size == value, "")
            return mask | (size == value), f"size = {exact_size_text(value)}"
        return (size >= value - half) & (size < value + half), f"size about {size_text(value)}"
    found = _RANGE.fullmatch(word)
    ends = [parse_size(part) for part in found.groups()] if found else [None]
    if found is None or ends[0] is None or ends[1] is None:
        return None
    low, high = ends[0][0], ends[1][0]
    if not re.search(r"[a-z]", found.group(1)) and (unit := re.search(r"[a-z]+$", found.group(2))):
        low = (parse_size(found.group(1) + unit.group()) or (low, 0))[0]  # 10-20MB
    return (size >= low) & (size <= high), f"size from {size_text(round(low))} to {size_text(round(high))}"


@kept
def _lowered(snapshot: Snapshot) -> list[str]:
    return [text.lower() for text in snapshot.texts]


def texts_with(snapshot: Snapshot, part: str) -> np.ndarray:
    """bool (T,): the texts that have this part, in whatever case."""
    part = part.lower()
    return np.array([part in text for text in _lowered(snapshot)], bool)


def frames_with(snapshot: Snapshot, part: str) -> np.ndarray:
    """bool (F,): the frames whose function or file has this part; for "file:line" those of that line."""
    s, has = snapshot.stacks, texts_with(snapshot, part)
    frames = has[s.file] | has[s.name]
    if (place := _PLACE.fullmatch(part)) and (number := int(place.group(2))) < 1 << 31:
        frames |= texts_with(snapshot, place.group(1))[s.file] & (s.line == number)
    return frames


def _text(snapshot: Snapshot, trace: Trace, word: str) -> tuple[np.ndarray, str]:
    a = trace.allocations
    stacks = np.append(_frames.stacks_with(snapshot, frames_with(snapshot, word)), False)  # NO_STACK takes the last
    mask = stacks[a.stack]
    events = trace.events
    if (events.context >= 0).any() or (events.metadata >= 0).any():
        has = np.append(texts_with(snapshot, word), False)
        mask |= (has[events.context] | has[events.metadata])[np.maximum(a.start, 0)] & (a.start >= 0)
    return mask, f'function or file has "{word}"'


def _keyed(snapshot: Snapshot, trace: Trace, key: str, value: str) -> tuple[np.ndarray, str]:
    """bool (A,), and what key:value means. value: in small letters."""
    a, m, times = trace.allocations, len(trace.events), trace.events.time_us
    if key == "pool":
        if value in ("default", "private"):
            return (a.pool == 0) if value == "default" else (a.pool > 0), f"in a {value} pool"
        numbers = tuple(int(n) for n in re.findall(r"\d{1,18}", value))
        if numbers in snapshot.pools:
            return a.pool == snapshot.pools.index(numbers), f"in the {pool_text((numbers[0], numbers[1]))}"
        legal = "default, private, " + ", ".join(f"{x},{y}" for x, y in snapshot.pools[:8])
    elif key == "stream":
        found = {"default": 0} | {text: n for n in snapshot.streams for text in (str(n), hex(n))}
        if found.get(value) in snapshot.streams:
            return a.stream == snapshot.streams.index(found[value]), f"on {stream_text(found[value])}"
        legal = ", ".join(map(str, snapshot.streams[:8]))
    elif key == "category":
        of_allocation, names = categories(snapshot, trace)
        chosen = [k for k, name in enumerate(names) if value in name]
        if chosen:
            return np.isin(of_allocation, chosen), "category " + " or ".join(names[k] for k in chosen)
        legal = ", ".join(names)
    elif key == "live":
        moment = m if value == "end" else int(value[:12]) if value.isascii() and value.isdigit() else m + 1
        if moment <= m:
            return live_mask(trace, moment), f"live at moment {moment:,}"
        legal = f"end or 0 to {m:,}"
    else:
        age = _AGE.fullmatch(value)
        if age is not None and m:
            limit, more = float(age.group(2)) * _AGE_US[age.group(3)], age.group(1)[0] == ">"
            lived = times[np.minimum(a.end, m - 1)] - times[np.maximum(a.start, 0)]
            return (lived >= limit) if more else (lived <= limit), (
                f"lived at {'least' if more else 'most'} {age_text(limit)}")
        legal = ">1s, <20ms"
    return np.zeros(len(a), bool), f'no {_KEYS[key]} "{value}": it can be {legal}'


_KEYS = {"pool": "pool", "stream": "stream", "category": "category", "live": "moment", "age": "duration"}
"""Words before a colon, and what the value after it is."""
