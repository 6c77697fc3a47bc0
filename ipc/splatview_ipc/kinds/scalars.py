"""Rules of numbers over the course of a training.

"rows" (R, 7), float64, at most SCALAR_ROWS: the rows of each series, the oldest first, in the order of SCALAR_COLUMNS;
those of series s end at "ends" (S,) int32, at most SCALAR_SERIES; "names" uint8, S texts, UTF-8, each ended by a zero
byte. meta "step": the newest step; "trouble": why there is less than there could be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from splatview_ipc.kinds import Spec

SCALAR_SERIES, SCALAR_ROWS, SCALAR_TEXT = 64, 1 << 16, 1 << 15
"""The most series of a frame, rows of all of them, and bytes of their names."""
SCALAR_COLUMNS = ("step", "time", "value", "low", "high", "count", "broken")
"""step, time (seconds since the epoch): of the last sample of a row. value: the mean of its finite samples, or the last
one if none is; low, high: their extremes, NaN if there are none. count: the samples of the row, broken: those of them
that are not finite."""


def check(tensors: Mapping[str, Spec], meta: Mapping[str, Any]) -> None:
    if set(tensors) != {"rows", "ends", "names"}:
        raise ValueError(f"scalars are 'rows', 'ends' and 'names', not {sorted(tensors)}")
    for name, wanted, most, tail in (("rows", "float64", SCALAR_ROWS, (len(SCALAR_COLUMNS),)),
                                     ("ends", "int32", SCALAR_SERIES, ()), ("names", "uint8", SCALAR_TEXT, ())):
        dtype, shape = tensors[name]
        if dtype != wanted or len(shape) != 1 + len(tail) or shape[1:] != tail or not 1 <= shape[0] <= most:
            raise ValueError(f"{name} are {dtype} of shape {shape}, not {wanted} of shape "
                             f"({', '.join([f'1 to {most}', *map(str, tail)])})")
    if not isinstance(meta.get("trouble", ""), str):
        raise ValueError(f"'trouble' is {meta['trouble']!r}, not of type str")
