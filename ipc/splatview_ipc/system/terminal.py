"""Text of other processes on its way to a terminal or into UTF-8."""

from __future__ import annotations

import unicodedata


def printable(text: object, keep: str = "") -> str:
    r"""Return `text` with every character that a terminal obeys or hides as Python escapes it, except those in `keep`.

    These are control characters, ends of lines, directional marks, zero-width characters and lone surrogates: `\x1b`,
    `\n`, `\u202e`. Unusual spaces become plain ones. For names and messages of other processes.
    """
    given = str(text)
    if given.isprintable():
        return given
    return "".join(
        c
        if c.isprintable() or c in keep
        else " "
        if unicodedata.category(c) == "Zs"
        else c.encode("unicode_escape").decode()
        for c in given
    )


def printable_lines(text: object) -> str:
    """Return `text` as `printable` does, but keep ends of lines and tabs."""
    return printable(text, "\n\r\t")


def without_surrogates(text: str) -> str:
    """Return `text` with U+FFFD in place of each lone surrogate, as bytes that are not UTF-8 appear in `os.environ`."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
