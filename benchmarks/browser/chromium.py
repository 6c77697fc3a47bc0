"""The page in a real Chromium, with a hand at its pointer, and what is drawn there by the page's own clock."""

from __future__ import annotations

import io
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.browser import marks, numbered
from benchmarks.browser.hand import way
from benchmarks.gpu import Skipped

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync")
PLACES = "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"
_SPY = """
(() => {
  // Listens at the page's WebSocket and at its canvas: which moment a picture tells of, and when it was drawn.
  const seen = window.benchmark = {moves: [], drawn: [], passed: 0};
  const told = new Map();
  let drawn = 0;  // when the last picture was drawn that has not been acknowledged; 0: none
  for (const [owner, name] of [[window.CanvasRenderingContext2D, 'drawImage'],
                               [window.ImageBitmapRenderingContext, 'transferFromImageBitmap']]) {
    const real = owner.prototype[name];
    owner.prototype[name] = function (...args) {
      const done = real.apply(this, args);
      drawn = performance.now();
      return done;
    };
  }
  const open = (data) => {
    const view = new DataView(data);
    if (view.getUint8(0) === 1) told.set(view.getUint32(4, true), [view.getFloat64(16, true), performance.now()]);
  };
  window.WebSocket = class extends window.WebSocket {
    constructor(...args) {
      super(...args);
      this.addEventListener('message', (event) => {
        if (event.data instanceof ArrayBuffer) open(event.data);
        else if (event.data instanceof Blob) event.data.slice(0, 32).arrayBuffer().then(open);
      });
    }
    send(data) {
      const message = JSON.parse(data);
      if (message.t === 'ack') {
        // One that gave way to a newer one is acknowledged as well, but was never drawn.
        if (drawn) seen.drawn.push([drawn, ...(told.get(message.number) || [0, drawn])]);
        else seen.passed += 1;
        drawn = 0;
        told.delete(message.number);
      } else if (message.t === 'move') seen.moves.push([message.at, performance.now()]);
      super.send(data);
    }
  };
})();
"""


def executable() -> str:
    """Raises Skipped where there is no Chromium, or no Playwright."""
    from pathlib import Path

    try:
        import playwright.sync_api  # noqa: F401
    except ImportError as e:
        raise Skipped(f"no Playwright here ({e})") from None
    found = next((place for place in PLACES if Path(place).exists()), None)
    if found is None:
        raise Skipped(f"no Chromium here: {', '.join(PLACES)}")
    return found


class Chromium:
    """One tab at an address, of this size, as a context manager."""

    def __init__(self, url: str, size: tuple[int, int]) -> None:
        from playwright.sync_api import sync_playwright

        self.size = size
        place = executable()
        self._playwright: Playwright = sync_playwright().start()
        self._browser: Browser = self._playwright.chromium.launch(executable_path=place, args=list(FLAGS))
        # The page allows no eval, by which Playwright evaluates.
        self.page: Page = self._browser.new_page(viewport={"width": size[0], "height": size[1]}, bypass_csp=True)
        self.page.add_init_script(_SPY)
        self.page.goto(url)
        self.page.wait_for_function("window.benchmark.drawn.length > 0", timeout=120_000)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *exc: object) -> None:
        self._browser.close()
        self._playwright.stop()

    def mark(self) -> tuple[float, float] | None:
        """Where the mark lies in what the tab shows."""
        try:
            return marks.find(self.pixels())
        except ValueError:
            return None

    def number(self) -> int:
        """The number of the picture that the tab shows; -1: none."""
        try:
            return numbered.read(self.pixels())
        except ValueError:
            return -1

    def rate(self, seconds: float) -> float:
        """Pictures drawn a second, for so long."""
        begin = self.page.evaluate("(benchmark.drawn.length = 0, performance.now())")
        time.sleep(seconds)
        count, end = self.page.evaluate("[benchmark.drawn.length, performance.now()]")
        return count / (end - begin) * 1e3

    def pixels(self) -> np.ndarray:
        """(H, W, 3) uint8: what the tab shows."""
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"))

    def drag(self, seconds: float, hz: float) -> tuple[int, int]:
        """Drag with the left button around the middle; how far it went in the end, in pixels."""
        x0, y0 = way(0, self.size)
        self.page.mouse.move(x0, y0)
        self.page.mouse.down()
        self.page.evaluate("benchmark.moves.length = benchmark.drawn.length = benchmark.passed = 0")
        begin = due = time.monotonic()
        step, x, y = 0, x0, y0
        while time.monotonic() < begin + seconds:
            step += 1
            x, y = way(step, self.size)
            self.page.mouse.move(x, y)
            due = max(due + 1 / hz, time.monotonic() - 0.05)
            time.sleep(max(due - time.monotonic(), 0))
        time.sleep(0.5)
        self.page.mouse.up()
        return x - x0, y - y0

    def latency(self) -> dict[str, Any]:
        """Of the last drag: ms from each move to the first picture drawn that tells of it; pictures drawn a second."""
        told = self.page.evaluate("window.benchmark")
        drawn, latencies, i = told["drawn"], [], 0
        for at, _ in told["moves"][10:]:
            while i < len(drawn) and drawn[i][1] < at:
                i += 1
            if i == len(drawn):
                raise RuntimeError(f"no picture tells of the move at {at:.1f} ms, of {len(drawn)}")
            latencies.append(drawn[i][0] - at)
        if not latencies:
            raise RuntimeError(f"the page sent {len(told['moves'])} moves")
        sent = dict(map(tuple, told["moves"]))
        own = [(sent[at] - at, came - sent[at], t - came) for t, at, came in drawn if at in sent]
        during = [t for t, *_ in drawn if t <= told["moves"][-1][0]]
        return {"latencies": latencies, "pictures": len(drawn), "passed": told["passed"],
                "parts": [statistics.median(part) for part in zip(*own, strict=True)],
                "per_s": (len(during) - 1) / max(during[-1] - during[0], 1) * 1e3}
