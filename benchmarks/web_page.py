"""Measure what the page of a viewer costs in Chromium: bytes on the line, and time.

1600x1000; a training publishes a ball of Gaussians twice a second. Bytes are all that
the page's WebSocket receives; times are the page's own, from an event to the picture
that shows it. Needs playwright and a Chromium, named by SPLATVIEW_TEST_CHROMIUM.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.harness import Program, Skipped, percentile, tried, wait_until
from benchmarks.web import page_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

SIZE = (1600, 1000)
GAUSSIANS = 30_000
HZ = 2.0
"""Versions that are published in a second."""
SECONDS = 8.0
FIELD = (276, 797)
"""The slider "Field of view", which Ctrl and a click make a field."""
_COUNT_BYTES = """
window.received = 0;
const Real = WebSocket;
window.WebSocket = class extends Real {
  set onmessage(handle) {
    super.onmessage = (event) => {
      const {data} = event;
      window.received += typeof data === "string" ? data.length : data.byteLength;
      handle(event);
    };
  }
};
"""


@dataclass(frozen=True)
class Measured:
    """Holds what the page saw within one scenario."""

    seconds: float
    received_bytes: int
    pictures: int
    latencies_ms: list[float]
    cpu_s: float

    def row(self, title: str) -> dict[str, str]:
        latencies = self.latencies_ms
        p50 = ""
        p95 = ""
        if latencies:
            p50 = f"{percentile(latencies, 0.5):.0f}"
            p95 = f"{percentile(latencies, 0.95):.0f}"
        return {
            "what": title,
            "KB/s": f"{self.received_bytes / self.seconds / 1e3:.0f}",
            "pictures/s": f"{self.pictures / self.seconds:.1f}",
            "KB per picture": f"{self.received_bytes / max(self.pictures, 1) / 1e3:.0f}",
            "p50 ms": p50,
            "p95 ms": p95,
            "viewer, % of a core": f"{self.cpu_s / self.seconds * 100:.0f}",
        }


def run() -> list[dict[str, str]]:
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        raise Skipped("playwright is not installed") from None
    return tried("a page in Chromium", _measure)


def _measure() -> list[dict[str, str]]:
    chromium = os.environ.get("SPLATVIEW_TEST_CHROMIUM") or shutil.which(
        "chromium-headless-shell"
    )
    if chromium is None:
        raise Skipped("no Chromium")
    with tempfile.TemporaryDirectory() as folder:
        # No other run of this machine is seen.
        env = {"SPLATVIEW_RUNTIME_DIR": folder}
        return _measure_in(chromium, env)


def _measure_in(chromium: str, env: dict[str, str]) -> list[dict[str, str]]:
    from playwright.sync_api import sync_playwright

    options = ("--web", "--port", "0")
    with (
        Program("benchmarks.browser.publisher", "cpu", env=env) as publisher,
        Program("benchmarks.browser.serve", *options, env=env) as viewer,
        sync_playwright() as playwright,
    ):
        publisher.request("training", gaussians=GAUSSIANS, hz=HZ, timeout=60)
        address = json.loads(page_of(viewer, SIZE))
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.add_init_script(_COUNT_BYTES)
        page.goto(f"http://127.0.0.1:{address['port']}/?token={address['token']}")
        wait_until(
            "a first picture",
            lambda: page.evaluate("splatview.state().frames") > 3,
            meanwhile=lambda: page.wait_for_timeout(50),
        )
        page.wait_for_timeout(6000)
        rows = [
            _watched(page, viewer.pid, _wait).row("still, a training runs"),
            _watched(page, viewer.pid, _drag).row("drag, a training runs"),
            _watched(page, viewer.pid, _type).row("typing, a training runs"),
        ]
        publisher.request("training", gaussians=GAUSSIANS, hz=0.0, timeout=60)
        page.wait_for_timeout(4000)
        rows += [
            _watched(page, viewer.pid, _drag).row("drag, nothing runs"),
            _watched(page, viewer.pid, _hover).row("over the panel, nothing runs"),
            _watched(page, viewer.pid, _type).row("typing, nothing runs"),
        ]
        browser.close()
        return rows


def _watched(page: Page, pid: int, act) -> Measured:
    """Do something for SECONDS, and return what the page saw meanwhile."""
    page.wait_for_timeout(1500)
    cpu = _cpu(pid)
    started_at = time.monotonic()
    state_before = page.evaluate(
        "({bytes: received, frames: splatview.state().frames})"
    )
    latencies: list[float] = []
    step = 0
    while time.monotonic() < started_at + SECONDS:
        act(page, step, time.monotonic() - started_at)
        step += 1
        ms = page.evaluate("splatview.state().latencyMs")
        if ms is not None:
            latencies.append(ms)
    state_after = page.evaluate("({bytes: received, frames: splatview.state().frames})")
    seconds = time.monotonic() - started_at
    page.mouse.up()
    # The first press leaves a field.
    page.mouse.click(900, 500)
    return Measured(
        seconds,
        state_after["bytes"] - state_before["bytes"],
        state_after["frames"] - state_before["frames"],
        latencies,
        _cpu(pid) - cpu,
    )


def _wait(page: Page, step: int, now: float) -> None:
    page.wait_for_timeout(100)


def _drag(page: Page, step: int, now: float) -> None:
    """Turn the scene, some 50 moves a second."""
    if step == 0:
        page.mouse.move(900, 500)
        page.mouse.down()
    page.mouse.move(900 + 200 * math.sin(now), 500 + 60 * math.sin(2 * now))
    page.wait_for_timeout(15)


def _hover(page: Page, step: int, now: float) -> None:
    """Move over the rows of the panel."""
    page.mouse.move(200, 600 + 150 * math.sin(2 * now))
    page.wait_for_timeout(30)


def _type(page: Page, step: int, now: float) -> None:
    """Write into a field, eight characters a second."""
    if step == 0:
        page.keyboard.down("Control")
        page.mouse.move(*FIELD)
        page.mouse.down()
        page.mouse.up()
        page.keyboard.up("Control")
        page.wait_for_timeout(1500)
    page.keyboard.press("Backspace" if step % 2 else "4")
    page.wait_for_timeout(120)


def _cpu(pid: int) -> float:
    """Return the processor seconds of a program until now."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
