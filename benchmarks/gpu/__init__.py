"""What the benchmarks on a GPU share: the load, the scenes, the viewer with a user at it, clocks.

The viewer is always the program that a user starts (`splatview serve`), in a process of its own, with its own defaults
unless a line of a table says otherwise. `driver` only counts at its screen and lays a hand on the mouse.
"""

from __future__ import annotations

import sys
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Rows = list[dict[str, str]]


class Skipped(Exception):  # noqa: N818  (not an error: nothing can be measured here)
    """This benchmark cannot run on this machine; the text says why."""


def require_gpu() -> None:
    """Raises Skipped where torch sees no CUDA device."""
    import torch

    if not torch.cuda.is_available():
        raise Skipped("needs an NVIDIA GPU that torch can use; this machine has none")
    torch.cuda.init()


def tried(what: str, measure: Callable[[], Rows]) -> Rows:
    """The lines that `measure` gives, shown on standard error as they come; when it fails, one line that says how.

    A machine with a GPU is lent for minutes: what one measurement got wrong must not cost the others. A line with an
    entry "failed" makes `python -m benchmarks` end with 1, and is not saved.
    """
    try:
        rows = measure()
    except Skipped:
        raise
    except Exception as e:
        traceback.print_exc()
        rows = [{"what": what, "failed": f"{type(e).__name__}: {e}"[:300].replace("\n", " ").replace("|", "/")}]
    for row in rows:
        print("  " + "; ".join(f"{k}: {v}" for k, v in row.items() if v), file=sys.stderr, flush=True)
    return rows
