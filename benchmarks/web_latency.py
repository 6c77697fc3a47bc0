"""From an input on the page to the picture that shows it: p50 and p95 over the moves of a drag, 60 a second.

"in Chromium" is a real, headless Chromium with real pointer events: from the moment of the page's event to the canvas
being drawn with the first picture that tells of it, by the page's own clock; where the mark in the image lies in a
screenshot in the end must be where the drag has put it. "of which": until the event was sent, until the picture was
received, until it was drawn (medians of the pictures, which are fewer than the moves). "without a browser" a process of
our own stands for the page: from sending the event to the picture received and decoded; there the mark in the pictures
(of a scene: that it looks otherwise) is held against the event that each tells of. Machines without a Chromium have the
second alone.
"""

from __future__ import annotations

import math
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.browser.chromium import Chromium, executable
from benchmarks.gpu import Skipped, tried
from benchmarks.gpu.clocks import percentile, until
from benchmarks.programs import Program
from benchmarks.web import Address, address, base_picture

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS, HZ = 5.0, 60.0


@dataclass(frozen=True)
class Case:
    what: str
    size: tuple[int, int]
    gaussians: int = 0
    """0: an image."""
    target: str = "p50 50 ms"


ON_CPU = (Case("image", (1920, 1080)), Case("image", (1280, 720)),
          Case("10,000 Gaussians on the CPU", (1280, 720), 10_000, ""))
ON_GPU = (Case("image", (1920, 1080)), Case("1,000,000 Gaussians", (1920, 1080), 1_000_000))


def run() -> list[dict[str, str]]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in ON_GPU if device == "cuda" else ON_CPU:
            rows += _measure(device, Path(folder), case)
    return rows


def _measure(device: str, folder: Path, case: Case) -> list[dict[str, str]]:
    rows = []
    for how, measure in {"in Chromium": _in_chromium, "without a browser": _without}.items():
        def one(measure: Callable[[Address, Case], dict[str, str]] = measure) -> list[dict[str, str]]:
            with _shown(device, folder, case) as place:
                return [measure(place, case)]

        rows += tried(f"{case.what}, {how}", one)
    return rows


@contextmanager
def _shown(device: str, folder: Path, case: Case) -> Iterator[Address]:
    """A viewer that serves it; its address."""
    with (Program("benchmarks.browser.publisher", device) as publisher,
          Program("benchmarks.browser.serve", "--web") as viewer):
        if case.gaussians:
            publisher.ask("scene", gaussians=case.gaussians, timeout=60)
        else:
            publisher.ask("still", base=base_picture(folder, case.size), size=case.size, timeout=60)
        yield address(viewer)


def _centred(mark: Any, size: tuple[int, int]) -> bool:
    return mark is not None and math.hypot(mark[0] - size[0] / 2, mark[1] - size[1] / 2) < 2


def _filled(press: Callable[[], object], mark: Callable[[], Any], case: Case) -> None:
    """Take the panel away, so that the picture fills the page."""
    press()
    if case.gaussians:
        time.sleep(2)
        return
    until(f"the mark in the middle, not at {mark()}", lambda: _centred(mark(), case.size), 30)


def _in_chromium(place: Address, case: Case) -> dict[str, str]:
    try:
        executable()
    except Skipped as e:
        return {"what": f"{case.what}, in Chromium: not measured: {e}"}
    with Chromium(place.url, case.size) as tab:
        _filled(lambda: tab.page.keyboard.press("h"), tab.mark, case)
        before = tab.pixels()
        dx, dy = tab.drag(SECONDS, HZ)
        measured = tab.latency()
        if case.gaussians:
            off = ""
            if abs(tab.pixels().astype(int) - before).mean() < 0.2:
                raise RuntimeError("the page looks as it did before the drag")
        else:
            off = _off(tab, dx, dy)
    return _row(f"{case.what}, in Chromium", case, measured, off or "it looks otherwise than before")


def _off(tab: Chromium, dx: int, dy: int) -> str:
    """How far from where it should be the mark comes to lie."""
    x, y = (n / 2 + d for n, d in zip(tab.size, (dx, dy), strict=True))
    seen: list[tuple[float, float] | None] = [None]

    def there() -> bool:
        seen[0] = tab.mark()
        return seen[0] is not None and math.hypot(seen[0][0] - x, seen[0][1] - y) < 2

    until(f"the mark at {x:.0f}, {y:.0f}", there, 5)
    assert seen[0] is not None
    return f"mark {math.hypot(seen[0][0] - x, seen[0][1] - y):.1f} px off in the end"


def _without(place: Address, case: Case) -> dict[str, str]:
    with Program("benchmarks.browser.page", place.page(case.size)) as page:
        until("a first picture", lambda: page.ask("state")["pictures"] > 0, 60)
        _filled(lambda: page.ask("key", name="h"), lambda: page.ask("state")["mark"], case)
        page.ask("drag", seconds=SECONDS, hz=HZ, timeout=SECONDS + 20)
        measured = page.ask("latency")
        if case.gaussians:
            changed = page.ask("changed", timeout=60)
            if changed["changed"] < 0.9 * changed["pairs"] or changed["pairs"] < 3:
                raise RuntimeError(f"of {changed['pairs']} pictures {changed['changed']} look otherwise")
            checked = f"{changed['changed']} of {changed['pairs']} look otherwise than the one before"
        else:
            moved = page.ask("moved", timeout=60)
            if moved["off"] > 3:
                raise RuntimeError(f"a picture's mark lies {moved['off']:.1f} px from where its event has put it")
            checked = f"mark at most {moved['off']:.1f} px off in {moved['checked']} pictures"
    return _row(f"{case.what}, without a browser", case, measured, checked)


def _row(what: str, case: Case, measured: dict[str, Any], checked: str) -> dict[str, str]:
    latencies = measured["latencies"]
    return {"what": what, "size": f"{case.size[0]}x{case.size[1]}", "p50 ms": f"{percentile(latencies, 0.5):.1f}",
            "p95 ms": f"{percentile(latencies, 0.95):.1f}", "worst ms": f"{max(latencies):.1f}", "target": case.target,
            "moves": f"{len(latencies)}", "pictures/s while dragged": f"{measured['per_s']:.1f}",
            "of which": " + ".join(f"{part:.1f}" for part in measured.get("parts", [])),
            "sent in": ", ".join(size for size, _ in measured.get("sizes", [])), "checked": checked}
