"""Scripts of the page as browsers get them: without comments and indentation."""

from __future__ import annotations

import re

_STRING = r""" "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' | `(?:[^`\\]|\\.)*` """
_REGEX = (
    r""" (?<=[(,=:|&!?\s]) / (?![*/\s]) (?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+ / """
)
_COMMENT = r""" /\*.*?\*/ | //[^\n]* """
_TOKEN = re.compile(f"(?P<kept>{_STRING}|{_REGEX})|{_COMMENT}", re.DOTALL | re.VERBOSE)


def script_to_serve(text: str) -> str:
    """Return a script without its comments, indentation and empty lines.

    What looks like a comment inside a string or a regular expression stays. No text of
    several lines may stand between backquotes.
    """
    code = _TOKEN.sub(_kept, text)
    lines = [line.strip() for line in code.splitlines()]
    return "\n".join(line for line in lines if line)


def _kept(match: re.Match[str]) -> str:
    return match["kept"] or " "
