"""Run the command `serve` itself, and report its threads' ids.

`python -m benchmarks.browser.serve OPTION ...`

Commands: threads: {NAME: ID} of Python's threads; works: how often the GPU was given
each work so far, by the work's name, and the milliseconds that all took; the URL once it
listens is in what the command prints. `--at-once`: no picture is drawn in steps.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from typing import Any

from benchmarks import harness
from splatview_viewer.app.commands import parse
from splatview_viewer.gpu.account import Account
from splatview_viewer.gpu.governor import Governor
from splatview_viewer.render.gl import renderer

AT_ONCE = "--at-once"
"""Option of this program alone: no picture is drawn in steps."""


class Insight:
    """Tells of the viewer what it does not tell by itself."""

    def __init__(self) -> None:
        self._gpu_works: Counter[str] = Counter()
        self._paid_ms = 0.0
        charge = Governor.charge
        pay = Account.pay

        def counted_charge(
            governor: Governor, work_key: tuple[object, ...], interface: str = ""
        ) -> None:
            self._gpu_works[str(work_key[0])] += 1
            charge(governor, work_key, interface)

        def counted_pay(account: Account, ms: float) -> None:
            self._paid_ms += ms
            pay(account, ms)

        Governor.charge = counted_charge  # type: ignore[method-assign]
        Account.pay = counted_pay  # type: ignore[method-assign]

    def do_threads(self) -> dict[str, Any]:
        return {"threads": {t.name: t.native_id for t in threading.enumerate()}}

    def do_works(self) -> dict[str, Any]:
        return {"works": dict(self._gpu_works), "paid_ms": self._paid_ms}


def _obey() -> None:
    harness.serve_requests(Insight())
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
