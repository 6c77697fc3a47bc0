"""Texts of a snapshot in documents: what others wrote there stays text."""

from __future__ import annotations

import html
import json
import re
from typing import Any

MAX_TEXT = 2000
"""Letters of one text that a document has at most."""
_ILLEGAL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff"
    r"\u202a-\u202e\u2066-\u2069]"
)
"""Characters that XML forbids, and those that turn the direction of what follows."""


def legal(text: str) -> str:
    """Return a text of bounded length without what XML forbids."""
    return _ILLEGAL.sub("?", text[:MAX_TEXT])


def escaped(text: str) -> str:
    """Return a text for an element or an attribute of HTML or SVG."""
    return html.escape(legal(text))


def script_json(value: Any) -> str:
    """Return JSON for a script element, which no text in it can end.

    Texts in the value must be `legal`.
    """
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    # "</script>" and "<!--" begin with this character.
    return text.replace("<", "\\u003c")
