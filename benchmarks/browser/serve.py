"""Run the command `serve` itself, and report its threads' ids.

`python -m benchmarks.browser.serve OPTION ...`

Commands: threads: {NAME: ID} of Python's threads, and the URL once it listens is in
what the command prints. `--at-once`: no picture is drawn in steps.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from benchmarks import harness
from splatview_viewer.app.commands import parse
from splatview_viewer.render.gl import renderer

AT_ONCE = "--at-once"
"""Option of this program alone: no picture is drawn in steps."""


class Threads:
    def do_threads(self) -> dict[str, Any]:
        return {"threads": {t.name: t.native_id for t in threading.enumerate()}}


def _obey() -> None:
    harness.serve_requests(Threads())
    os.kill(
        os.getpid(), signal.SIGTERM
    )  # standard input ended: end as a user would end it


def main() -> None:
    threading.Thread(target=_obey, name="benchmark", daemon=True).start()
    options = sys.argv[1:]
    if AT_ONCE in options:
        options.remove(AT_ONCE)
        renderer.STEPPED_FROM = sys.maxsize
    parse(["serve", *options]).execute()


if __name__ == "__main__":
    main()
