"""Parameters of tests, some of which only show again, for longer, what the others show."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def exhaustive(*values: Any, id: str | None = None) -> Any:
    """Parameters of a test that only `make test-all` runs; `id` as of `pytest.param`."""
    return pytest.param(*values, id=id, marks=pytest.mark.exhaustive)


def with_exhaustive(cases: Mapping[str, Any] | Iterable[str], *names: str) -> list[Any]:
    """Parameters from cases by name, or from the names alone; those of `names` are exhaustive."""
    table = cases if isinstance(cases, Mapping) else {name: name for name in cases}
    if unknown := [name for name in names if name not in table]:
        raise ValueError(f"no case {unknown[0]!r}; the cases are {', '.join(table)}")
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), id=name,
                         marks=[pytest.mark.exhaustive] if name in names else [])
            for name, case in table.items()]


def one_at_a_time(*axes: Sequence[Any]) -> list[Any]:
    """Parameters for every combination of values. Only those with one value at most that is not the first of its axis
    are quick, which are enough to show every value."""
    return [pytest.param(*values, marks=[pytest.mark.exhaustive] if
                         sum(value is not axis[0] for value, axis in zip(values, axes, strict=True)) > 1 else [])
            for values in itertools.product(*axes)]
