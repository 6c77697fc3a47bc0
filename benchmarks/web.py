"""The browser screen's throughput: new 1080p pictures, published at full rate, to one local client; viser beside it.

The viewer is `splatview serve --web`, the client a process of its own that acknowledges every picture at once as the
page does, the publisher a third one. "CPU" is processor time of the serving process per picture that the client got;
"main + web" are the two threads that run the viewer's Python, OpenGL's driver included; the threads that encode are not
in it. The peer is viser's background image, with which nerfview shows its pictures: the same pictures at the same
quality, fed so that none is encoded in vain, as uint8 (which costs it least) and as the float32 that gsplat's examples
hand over. Its ratio is its CPU per picture over ours, and ours has in it what `publish` costs the trainer. The pictures
are checked in the same run: each carries its number, which must have been published by then, and looks like what was
published. SPLATVIEW_PEER_PYTHON names a Python that has viser, unless this one has it.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from benchmarks.browser import chromium, clocks, peer
from benchmarks.gpu import Skipped, tried
from benchmarks.gpu.clocks import until
from benchmarks.programs import ROOT, Program

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = (1920, 1080)
WARM, SETTLE, SECONDS = 1.0, 15.0, 5.0


@dataclass(frozen=True)
class Mode:
    what: str
    hz: float
    """Pictures that are published a second."""
    options: tuple[str, ...] = ()
    target: str = ""


ON_CPU = (Mode("published 60 times/s", 60, target="25 pictures/s"), Mode("published 30 times/s", 30))
ON_GPU = (Mode("published 240 times/s, --max-fps 60", 240, ("--max-fps", "60"),
               "60 pictures/s, main + web under 10 %"),
          Mode("published 240 times/s, --max-fps 1000", 240, ("--max-fps", "1000")),
          Mode("published 30 times/s", 30))


def run() -> list[dict[str, str]]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        base = base_picture(Path(folder), SIZE)
        rows: list[dict[str, str]] = []
        ours: dict[bool, Ours] = {}
        for mode in ON_GPU if device == "cuda" else ON_CPU:
            def measure(mode: Mode = mode) -> list[dict[str, str]]:
                one = _measure(device, base, mode)
                ours[mode.hz > 30] = one  # of those at full rate the last, which nothing holds back
                return [one.row(f"1080p, {mode.what}", mode.target)]

            rows += tried(mode.what, measure)
        rows += tried("in Chromium", lambda: _drawn_in_chromium(device, base))
        if not ours:
            return rows
        if why := peer.missing():
            return [*rows, {"what": f"viser: not measured: {why}"}]
        for kind in peer.kinds():
            for paced in (False, True):
                rows += tried(f"viser, {kind.what}", _held_against(device, base, ours, kind, paced))
    return rows


def base_picture(folder: Path, size: tuple[int, int]) -> str:
    """Make a file that `numbered.load` reads: a photograph with a sensor's noise, a fifth larger than the pictures."""
    with Image.open(ROOT / "splatview/demo/photos/00.webp") as photo:
        picture = np.asarray(photo.convert("RGB").resize((size[0] * 6 // 5, size[1] * 6 // 5)), np.float32)
    noisy = picture + np.random.default_rng(0).normal(0, 4, picture.shape)
    file = folder / f"base{size[1]}.npy"
    np.save(file, noisy.clip(0, 255).astype(np.uint8))
    return str(file)


@dataclass(frozen=True)
class Address:
    """Of the page that a viewer serves."""

    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def page(self, size: tuple[int, int]) -> str:
        """The argument of benchmarks.browser.page."""
        return json.dumps({"port": self.port, "token": self.token, "size": size})


def address(viewer: Program, timeout: float = 60.0) -> Address:
    """The address that the viewer prints."""
    def found() -> re.Match[str] | None:
        printed = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)")
        return next((m for line in list(viewer.said) if (m := printed.search(line))), None)

    until("the viewer's address", lambda: found() is not None, timeout)
    match = found()
    assert match is not None
    return Address(int(match[1]), match[2])


@dataclass(frozen=True)
class Ours:
    report: dict[str, Any]
    check: dict[str, Any]
    cpu: clocks.Cpu
    publish_ms: float

    @property
    def ms(self) -> float:
        """CPU per picture, what publishing it costs included."""
        return self.cpu.total / self.report["pictures"] + self.publish_ms

    def row(self, what: str, target: str) -> dict[str, str]:
        pictures, parts = self.report["pictures"], self.cpu.parts
        python = (parts["main"] + parts["web"]) / self.report["seconds"] / 10
        return {"what": what, **common(self.report, self.check), "target": target,
                "CPU ms per picture": f"{self.cpu.total / pictures:.2f} + {self.publish_ms:.2f} to publish",
                "of which": ", ".join(f"{name} {parts[name] / pictures:.2f}" for name in clocks.PARTS),
                "main + web, % of a core": f"{python:.1f}"}


def common(report: dict[str, Any], check: dict[str, Any]) -> dict[str, str]:
    """What is said of every kind of pictures."""
    sizes = ", ".join(f"{size} ({count})" for size, count in report["sizes"] if size != "0x0")
    return {"pictures/s": f"{report['per_s']:.1f}", "longest gap ms": f"{report['gap_ms']:.0f}",
            "KB": f"{report['bytes'] / 1e3:.0f}", "quality": f"{check['quality']}, {check['colour']}",
            "size": sizes or f"{SIZE[0]}x{SIZE[1]}", "published to received ms": f"{check['age_ms']:.1f}",
            "checked": f"{check['checked']}, {check['likeness']:.1f} dB"}


def _measure(device: str, base: str, mode: Mode) -> Ours:
    with (Program("benchmarks.browser.publisher", device) as publisher,
          Program("benchmarks.browser.serve", "--web", *mode.options) as viewer):
        publisher.ask("pictures", base=base, size=SIZE, hz=mode.hz, timeout=60)
        with Program("benchmarks.browser.page", address(viewer).page(SIZE)) as page:
            until("a first picture", lambda: page.ask("state")["pictures"] > 0, 60)
            page.ask("key", name="h")  # the panel away: the picture fills the page
            until("a picture with its number", lambda: page.ask("state")["number"] >= 0, 30)
            time.sleep(WARM)
            with suppress(RuntimeError):  # it begins with small pictures; where they stay small the line says so
                until("pictures in full size", lambda: page.ask("whole")["whole"], SETTLE)
            threads = viewer.ask("threads")["threads"]
            page.ask("begin")
            before = clocks.cpu(viewer.pid, threads)
            time.sleep(SECONDS)
            after, report = clocks.cpu(viewer.pid, threads), page.ask("report")
            told = publisher.ask("report")
            check = page.ask("check", base=base, times=told["times"], until=told["times"][-1][1], timeout=60)
    return Ours(report, check, after - before, told["publish_ms"])


def _drawn_in_chromium(device: str, base: str) -> list[dict[str, str]]:
    """How many come to stand on a real page on this very machine, which decodes and draws them on the same cores."""
    what = "1080p drawn in a headless Chromium beside it, published 60 times/s"
    try:
        chromium.executable()
    except Skipped as e:
        return [{"what": f"{what}: not measured: {e}"}]
    with (Program("benchmarks.browser.publisher", device) as publisher,
          Program("benchmarks.browser.serve", "--web") as viewer):
        publisher.ask("pictures", base=base, size=SIZE, hz=60, timeout=60)
        with chromium.Chromium(address(viewer).url, SIZE) as tab:
            tab.page.keyboard.press("h")
            until("a picture with its number", lambda: tab.number() >= 0, 30)
            time.sleep(WARM)
            rate = tab.rate(SECONDS)
            number = tab.number()
            times = publisher.ask("report")["times"]
    if number not in dict(times):
        raise RuntimeError(f"the page shows {number}, which was not published")
    return [{"what": what, "pictures/s": f"{rate:.1f}", "checked": f"the number in a screenshot: {number}"}]


def _held_against(device: str, base: str, ours: dict[bool, Ours], kind: peer.Kind,
                  paced: bool) -> Callable[[], list[dict[str, str]]]:
    def measure() -> list[dict[str, str]]:
        one = ours.get(not paced) or next(iter(ours.values()))
        quality = one.check["quality"]
        options = {"base": base, "size": SIZE, "quality": quality, "hz": 30 if paced else 0, "device": device}
        report, check, encoder = peer.measure({**options, **kind.options}, WARM, SECONDS)
        ms = report["cpu_ms"] / report["pictures"]
        return [{"what": f"viser, {kind.what} by {encoder}, {'30/s' if paced else 'as fast as it goes'}",
                 **common(report, check), "CPU ms per picture": f"{ms:.2f}", "its CPU over ours": f"{ms / one.ms:.2f}",
                 "our pictures/s over its": f"{one.report['per_s'] / report['per_s']:.2f}",
                 "target": "" if kind.extra else "CPU ratio 3"}]

    return measure
