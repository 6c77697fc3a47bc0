"""Values and their types as error messages name them."""

from __future__ import annotations

from typing import Any


def type_text(value: Any) -> str:
    """Return a value's type with its article for an error message, such as "an int"."""
    if value is None:
        return "None"
    name = type(value).__name__
    starts_with_vowel = name[0].lower() in "aeiou" or name == "ndarray"
    article = "an" if starts_with_vowel else "a"
    return f"{article} {name}"


def short_repr(value: Any) -> str:
    """Return a value for an error message, on one line."""
    text = " ".join(repr(value).split())
    if len(text) > 60:
        text = text[:57] + "..."
    return text
