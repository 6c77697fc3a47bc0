"""How ranks are spoken of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def ranks_of(ranks: Iterable[int]) -> str:
    """Ranks in words, such as "rank 2" or "ranks 0 to 3, 5"."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    texts = [f"{a}" if a == b else f"{a}, {b}" if b == a + 1 else f"{a} to {b}" for a, b in spans]
    one = len(spans) == 1 and spans[0][0] == spans[0][1]
    return f"rank{'' if one else 's'} {', '.join(texts)}"


def missing(world: int, there: Iterable[int], ended: Iterable[int], silent: Iterable[int]) -> str:
    """What is said where not all ranks are there: ended ones, those that bring nothing, and those not found."""
    there, ended, silent = set(there), set(ended), set(silent)
    if len(there) == world or (not there and not silent and len(ended) == world):
        return ""
    silent -= ended
    absent = set(range(world)) - there - ended - silent
    parts = [f"{ranks_of(ranks)} {word}" for ranks, word in (
        (ended, "ended"), (silent, "not answering"), (absent, "not found")) if ranks]
    return f"{len(there)} of {world} shards; {', '.join(parts)}"
