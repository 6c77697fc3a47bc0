"""The order in which pieces of a line are drawn where some are read from right to left.

As Unicode's bidirectional algorithm does it, for pieces in place of characters: what is
within a piece in a font of its own is ordered by HarfBuzz. A number at the end of a
line that begins from left to right stays there: it is a score.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

F = TypeVar("F")

_RIGHT_TO_LEFT = ("R", "AL")
_STRONG = ("L", *_RIGHT_TO_LEFT)
_NUMBERS = ("EN", "AN")
_MIRRORED = str.maketrans("()[]{}<>«»", ")(][}{><»«")


@dataclass(slots=True)
class _Token(Generic[F]):
    """A word, or what lies between two, in one font."""

    text: str
    face: F
    direction: str
    """"L", "R", "number", or "" for spaces and punctuation."""
    level: int = 0
    """Odd: from right to left. Each level lies within the one below it."""


def is_right_to_left(text: str) -> bool:
    """Return whether the first letter with a direction goes from right to left."""
    for char in text:
        direction = unicodedata.bidirectional(char)
        if direction in _STRONG:
            return direction in _RIGHT_TO_LEFT
    return False


def has_right_to_left(text: str) -> bool:
    """Return whether some letters of a text go from right to left."""
    return any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT for char in text)


def in_drawing_order(pieces: Sequence[tuple[str, F]]) -> list[tuple[str, F]]:
    """Return the pieces of a line, text and font, from left to right; some are taken
    apart at spaces.
    """
    base = int(is_right_to_left("".join(text for text, _ in pieces)))
    tokens: list[_Token[F]] = []
    for text, face in pieces:
        words = [text] if has_right_to_left(text) else re.findall(r"\s+|\S+", text)
        tokens += [_Token(word, face, _direction_of(word)) for word in words]
    _set_levels(tokens, base)
    for level in range(max(token.level for token in tokens), 0, -1):
        _reverse(tokens, level)
    line = []
    for token in tokens:
        is_mirrored = not token.direction and token.level % 2 == 1
        text = token.text[::-1].translate(_MIRRORED) if is_mirrored else token.text
        line.append((text, token.face))
    return line


def _direction_of(text: str) -> str:
    """Return the direction of a piece, as of `_Token`."""
    directions = [unicodedata.bidirectional(char) for char in text]
    for direction in directions:
        if direction in _STRONG:
            return "L" if direction == "L" else "R"
    return "number" if any(d in _NUMBERS for d in directions) else ""


def _set_levels(tokens: Sequence[_Token[F]], base: int) -> None:
    """Give each token its level in a line of this base: 0 from left to right, 1 from
    right to left.
    """
    before = _neighbours(tokens, ("L", "R"), base)
    after = _neighbours(tokens[::-1], ("L", "R"), base)[::-1]
    for token, left, right in zip(tokens, before, after, strict=True):
        is_within = left == right == "R"
        if token.direction == "R":
            token.level = 1
        elif token.direction == "L":
            token.level = 2 * base
        elif token.direction == "number":
            token.level = 2 if base or is_within else 0
    before = _neighbours(tokens, ("L", "R", "number"), base)
    after = _neighbours(tokens[::-1], ("L", "R", "number"), base)[::-1]
    for token, left, right in zip(tokens, before, after, strict=True):
        if token.direction:
            continue
        token.level = base
        if base and left == right == "L":
            token.level = 2
        elif not base and left == right == "R":
            token.level = 1


def _neighbours(
    tokens: Sequence[_Token[F]], directions: Sequence[str], base: int
) -> list[str]:
    """Return the direction on one side of each token, of the last of these; at the ends
    that of the line.

    A number counts as from right to left where it lies among such text.
    """
    seen = "R" if base else "L"
    sides = []
    for token in tokens:
        sides.append(seen)
        if token.direction == "number" and "number" in directions:
            seen = "R" if token.level == 2 else "L"
        elif token.direction in directions:
            seen = token.direction
    return sides


def _reverse(tokens: list[_Token[F]], level: int) -> None:
    """Reverse all stretches of this level and above."""
    start = 0
    while start < len(tokens):
        end = start
        while end < len(tokens) and tokens[end].level >= level:
            end += 1
        tokens[start:end] = tokens[start:end][::-1]
        start = end + 1
