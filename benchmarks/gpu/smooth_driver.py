"""As `driver`, with smooth motion on or off as SPLATVIEW_BENCH_SMOOTH says, 1 or 0."""

from __future__ import annotations

import os

from benchmarks.gpu.driver import main
from viewer_app.state import GaussianSettings

VARIABLE = "SPLATVIEW_BENCH_SMOOTH"

if __name__ == "__main__":
    before = GaussianSettings.__init__

    def made(self: GaussianSettings, *args: object, **more: object) -> None:
        before(self, *args, **more)  # type: ignore[arg-type]
        self.reproject = os.environ[VARIABLE] == "1"

    GaussianSettings.__init__ = made  # type: ignore[method-assign]
    main()
