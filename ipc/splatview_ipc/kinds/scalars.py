"""Rules for the frames of numbers over the course of a training.

Tensors:

rows     (R, 7) float64, at most SCALAR_ROWS: the rows of each series, the oldest first,
         with the columns SCALAR_COLUMNS
ends     (S,) int32, at most SCALAR_SERIES: for each series the index after its last row
names    uint8, S texts, UTF-8, each ended by a zero byte

Metadata:

step     the newest step
trouble  why less is published than could be
"""

from __future__ import annotations

from splatview_ipc.kinds.rules import (
    Meta,
    Rules,
    Tensors,
    check_extent,
    check_meta,
    check_tensors,
)

SCALAR_SERIES = 64
"""The maximum number of series of a frame."""
SCALAR_ROWS = 1 << 16
"""The maximum number of rows of all series."""
SCALAR_TEXT = 1 << 15
"""The maximum number of bytes of their names."""
SCALAR_COLUMNS = ("step", "time", "value", "low", "high", "count", "broken")
"""step, time (seconds since the epoch): of the last sample of a row. value: the mean of
its finite samples, or the last one if none is; low, high: their extremes, NaN if none
is finite. count: the samples of the row, broken: those of them that are not finite."""

_TENSOR_RULES: Rules = {
    "rows": (("float64",), ("rows", len(SCALAR_COLUMNS))),
    "ends": (("int32",), ("series",)),
    "names": (("uint8",), ("bytes of names",)),
}


def check(tensors: Tensors, meta: Meta) -> None:
    """Raise ValueError unless tensors and metadata make a frame of scalars."""
    extents = check_tensors(
        "a frame of scalars", tensors, _TENSOR_RULES, tuple(_TENSOR_RULES)
    )
    check_extent("rows", extents["rows"], SCALAR_ROWS, 1)
    check_extent("series", extents["series"], SCALAR_SERIES, 1)
    check_extent("bytes of names", extents["bytes of names"], SCALAR_TEXT, 1)
    check_meta(meta, {"trouble": (str, 0)})
