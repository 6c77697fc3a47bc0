"""Common parts of all kinds' rules: tables of tensors and of metadata, and their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
"""dtype and shape by name."""
Meta = Mapping[str, Any]
Rules = Mapping[str, tuple[Sequence[str], tuple[int | str, ...]]]
"""Legal dtypes and the shape by name; a letter or word means the same extent wherever it stands."""

INT64_MAX = 2**63 - 1
FLOAT_DTYPES = ("float16", "bfloat16", "float32", "float64")


def check_tensors(
    kind: str, tensors: Tensors, rules: Rules, needed: Sequence[str]
) -> dict[str, int]:
    """Return the extents by letter. Raises ValueError for tensors that are unknown, missing or of another form."""
    unknown = sorted(set(tensors) - set(rules))
    if unknown:
        raise ValueError(
            f"{kind} has no {', '.join(unknown)}; legal are {', '.join(rules)}"
        )
    missing = [name for name in needed if name not in tensors]
    if missing:
        raise ValueError(f"{kind} needs {', '.join(missing)}")
    extents: dict[str, int] = {}
    for name, (dtype, shape) in tensors.items():
        dtypes, pattern = rules[name]
        if (
            dtype not in dtypes
            or len(shape) != len(pattern)
            or not all(
                extents.setdefault(mark, extent) == extent
                if isinstance(mark, str)
                else mark == extent
                for mark, extent in zip(pattern, shape, strict=True)
            )
        ):
            wanted = ", ".join(str(extents.get(str(mark), mark)) for mark in pattern)
            raise ValueError(
                f"{name} is {dtype} of shape {shape}, not {' or '.join(dtypes)} of shape ({wanted})"
            )
    return extents


def check_extent(name: str, extent: int, maximum: int, minimum: int = 0) -> None:
    if not minimum <= extent <= maximum:
        raise ValueError(f"{extent} {name}; legal are {minimum} to {maximum}")


def check_meta(
    meta: Meta, rules: Mapping[str, tuple[type, float]], needed: Sequence[str] = ()
) -> None:
    """Check types (float: any number) and, of numbers, that they are from 0 to the most. Raises ValueError."""
    for name, (kind, most) in rules.items():
        if name not in meta and name not in needed:
            continue
        value = meta.get(name)
        fits = type(value) is kind or (kind is float and type(value) is int)
        if not fits or (kind is not str and not 0 <= value <= most):  # type: ignore[operator]
            if kind in (str, bool):
                legal = f"of type {kind.__name__}"
            else:
                legal = f"a number from 0 to {most}"
            raise ValueError(f"{name} is {value!r}, not {legal}")
