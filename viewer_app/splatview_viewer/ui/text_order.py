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
_DIGITS = ("EN", "AN")
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
    """Return True if the first letter with a direction goes from right to left."""
    for char in text:
        direction = unicodedata.bidirectional(char)
        if direction in _STRONG:
            return direction in _RIGHT_TO_LEFT
    return False


def has_right_to_left(text: str) -> bool:
    """Return True if some letters of a text go from right to left."""
    return any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT for char in text)


def in_drawing_order(pieces: Sequence[tuple[str, F]]) -> list[tuple[str, F]]:
    """Order the pieces of a line, text and font, from left to right.

    Some are taken apart at spaces.
    """
    base = int(is_right_to_left("".join(text for text, _ in pieces)))
    tokens: list[_Token[F]] = []
    for text, face in pieces:
        if has_right_to_left(text):
            chunks = [text]
        else:
            chunks = re.findall(r"\s+|\S+", text)
        tokens += [_Token(chunk, face, _direction_of(chunk)) for chunk in chunks]
    _set_levels(tokens, base)
    for level in range(max(token.level for token in tokens), 0, -1):
        _reverse(tokens, level)
    line = []
    for token in tokens:
        text = token.text
        is_mirrored = not token.direction and token.level % 2 == 1
        if is_mirrored:
            text = text[::-1].translate(_MIRRORED)
        line.append((text, token.face))
    return line


def _direction_of(text: str) -> str:
    """Return the direction of a piece, as of `_Token`."""
    directions = [unicodedata.bidirectional(char) for char in text]
    for direction in directions:
        if direction in _STRONG:
            if direction == "L":
                return "L"
            return "R"
    if any(direction in _DIGITS for direction in directions):
        return "number"
    return ""


def _set_levels(tokens: Sequence[_Token[F]], base: int) -> None:
    """Set each token's level in a line of a base direction.

    The base is 0 for a line from left to right, 1 for one from right to left.
    """
    for token, left, right in _with_neighbours(tokens, ("L", "R"), base):
        is_within = left == right == "R"
        if token.direction == "R":
            token.level = 1
        elif token.direction == "L":
            token.level = 2 * base
        elif token.direction == "number":
            if base or is_within:
                token.level = 2
            else:
                token.level = 0
    for token, left, right in _with_neighbours(tokens, ("L", "R", "number"), base):
        if token.direction:
            continue
        token.level = base
        if base and left == right == "L":
            token.level = 2
        elif not base and left == right == "R":
            token.level = 1


def _with_neighbours(
    tokens: Sequence[_Token[F]], directions: Sequence[str], base: int
) -> list[tuple[_Token[F], str, str]]:
    """Return each token with the direction on its left and that on its right."""
    left = _neighbours(tokens, directions, base)
    right = _neighbours(tokens[::-1], directions, base)[::-1]
    return list(zip(tokens, left, right, strict=True))


def _neighbours(
    tokens: Sequence[_Token[F]], directions: Sequence[str], base: int
) -> list[str]:
    """Return the direction before each token: of the last one that has one of these.

    At the start it is that of the line. A number counts as from right to left where it
    lies among such text.
    """
    if base:
        direction = "R"
    else:
        direction = "L"
    sides = []
    for token in tokens:
        sides.append(direction)
        if token.direction == "number" and "number" in directions:
            if token.level == 2:
                direction = "R"
            else:
                direction = "L"
        elif token.direction in directions:
            direction = token.direction
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
