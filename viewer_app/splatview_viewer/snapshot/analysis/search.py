"""Searches allocations by function, file, address and size."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splatview_viewer.core.quantities import exact_size_text, size_text
from splatview_viewer.snapshot.analysis import frames as _frames
from splatview_viewer.snapshot.model import address_text, cached

if TYPE_CHECKING:
    from splatview_viewer.snapshot.model import MemorySnapshot, Trace

SEARCH_HELP = (
    "function, file or file:line; 0x7f00 an address; 512MB, >1GiB, =4096 sizes; "
    "a minus before a word leaves out"
)
_FILE_AND_LINE = re.compile(r"(.*[^:\d]):(\d+)$")
_ADDRESS = re.compile(r"0x[0-9a-f]{1,16}")
_SIZE = re.compile(
    r"([<>]=?|=|)(\d{1,18}(?:\.\d{0,9})?|\.\d{1,9})([kmgtp]?)(?:i?b|bytes?)?"
)
"""A size in small letters. K, KB and KiB are 1024 bytes, as in PyTorch's messages; "512MB" is
512 MiB give or take half a MiB, "1.5GiB" give or take 0.05 GiB."""


@dataclass(frozen=True)
class Hits:
    """Allocations that a search found."""

    mask: np.ndarray
    """bool (A,)"""
    meanings: tuple[str, ...]
    """The meaning of each word."""
    count: int
    bytes: int
    """The sum of the sizes of all hits, live at one time or not."""


def search(snapshot: MemorySnapshot, trace: Trace, text: str) -> Hits:
    """Find allocations that fit all words of a text. SEARCH_HELP says what a word can be.

    Any text is legal: a word that is no size and no address is looked for in functions,
    files, compile contexts and metadata, and a word that finds nothing finds nothing. An
    empty text finds all.
    """
    mask = np.ones(len(trace.allocations), bool)
    meanings = []
    for search_word in text.split():
        is_negative = len(search_word) > 1 and search_word[0] == "-"
        word_mask, meaning = _find(
            snapshot, trace, search_word[1:] if is_negative else search_word
        )
        if is_negative:
            word_mask = ~word_mask
            meaning = f"not {meaning}"
        mask &= word_mask
        meanings.append(meaning)
    return Hits(
        mask=mask,
        meanings=tuple(meanings),
        count=int(np.count_nonzero(mask)),
        bytes=int(trace.allocations.size.sum(where=mask)),
    )


def _find(
    snapshot: MemorySnapshot, trace: Trace, search_word: str
) -> tuple[np.ndarray, str]:
    """Return the allocations that fit a word, bool (A,), and its meaning."""
    lowered = search_word.lower()
    if _ADDRESS.fullmatch(lowered):
        return _find_address(trace, int(lowered, 16))
    match = _SIZE.fullmatch(lowered)
    if match:
        return _find_size(trace, *match.groups())
    return _find_text(snapshot, trace, search_word)


def _find_address(trace: Trace, address: int) -> tuple[np.ndarray, str]:
    """Return the allocations whose memory has an address."""
    allocations = trace.allocations
    size = np.maximum(np.maximum(allocations.size, allocations.rounded), 1)
    # Unsigned: the distance to a higher address becomes a huge number.
    offset = np.uint64(address) - allocations.addr
    return offset < size.view(np.uint64), f"over the address {address_text(address)}"


def _find_size(
    trace: Trace, comparison: str, digits: str, prefix: str
) -> tuple[np.ndarray, str]:
    """Return the allocations of a size; the arguments are the groups of _SIZE."""
    size = trace.allocations.size
    unit = 1024.0 ** " kmgtp".index(prefix or " ")
    value = round(float(digits) * unit)
    if not comparison and prefix:
        decimals = len(digits.partition(".")[2])
        half = 0.5 * 10.0**-decimals * unit
        is_about = (size >= value - half) & (size < value + half)
        return is_about, f"size about {size_text(value)}"
    compare = {
        "<": size.__lt__,
        ">": size.__gt__,
        "<=": size.__le__,
        ">=": size.__ge__,
    }.get(comparison, size.__eq__)
    return compare(value), f"size {comparison or '='} {exact_size_text(value)}"


def _find_text(
    snapshot: MemorySnapshot, trace: Trace, search_word: str
) -> tuple[np.ndarray, str]:
    """Return the allocations with a text in their stack, compile context or metadata."""
    allocations = trace.allocations
    events = trace.events
    stacks = _frames.stacks_with(snapshot, frames_with(snapshot, search_word))
    # NO_STACK, which is -1, takes the last value.
    mask = np.append(stacks, False)[allocations.stack]
    if (events.context >= 0).any() or (events.metadata >= 0).any():
        has_text = np.append(texts_with(snapshot, search_word), False)
        fits = has_text[events.context] | has_text[events.metadata]
        is_in_trace = allocations.start >= 0
        mask |= fits[np.maximum(allocations.start, 0)] & is_in_trace
    return mask, f'function or file has "{search_word}"'


@cached
def _lowered_texts(snapshot: MemorySnapshot) -> list[str]:
    """Return all texts of a snapshot in small letters."""
    return [text.lower() for text in snapshot.texts]


def texts_with(snapshot: MemorySnapshot, fragment: str) -> np.ndarray:
    """Return which texts have this fragment, in any case of letters, bool (T,)."""
    fragment = fragment.lower()
    return np.array([fragment in text for text in _lowered_texts(snapshot)], bool)


def frames_with(snapshot: MemorySnapshot, fragment: str) -> np.ndarray:
    """Return the frames whose function or file has this fragment, bool (F,).

    For "file:line" also those of that line.
    """
    stacks = snapshot.stacks
    has_fragment = texts_with(snapshot, fragment)
    frames = has_fragment[stacks.file] | has_fragment[stacks.name]
    match = _FILE_AND_LINE.fullmatch(fragment)
    if not match:
        return frames
    file, line = match.groups()
    if int(line) < 1 << 31:
        frames |= texts_with(snapshot, file)[stacks.file] & (stacks.line == int(line))
    return frames
