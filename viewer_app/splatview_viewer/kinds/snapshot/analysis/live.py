"""What is live at a moment, and how many bytes that are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from splatview_viewer.kinds.snapshot.model import Trace


def check_moment(trace: Trace, moment: int) -> int:
    """The moment, if the trace has it. Raises: ValueError."""
    if not 0 <= moment < trace.moments:
        raise ValueError(f"moment {moment} is not one of 0..{trace.moments - 1}, the moments of device {trace.device}")
    return moment


def live_mask(trace: Trace, moment: int) -> np.ndarray:
    """bool (A,): which allocations are live at a moment. Raises ValueError for one that the trace does not have."""
    check_moment(trace, moment)
    a = trace.allocations
    return (a.start < moment) & (a.end >= moment)


def live_ids(trace: Trace, moment: int) -> np.ndarray:
    """int32: the ids of what is live at a moment, in stacking order. Raises as `live_mask` does."""
    return np.flatnonzero(live_mask(trace, moment)).astype(np.int32)


def live_bytes(trace: Trace) -> np.ndarray:
    """int64 (M + 1,): the bytes live at each moment."""
    a = trace.allocations
    change = np.zeros(trace.moments + 1, np.int64)
    np.add.at(change, a.start.astype(np.intp) + 1, a.size)  # indices of any other type take twice as long
    np.subtract.at(change, a.end.astype(np.intp) + 1, a.size)
    return np.cumsum(change[:-1])


def peak_moment(trace: Trace) -> int:
    """The moment with most live bytes; the first of them."""
    return int(np.argmax(live_bytes(trace)))


def ids_of(trace: Trace, ids: np.ndarray | None) -> np.ndarray | slice:
    """What to index the arrays of allocations with: ids, a mask bool (A,), or all of them for None."""
    if ids is None:
        return slice(None)
    ids = np.asarray(ids)
    if ids.dtype == bool:
        if len(ids) != len(trace.allocations):
            raise ValueError(f"a mask of {len(ids)} is not one of {len(trace.allocations)} allocations")
        return np.flatnonzero(ids)
    return ids
