"""Text of other processes on its way to a terminal, and standard streams that survive what happens to them."""

from __future__ import annotations

import io
import os
import re
import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_DOUBTFUL = re.compile("[^\t\n\r -~]")
_STYLE_OR_DOUBTFUL = re.compile("(\x1b\\[[0-9;]*[mK])|[^\t\n\r -~]")
"""The group: sequences that only change colours or clear a line. Programs here send no others to a terminal."""


def printable(text: object) -> str:
    r"""Return `text` on one line, with every character that a terminal obeys or hides as Python escapes it.

    These are control characters, ends of lines, directional marks, zero-width characters and lone surrogates: `\x1b`,
    `\n`, `\u202e`. Unusual spaces become plain ones. For names and messages of other processes.
    """
    given = str(text)
    return given if given.isprintable() else "".join(map(_shown, given))


def printable_lines(text: object) -> str:
    """Return `text` as `printable` does, but keep ends of lines and tabs."""
    return _DOUBTFUL.sub(lambda found: _shown(found[0]), str(text))


def without_surrogates(text: str) -> str:
    """Return `text` with U+FFFD in place of each lone surrogate, as bytes that are not UTF-8 appear in `os.environ`."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def check_text(text: str, what: str) -> None:
    """Raise ValueError for a text that UTF-8 cannot hold. `what` begins the message."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise ValueError(f"{what} is {text[:60]!r}, whose character {e.start} is half of a surrogate pair; legal is "
                         "what UTF-8 can hold: text.encode('utf-8', 'replace').decode() has '?' there") from None


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return " " if unicodedata.category(character) == "Zs" else character.encode("unicode_escape").decode()


class _Descriptor(io.FileIO):
    """A descriptor that stays open, and the first fault of writing to it."""

    fault: OSError | None = None
    silent = False

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as e:
            self.fault = self.fault or e
            if self.silent:
                return len(data)
            raise


class Output(io.TextIOWrapper):
    """Standard output or standard error of a program. Any text can be written to it.

    Args:
        number: the descriptor, 1 or 2.
        like: what Python made of it; None where it was closed when the program began.
        tame: whether to escape what a terminal obeys, colours excepted.
        silent: whether to drop what cannot be written. Otherwise writing raises OSError.
    """

    def __init__(self, number: int, like: Any, *, tame: bool, silent: bool) -> None:
        self._raw = _Descriptor(number, "w", closefd=False)
        self._raw.silent = silent
        at_once = getattr(like, "line_buffering", silent) or getattr(like, "write_through", False)
        super().__init__(io.BufferedWriter(self._raw), getattr(like, "encoding", "utf-8"), "backslashreplace",
                         line_buffering=at_once)
        self._styled = self.isatty()
        self._tame = tame or self._styled

    @property
    def fault(self) -> OSError | None:
        """Why it could not be written, the first time; None while it could."""
        return self._raw.fault

    def write(self, text: str, /) -> int:
        if self._tame:
            text = _STYLE_OR_DOUBTFUL.sub(self._tamed, text)
        return super().write(text)

    def _tamed(self, found: re.Match[str]) -> str:
        return found[0] if found[1] and self._styled else "".join(map(_shown, found[0]))


def open_if_closed(number: int, mode: int) -> None:
    """Put the null device in the place of a standard descriptor that is closed.

    Otherwise the next file or socket gets its number, and what libraries print goes there. With the wrong `mode`
    reading or writing fails as it does on a closed one.
    """
    try:
        os.fstat(number)
    except OSError:
        opened = os.open(os.devnull, mode)
        if opened == number:
            os.set_inheritable(number, True)
        else:
            os.dup2(opened, number)
            os.close(opened)
