"""Common parts of all kinds' rules: tables of tensors and metadata, their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
"""dtype and shape by name."""
Meta = Mapping[str, Any]
Rules = Mapping[str, tuple[Sequence[str], tuple[int | str, ...]]]
"""Legal dtypes and the shape by name; a letter or word is the same extent in all
shapes."""
MetaRules = Mapping[str, tuple[type, float]]
"""Type (float: any number) and, of numbers, the maximum by name."""

INT64_MAX = 2**63 - 1
FLOAT_DTYPES = ("float16", "bfloat16", "float32", "float64")


def check_tensors(
    kind: str, tensors: Tensors, rules: Rules, needed: Sequence[str]
) -> dict[str, int]:
    """Return the extents by letter or word.

    Raises ValueError for tensors that are unknown, missing or of another form.

    Args:
        kind: the frame, for users: "an overlay".
        tensors: the tensors of the frame.
        rules: the rules of the tensors that there may be.
        needed: names of those that there must be.
    """
    unknown = sorted(set(tensors) - set(rules))
    if unknown:
        expected = ", ".join(rules)
        raise ValueError(f"{kind} has no {', '.join(unknown)}; expected {expected}")
    missing = [name for name in needed if name not in tensors]
    if missing:
        raise ValueError(f"{kind} needs {', '.join(missing)}")
    extents: dict[str, int] = {}
    for name, (dtype, shape) in tensors.items():
        dtypes, pattern = rules[name]
        if dtype not in dtypes or not _match_shape(shape, pattern, extents):
            expected = [str(extents.get(str(symbol), symbol)) for symbol in pattern]
            raise ValueError(
                f"{name} is {dtype} of shape {shape}, not {' or '.join(dtypes)} of shape "
                f"({', '.join(expected)})"
            )
    return extents


def _match_shape(
    shape: tuple[int, ...], pattern: tuple[int | str, ...], extents: dict[str, int]
) -> bool:
    """Return whether a shape has this pattern; add the extents that are new to it."""
    if len(shape) != len(pattern):
        return False
    for symbol, extent in zip(pattern, shape, strict=True):
        expected: int | str = symbol
        if isinstance(symbol, str):
            expected = extents.setdefault(symbol, extent)
        if expected != extent:
            return False
    return True


def check_extent(name: str, extent: int, maximum: int, minimum: int = 0) -> None:
    if not minimum <= extent <= maximum:
        raise ValueError(f"{extent} {name}; expected {minimum} to {maximum}")


def check_meta(meta: Meta, rules: MetaRules, needed: Sequence[str] = ()) -> None:
    """Check types and, of numbers, that they are from 0 to the maximum.

    Metadata without a rule is allowed. Raises ValueError.

    Args:
        meta: the metadata of the frame.
        rules: by name.
        needed: names that there must be.
    """
    for name, (kind, maximum) in rules.items():
        if name not in meta and name not in needed:
            continue
        value = meta.get(name)
        is_number = kind not in (str, bool)
        is_of_type = type(value) is kind or (kind is float and type(value) is int)
        if is_of_type and (not is_number or 0 <= value <= maximum):  # type: ignore[operator]
            continue
        expected = f"of type {kind.__name__}"
        if is_number:
            expected = f"a number from 0 to {maximum}"
        raise ValueError(f"{name} is {value!r}, not {expected}")
