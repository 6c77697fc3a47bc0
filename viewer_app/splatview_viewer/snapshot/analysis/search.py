"""Search: which allocations have to do with what somebody typed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.format import exact_size_text, size_text
from splatview_viewer.snapshot.analysis import frames as _frames
from splatview_viewer.snapshot.model import address_text, cached

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

SEARCH_HELP = "function, file or file:line; 0x7f00 an address; 512MB, >1GiB, =4096 sizes; a minus before a word leaves out"
_PLACE = re.compile(r"(.*[^:\d]):(\d+)$")


@dataclass(frozen=True)
class Hits:
    """Allocations that a search found."""

    mask: np.ndarray
    """bool (A,)"""
    meanings: tuple[str, ...]
    """The reading of each word."""
    count: int
    bytes: int
    """The sum of the sizes of all hits, live at one time or not."""


def search(snapshot: MemorySnapshot, trace: Trace, text: str) -> Hits:
    """Find allocations. Several words are all needed; HELP says what a word can be.

    Anything can be typed: what is no size, address or such is looked for in functions and files (and compile contexts
    and metadata), and a word that finds nothing finds nothing. An empty text finds all.
    """
    mask = np.ones(len(trace.allocations), bool)
    said = []
    for word in text.split():
        negative = len(word) > 1 and word[0] == "-"
        found, meaning = _find(snapshot, trace, word[1:] if negative else word)
        said.append(f"not {meaning}" if negative else meaning)
        mask &= ~found if negative else found
    return Hits(
        mask,
        tuple(said),
        int(np.count_nonzero(mask)),
        int(trace.allocations.size.sum(where=mask)),
    )


def _find(snapshot: MemorySnapshot, trace: Trace, word: str) -> tuple[np.ndarray, str]:
    """bool (A,), and what the word means."""
    lower = word.lower()
    if re.fullmatch(r"0x[0-9a-f]{1,16}", lower):
        a = trace.allocations
        address = int(lower, 16)
        size = np.maximum(np.maximum(a.size, a.rounded), 1).view(np.uint64)
        # The difference to a higher address is a huge number.
        return np.uint64(
            address
        ) - a.addr < size, f"over the address {address_text(address)}"
    found = _SIZE.fullmatch(lower)
    if found:
        sign, digits, prefix = found.groups()
        size = trace.allocations.size
        unit = 1024.0 ** " kmgtp".index(prefix or " ")
        value = round(float(digits) * unit)
        half = 0.5 * 10.0 ** -len(digits.partition(".")[2]) * unit
        if not sign and prefix:
            return (size >= value - half) & (
                size < value + half
            ), f"size about {size_text(value)}"
        masks = {
            "<": size.__lt__,
            ">": size.__gt__,
            "<=": size.__le__,
            ">=": size.__ge__,
        }
        return masks.get(sign, size.__eq__)(
            value
        ), f"size {sign or '='} {exact_size_text(value)}"
    a = trace.allocations
    events = trace.events
    mask = np.append(_frames.stacks_with(snapshot, frames_with(snapshot, word)), False)[
        a.stack
    ]  # NO_STACK is the last
    if (events.context >= 0).any() or (events.metadata >= 0).any():
        has = np.append(texts_with(snapshot, word), False)
        mask |= (has[events.context] | has[events.metadata])[np.maximum(a.start, 0)] & (
            a.start >= 0
        )
    return mask, f'function or file has "{word}"'


_SIZE = re.compile(
    r"([<>]=?|=|)(\d{1,18}(?:\.\d{0,9})?|\.\d{1,9})([kmgtp]?)(?:i?b|bytes?)?"
)
"""A size in small letters. K, KB and KiB are 1024 bytes, as in PyTorch's messages; "512MB" is 512 MiB give or take half
a MiB, "1.5GiB" give or take 0.05 GiB."""


@cached
def _lowered(snapshot: MemorySnapshot) -> list[str]:
    return [text.lower() for text in snapshot.texts]


def texts_with(snapshot: MemorySnapshot, part: str) -> np.ndarray:
    """bool (T,): the texts that have this part, in whatever case."""
    part = part.lower()
    return np.array([part in text for text in _lowered(snapshot)], bool)


def frames_with(snapshot: MemorySnapshot, part: str) -> np.ndarray:
    """bool (F,): the frames whose function or file has this part; for "file:line" those of that line."""
    s = snapshot.stacks
    has = texts_with(snapshot, part)
    frames = has[s.file] | has[s.name]
    place = _PLACE.fullmatch(part)
    if place and (number := int(place.group(2))) < 1 << 31:
        frames |= texts_with(snapshot, place.group(1))[s.file] & (s.line == number)
    return frames
