"""Metadata: what travels beside the tensors."""

from __future__ import annotations

from typing import Any


def checked(meta: dict[str, Any]) -> dict[str, Any]:
    """Metadata with every value of a type that travels. Raises TypeError or ValueError."""
    for key, value in meta.items():
        kind = type(value)
        if kind is int:
            if not -(2**63) < value < 2**63:
                raise ValueError(f"{key}={value} does not fit 64 bits")
            continue
        if kind is float or kind is bool or (kind is str and len(value) <= 1024):
            continue
        meta = {**meta, key: _converted(key, value)}
    if "sh_degree" in meta and meta["sh_degree"] not in (0, 1, 2, 3):
        raise ValueError(f"sh_degree is {meta['sh_degree']!r}, not 0, 1, 2 or 3")
    if len(meta) > 24 or "color" in meta:
        raise ValueError(f"metadata {', '.join(meta)}: at most 24 entries, none named color")
    return meta


def _converted(key: str, value: Any) -> Any:
    """A metadata value that is not a plain Python number or text."""
    if isinstance(value, str):
        raise ValueError(f"{key} is a text of {len(value)} characters; at most 1024 travel")
    if isinstance(value, (tuple, list)) and len(value) <= 16 and all(type(v) in (int, float) for v in value):
        return tuple(map(float, value))
    item = getattr(value, "item", None)  # NumPy scalars, tensors of one element
    if callable(item) and getattr(value, "ndim", 0) == 0:
        value = item()
        if type(value) in (bool, int, float):
            return value
    raise TypeError(f"{key} is a {type(value).__name__}; metadata can be bool, int, float, str or up to 16 floats")
