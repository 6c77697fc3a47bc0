"""Other programs that work for this one: `python -m splatview_viewer.memory...`."""

from __future__ import annotations

from splatview_ipc.system import child_program


def environment(**more: str) -> dict[str, str]:
    """Return the environment for another Python that computes in one thread; `more` beside that."""
    return child_program.environment(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", **more)
