"""As `driver`, with smooth motion off or on as SPLATVIEW_BENCH_SMOOTH says: 0 or 1."""

from __future__ import annotations

import os

from benchmarks.gpu.driver import main
from splatview_viewer.core.settings import GaussianSettings

VARIABLE = "SPLATVIEW_BENCH_SMOOTH"

if __name__ == "__main__":
    before = GaussianSettings.__init__

    def made(self: GaussianSettings, *args: object, **more: object) -> None:
        before(self, *args, **more)  # type: ignore[arg-type]
        self.reproject = os.environ[VARIABLE] != "0"

    GaussianSettings.__init__ = made  # type: ignore[method-assign]
    main()
