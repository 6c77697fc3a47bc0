"""Measure the browser screen's throughput: 1080p pictures to one local client.

The viewer is `splatview serve --web`, the client a process of its own that acknowledges
every picture at once as the page does, the publisher a third one. "CPU" is processor
time of the serving process per picture that the client got; "main + web" are the two
threads that run the viewer's Python, OpenGL's driver included; the threads that encode
are not in it. The pictures are checked in the same run: each carries its number, which
must have been published by then, and looks like what was published.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.harness import ROOT, Program, tried, wait_until

SIZE = (1920, 1080)
WARM = 1.0
SETTLE = 15.0
SECONDS = 5.0


@dataclass(frozen=True)
class Mode:
    title: str
    hz: float
    """Pictures that are published a second."""
    options: tuple[str, ...] = ()
    target: str = ""


ON_CPU = (
    Mode("published 60 times/s", 60, target="25 pictures/s"),
    Mode("published 30 times/s", 30),
)
ON_GPU = (
    Mode(
        "published 240 times/s, --max-fps 60",
        240,
        ("--max-fps", "60"),
        "60 pictures/s, main + web under 10 %",
    ),
    Mode("published 240 times/s, --max-fps 1000", 240, ("--max-fps", "1000")),
    Mode("published 30 times/s", 30),
)


def run() -> list[dict[str, str]]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        base = base_picture(Path(folder), SIZE)
        rows: list[dict[str, str]] = []
        for mode in ON_GPU if device == "cuda" else ON_CPU:
            rows += tried(mode.title, lambda mode=mode: [_measure(device, base, mode)])
    return rows


def base_picture(folder: Path, size: tuple[int, int]) -> str:
    """Make a file of (H, W, 3) uint8: a photograph with a sensor's noise.

    It is a fifth larger than the pictures.
    """
    with Image.open(ROOT / "splatview/demo/photos/00.webp") as photo:
        picture = np.asarray(
            photo.convert("RGB").resize((size[0] * 6 // 5, size[1] * 6 // 5)),
            np.float32,
        )
    noisy = picture + np.random.default_rng(0).normal(0, 4, picture.shape)
    file = folder / f"base{size[1]}.npy"
    np.save(file, noisy.clip(0, 255).astype(np.uint8))
    return str(file)


def page_of(viewer: Program, size: tuple[int, int]) -> str:
    """Return the argument of benchmarks.browser.page.

    It holds the address that the viewer prints, and a size.
    """

    def find_address() -> re.Match[str] | None:
        printed = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)")
        matches = (printed.search(line) for line in list(viewer.output_lines))
        return next((match for match in matches if match is not None), None)

    wait_until("the viewer's address", lambda: find_address() is not None, 60)
    match = find_address()
    assert match is not None
    return json.dumps({"port": int(match[1]), "token": match[2], "size": size})


def wait_for_picture(page: Program) -> None:
    """Wait for the first picture on a page."""

    def has_picture() -> bool:
        return page.request("state")["pictures"] > 0

    wait_until("a first picture", has_picture, 60)


def _measure(device: str, base: str, mode: Mode) -> dict[str, str]:
    with (
        Program("benchmarks.browser.publisher", device) as publisher,
        Program("benchmarks.browser.serve", "--web", *mode.options) as viewer,
    ):
        publisher.request("pictures", base=base, size=SIZE, hz=mode.hz, timeout=60)
        with Program("benchmarks.browser.page", page_of(viewer, SIZE)) as page:
            wait_for_picture(page)
            page.request("key", name="h")  # the panel away: the picture fills the page
            wait_until(
                "a picture with its number",
                lambda: page.request("state")["number"] >= 0,
                30,
            )
            time.sleep(WARM)
            with suppress(
                RuntimeError
            ):  # it begins with small pictures; where they stay small the line says so
                wait_until(
                    "pictures in full size",
                    lambda: page.request("whole")["whole"],
                    SETTLE,
                )
            threads = viewer.request("threads")["threads"]
            page.request("begin")
            cpu_before = _cpu(viewer.pid, threads)
            time.sleep(SECONDS)
            cpu_after = _cpu(viewer.pid, threads)
            report = page.request("report")
            published = publisher.request("report")
            check = page.request(
                "check",
                base=base,
                times=published["times"],
                max_time=published["times"][-1][1],
                timeout=60,
            )
    cpu = {group: ms - cpu_before[group] for group, ms in cpu_after.items()}
    pictures = report["pictures"]
    python = (cpu["main"] + cpu["web"]) / report["seconds"] / 10
    return {
        "what": f"1080p, {mode.title}",
        "pictures/s": f"{report['per_s']:.1f}",
        "longest gap ms": f"{report['gap_ms']:.0f}",
        "KB": f"{report['bytes'] / 1e3:.0f}",
        "quality": f"{check['quality']}, {check['colour']}",
        "size": ", ".join(f"{size} ({count})" for size, count in report["sizes"]),
        "published to received ms": f"{check['age_ms']:.1f}",
        "checked": f"{check['checked']}, {check['likeness']:.1f} dB",
        "target": mode.target,
        "CPU ms per picture": f"{cpu['all'] / pictures:.2f} + {published['publish_ms']:.2f} to publish",
        "of which": ", ".join(
            f"{group} {ms / pictures:.2f}"
            for group, ms in cpu.items()
            if group != "all"
        ),
        "main + web, % of a core": f"{python:.1f}",
    }


def _cpu(pid: int, threads: dict[str, int]) -> dict[str, float]:
    """Return the milliseconds of processor time of a process so far, by its parts.

    "web" is the thread of that name, "encode" those whose names begin so, "other" all
    the rest: of Python's (helpers), of the OpenGL driver (Mesa draws in threads of its
    own), of CUDA.
    """
    names = {tid: name for name, tid in threads.items()}
    spent = {
        "all": time.clock_gettime_ns((~pid << 3) | 2) * 1e-6,
        "main": 0.0,
        "web": 0.0,
        "encode": 0.0,
        "other": 0.0,
    }
    for task in Path(f"/proc/{pid}/task").iterdir():
        tid = int(task.name)
        name = names.get(int(task.name), "")
        with suppress(OSError):  # it has just ended
            cpu_ms = int((task / "schedstat").read_text().split()[0]) * 1e-6
            spent[_thread_group(tid == pid, name)] += cpu_ms
    return spent


def _thread_group(is_main: bool, name: str) -> str:
    """Return the group of a thread by its name, as `_cpu` has them."""
    if is_main:
        return "main"
    if name == "web":
        return "web"
    if name.startswith("encode"):
        return "encode"
    return "other"
