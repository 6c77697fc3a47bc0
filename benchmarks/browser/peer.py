"""The peer in the same run: viser in a process of its own, found by SPLATVIEW_PEER_PYTHON or in this Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu.clocks import until
from benchmarks.programs import ROOT, Program

PYTHON = os.environ.get("SPLATVIEW_PEER_PYTHON", sys.executable)


@dataclass(frozen=True)
class Kind:
    """A way to feed viser."""

    what: str
    options: dict[str, Any]
    extra: bool = False
    """Not the way that costs it least."""


def missing() -> str:
    """Why the peer cannot be measured; "" when it can."""
    done = subprocess.run([PYTHON, "-c", "import viser, numpy"], capture_output=True, text=True, cwd=ROOT)
    if done.returncode == 0:
        return ""
    why = (done.stderr.strip().splitlines() or ["?"])[-1]
    return f"{PYTHON}: {why}; name a Python that has viser in SPLATVIEW_PEER_PYTHON"


def _has_opencv() -> bool:
    return subprocess.run([PYTHON, "-c", "import cv2"], capture_output=True, cwd=ROOT).returncode == 0


def kinds() -> list[Kind]:
    """As OpenCV, where it has it, encodes, and as an installation of viser alone does."""
    plain = [Kind("uint8", {"values": "uint8", "opencv": False})]
    if not _has_opencv():
        return [*plain, Kind("float32", {"values": "float32", "opencv": False}, extra=True)]
    return [Kind("uint8", {"values": "uint8", "opencv": True}),
            Kind("float32", {"values": "float32", "opencv": True}, extra=True),
            Kind("uint8", {"values": "uint8", "opencv": False}, extra=True)]


def measure(options: dict[str, Any], warm: float, seconds: float) -> tuple[dict[str, Any], dict[str, Any], str]:
    """The client's report with "cpu_ms" of the server, its check, and what encodes."""
    with Program("benchmarks.browser.viser_server", json.dumps(options), python=PYTHON) as server:
        ready = server.answer(90)
        page_options = {"port": ready["port"], "size": options["size"], "viser": ready["version"]}
        with Program("benchmarks.browser.page", json.dumps(page_options)) as page:
            server.ask("feed")
            until("a first picture", lambda: page.ask("state")["pictures"] > 0, 30)
            time.sleep(warm)
            times = server.ask("report")["times"]
            page.ask("begin")
            time.sleep(seconds)
            told, report = server.ask("report"), page.ask("report")
            check = page.ask("check", base=options["base"], times=times + told["times"],
                             until=told["times"][-1][1], timeout=60)
    return {**report, "cpu_ms": told["cpu_ms"]}, check, ready["encoder"]
