"""Text of other processes on its way to a terminal or into UTF-8."""

from __future__ import annotations

import unicodedata


def printable(text: object, keep: str = "") -> str:
    r"""Escape every character of a text that a terminal obeys or hides.

    These are control characters, ends of lines, directional marks, zero-width
    characters and lone surrogates. They are written as in Python: `\x1b`, `\n`,
    `\u202e`. Unusual spaces become plain ones. For names and messages of other
    processes.

    Args:
        text: any object, of which the text is printed.
        keep: characters that are not escaped.
    """
    original = str(text)
    if original.isprintable():
        return original
    return "".join(_escape(character, keep) for character in original)


def _escape(character: str, keep: str) -> str:
    if character.isprintable() or character in keep:
        return character
    if unicodedata.category(character) == "Zs":
        return " "
    return character.encode("unicode_escape").decode()


def printable_lines(text: object) -> str:
    """Escape a text as `printable` does, but keep ends of lines and tabs."""
    return printable(text, "\n\r\t")


def without_surrogates(text: str) -> str:
    """Replace each lone surrogate of a text by U+FFFD.

    Surrogates stand for bytes that are not UTF-8, for example in `os.environ`.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
