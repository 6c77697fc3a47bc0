"""Metadata: what travels beside the tensors."""

from __future__ import annotations

import re
from typing import Any

from splatview_ipc.kinds.gaussians import SH_DEGREE
from splatview_ipc.kinds.rules import check_meta

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
_legal: set[str] = set()
"""Keys that were found legal: a set is faster than the expression."""
_MOST_KEYS = 1000


def checked(meta: dict[str, Any]) -> dict[str, Any]:
    """Metadata with every value of a type that travels. Raises TypeError or ValueError."""
    for key, value in meta.items():
        if key not in _legal:
            _check_key(key)
        kind = type(value)
        if kind is int:
            if not -(2**63) < value < 2**63:
                raise ValueError(f"{key}={value} does not fit 64 bits")
            continue
        if kind is float or kind is bool:
            continue
        if kind is str and len(value) <= 1024:
            check_text(value, key)
            continue
        meta = {**meta, key: _converted(key, value)}
    check_meta(meta, SH_DEGREE)
    if len(meta) > 24 or "color" in meta:
        raise ValueError(f"metadata {', '.join(meta)}: at most 24 entries, none named color")
    return meta


def check_tensor(value: Any, what: str) -> None:
    """As `splatview.adapters.tensors.check_values`, which needs torch: a tensor has loaded it."""
    if hasattr(type(value), "__torch_function__"):
        from splatview.adapters.tensors import check_values

        check_values(value, what)


def _check_key(key: str) -> None:
    """Raise ValueError for a key that viewers do not accept."""
    if _KEY.fullmatch(key) is None:
        raise ValueError(f"metadata is called {key[:60]!r}; legal are up to 40 letters from a to z, digits and '_', "
                         "the first no digit")
    if len(_legal) < _MOST_KEYS:
        _legal.add(key)


def _converted(key: str, value: Any) -> Any:
    """A metadata value that is not a plain Python number or text."""
    if isinstance(value, str):
        raise ValueError(f"{key} is a text of {len(value)} characters; at most 1024 travel")
    if isinstance(value, (tuple, list)) and len(value) <= 16 and all(type(v) in (int, float) for v in value):
        return tuple(map(float, value))
    check_tensor(value, key)
    item = getattr(value, "item", None)  # NumPy scalars, tensors of one element
    if callable(item) and getattr(value, "ndim", 0) == 0:
        value = item()
        if type(value) in (bool, int, float):
            return value
    raise TypeError(f"{key} is a {type(value).__name__}; metadata can be bool, int, float, str or up to 16 floats")


def check_text(text: str, what: str) -> None:
    """Raise ValueError for a text that UTF-8 cannot hold. `what` begins the message."""
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise ValueError(f"{what} is {text[:60]!r}, whose character {e.start} is half of a surrogate pair; legal is "
                         "what UTF-8 can hold: text.encode('utf-8', 'replace').decode() has '?' there") from None
