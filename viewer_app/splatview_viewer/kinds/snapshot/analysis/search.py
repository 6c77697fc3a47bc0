"""Search: which allocations have to do with what somebody typed."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.kinds.snapshot.analysis import frames as _frames
from splatview_viewer.kinds.snapshot.analysis.frames import categories
from splatview_viewer.kinds.snapshot.model import address_text, kept, parse_size, pool_text, stream_text
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
    key, colon, value = word.partition(":")
    if colon and value and key.lower() in _KEYS:
        return _KEYS[key.lower()](snapshot, trace, value)
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
    below = np.flatnonzero((a.addr <= address) & (a.addr >= max(address - int(a.size.max(initial=0)) - (2 << 20), 0)))
    size = np.maximum(np.maximum(a.size[below], a.rounded[below]), 1)
    mask = np.zeros(len(a), bool)
    mask[below[address - a.addr[below] < size]] = True
    return mask, f"over the address {address_text(address)}"


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
def _blob(snapshot: Snapshot) -> bytes:
    """All texts, in small letters."""
    return snapshot.texts.blob.tobytes().lower()


def texts_with(snapshot: Snapshot, part: str) -> np.ndarray:
    """int64: the numbers of the texts that have this part, whatever the case of ASCII letters."""
    blob, start = _blob(snapshot), snapshot.texts.start
    needle = part.encode("utf-8", "replace").lower()
    found: list[int] = []
    place = blob.find(needle)
    while place >= 0 and needle:
        number = int(np.searchsorted(start, place, "right")) - 1
        end = int(start[number + 1])
        if place + len(needle) <= end:
            found.append(number)
            place = blob.find(needle, end)
        else:  # it lies across two texts
            place = blob.find(needle, place + 1)
    return np.array(found, np.int64)


def frames_with(snapshot: Snapshot, part: str) -> np.ndarray:
    """bool (F,): the frames whose function or file has this part; for "file:line" those of that line."""
    s = snapshot.stacks
    has = np.zeros(len(snapshot.texts), bool)
    has[texts_with(snapshot, part)] = True
    frames = has[s.file] | has[s.name]
    if place := _PLACE.fullmatch(part):
        has[:] = False
        has[texts_with(snapshot, place.group(1))] = True
        number = int(place.group(2))
        frames |= has[s.file] & (s.line == number) if number < 1 << 31 else False
    return frames


def _text(snapshot: Snapshot, trace: Trace, word: str) -> tuple[np.ndarray, str]:
    a = trace.allocations
    stacks = np.append(_frames.stacks_with(snapshot, frames_with(snapshot, word)), False)  # NO_STACK takes the last
    mask = stacks[a.stack]
    events = trace.events
    if (events.context >= 0).any() or (events.metadata >= 0).any():
        has = np.zeros(len(snapshot.texts) + 1, bool)
        has[texts_with(snapshot, word)] = True
        mask |= (has[events.context] | has[events.metadata])[np.maximum(a.start, 0)] & (a.start >= 0)
    return mask, f'function or file has "{word}"'


def _pool(snapshot: Snapshot, trace: Trace, value: str) -> tuple[np.ndarray, str]:
    pool = trace.allocations.pool
    if value.lower() in ("default", "private"):
        private = value.lower() == "private"
        return (pool > 0) if private else (pool == 0), "in a private pool" if private else "in the default pool"
    numbers = tuple(int(n) for n in re.findall(r"\d{1,18}", value))
    if numbers in snapshot.pools:
        return pool == snapshot.pools.index(numbers), f"in the {pool_text((numbers[0], numbers[1]))}"
    return np.zeros(len(pool), bool), f'no pool "{value}": it can be default, private, ' + ", ".join(
        f"{a},{b}" for a, b in snapshot.pools[:8])


def _stream(snapshot: Snapshot, trace: Trace, value: str) -> tuple[np.ndarray, str]:
    stream = trace.allocations.stream
    try:
        number = 0 if value.lower() == "default" else int(value, 0)
    except ValueError:
        number = -1
    if number in snapshot.streams:
        return stream == snapshot.streams.index(number), f"on {stream_text(number)}"
    return np.zeros(len(stream), bool), f'no stream "{value}": it can be ' + ", ".join(map(str, snapshot.streams[:8]))


def _category(snapshot: Snapshot, trace: Trace, value: str) -> tuple[np.ndarray, str]:
    of_allocation, names = categories(snapshot, trace)
    chosen = [k for k, name in enumerate(names) if value.lower() in name]
    if not chosen:
        return np.zeros(len(of_allocation), bool), f'no category "{value}": it can be {", ".join(names)}'
    wanted = np.zeros(256, bool)
    wanted[chosen] = True
    return wanted[of_allocation], "category " + " or ".join(names[k] for k in chosen)


def _live(snapshot: Snapshot, trace: Trace, value: str) -> tuple[np.ndarray, str]:
    a, m = trace.allocations, len(trace.events)
    if not (value == "end" or (value.isascii() and value.isdigit())) or (value != "end" and int(value[:12]) > m):
        return np.zeros(len(a), bool), f'no moment "{value}": it can be end or 0 to {m:,}'
    moment = m if value == "end" else int(value)
    return (a.start < moment) & (a.end >= moment), f"live at moment {moment:,}"


def _age(snapshot: Snapshot, trace: Trace, value: str) -> tuple[np.ndarray, str]:
    a, times = trace.allocations, trace.events.time_us
    found = _AGE.fullmatch(value.lower())
    if found is None or not len(times):
        return np.zeros(len(a), bool), f'no duration "{value}": write age:>1s or age:<20ms'
    limit = float(found.group(2)) * _AGE_US[found.group(3)]
    lived = times[np.minimum(a.end, len(times) - 1)] - times[np.maximum(a.start, 0)]
    more = found.group(1)[0] == ">"
    mask = (lived >= limit) if more else (lived <= limit)
    return mask, f"lived at {'least' if more else 'most'} {age_text(limit)}"


_KEYS = {"pool": _pool, "stream": _stream, "category": _category, "live": _live, "age": _age}
