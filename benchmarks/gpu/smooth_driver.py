"""As `driver`, with smooth motion off or on as SPLATVIEW_BENCH_SMOOTH says: 0 or 1."""

from __future__ import annotations

import os

from benchmarks.gpu.driver import main
from splatview_viewer.kinds.gaussians.state import GaussianState

VARIABLE = "SPLATVIEW_BENCH_SMOOTH"

if __name__ == "__main__":
    before = GaussianState.__init__

    def made(self: GaussianState, *args: object, **more: object) -> None:
        before(self, *args, **{"smooth": os.environ[VARIABLE] != "0", **more})  # type: ignore[arg-type]

    GaussianState.__init__ = made  # type: ignore[method-assign]
    main()
