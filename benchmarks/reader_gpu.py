"""Measure a scene that the reader's own GPU draws: seconds, bytes and ages on a line.

1M Gaussians of degree 3, a line of 20 Mbit/s and a round trip of 80 ms of the
benchmark's own. A program that takes all that comes at once measures line and viewer
alone, counted from the page's hello; Chromium draws with SwiftShader, on this
processor. The age of what a reader sees counts from `publish`: when it comes, and when
the next version takes its place. Beside it viser, of PyPI, whose page draws as well:
the same Gaussians, without harmonics, over the same line.
"""

from __future__ import annotations

import gzip
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.browser.reading import (
    LINE_MBIT_S,
    ROUND_TRIP_S,
    PacedLine,
    Published,
    Reader,
    age_text,
    ages_of,
    viewer_port,
)
from benchmarks.harness import Program, Skipped, percentile, tried, wait_until
from splatview_viewer.splat_page.page_splats import splat_scripts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from benchmarks.browser.reading import Address

Row = dict[str, str]

GAUSSIANS = 1_000_000
HZ = 2.0
"""Versions that are published in a second."""
_TIMES = 3
"""How often a page is opened."""
_AGES_S = 20.0
_PATIENCE_S = 60.0
_SHADERS = "shaders.js"
_PAGE_SIZE = (1280, 800)
_INTERFACE = {"interface", "ack", "layout", "caption"}
"""Messages that come also while nothing moves: the interface counts the seconds since
the last version."""
_NOTE_HELLO = """
const RealSocket = WebSocket;
window.messages = {received: [], sent: [], bytes: 0};
window.WebSocket = class extends RealSocket {
  send(data) {
    window.helloAt ??= performance.now();
    window.messages.sent.push(JSON.parse(data).t);
    window.messages.bytes += data.length;
    super.send(data);
  }
  set onmessage(handle) {
    super.onmessage = (event) => {
      const {data} = event;
      const isText = typeof data === "string";
      if (isText) window.messages.received.push(JSON.parse(data).t);
      window.messages.bytes += isText ? data.length : data.byteLength;
      handle(event);
    };
  }
};
const note = () => {
  const panes = window.splatview?.state().drawing?.panes ?? [];
  if (panes.some((pane) => pane.shown)) window.shownAt ??= performance.now();
  if (panes.some((pane) => pane.count && pane.count === pane.total)) window.wholeAt ??= performance.now();
  requestAnimationFrame(note);
};
requestAnimationFrame(note);
"""


def run() -> list[Row]:
    rows: list[Row] = []
    for title, measure in (
        ("over a line", _measure_line),
        ("viser over a line", _measure_viser),
        ("Chromium", _measure_chromium),
        ("scripts of the page", _measure_scripts),
        ("a scene in one file", _measure_file),
    ):
        rows += tried(title, partial(_or_reason, title, measure))
    load = os.getloadavg()[1]
    text = f"{load:.1f} of {os.cpu_count()} cores"
    return [*rows, {"what": "other programs: processes at work", "load": text}]


def _or_reason(title: str, measure: Any) -> list[Row]:
    """Return the rows, or one that says why there are none here."""
    try:
        return measure()
    except Skipped as e:
        return [{"what": f"{title}: not measured: {e}"}]


# ---- over a line, without drawing


@contextmanager
def _viewer_of(programs: ExitStack, gaussians: int) -> Iterator[Any]:
    """Start a training at rest and a viewer in a folder of their own."""
    folder = programs.enter_context(tempfile.TemporaryDirectory(prefix="sv-bench-"))
    env = {"SPLATVIEW_RUNTIME_DIR": folder}
    publisher = Program("benchmarks.browser.publisher", "cpu", env=env)
    programs.enter_context(publisher)
    publisher.request("stamped", gaussians=gaussians, hz=0.0, timeout=_PATIENCE_S)
    serve = Program("benchmarks.browser.serve", "--web", "--port", "0", env=env)
    viewer = programs.enter_context(serve)
    yield publisher, viewer, viewer_port(viewer, partial(time.sleep, 0.01))


def _measure_line() -> list[Row]:
    with ExitStack() as programs, _viewer_of(programs, GAUSSIANS) as started:
        publisher, _, address = started
        line = programs.enter_context(
            PacedLine(address.port, LINE_MBIT_S, ROUND_TRIP_S)
        )
        opened = [_opened(address._replace(port=line.port), i) for i in range(_TIMES)]
        return [*_opening_rows(opened), *_age_rows(publisher, address, line.port)]


def _opened(address: Address, index: int) -> dict[str, Any]:
    """Open a page until it has all in the quick form; return its first and last pass."""
    with Reader(address, f"reader{index}") as reader:
        reader.connect()
        wait_until("all in the quick form", partial(_has_all, reader), _PATIENCE_S)
        report = reader.request("report")
    first_pass = reader.passes[0]
    all_passes = [
        page_pass
        for page_pass in reader.passes
        if page_pass["count"] == page_pass["total"]
    ]
    return {"hello_at": report["hello_at"], "first": first_pass, "all": all_passes[0]}


def _has_all(reader: Reader) -> bool:
    reader.take_passes()
    return any(page_pass["count"] == page_pass["total"] for page_pass in reader.passes)


def _opening_rows(opened: list[dict[str, Any]]) -> list[Row]:
    rows = []
    for key, title, target in (
        ("first", "first coarse picture", "1 s"),
        ("all", "all in the quick form", "10 s"),
    ):
        seconds = [opening[key]["shown_at"] - opening["hello_at"] for opening in opened]
        first_pass = opened[0][key]
        rows.append(
            {
                "what": f"line alone: {title}",
                "s": f"{statistics.median(seconds):.2f}",
                "each s": ", ".join(f"{value:.2f}" for value in seconds),
                "target": target,
                "MB": f"{first_pass['bytes'] / 1e6:.2f}",
                "Gaussians": f"{first_pass['count']:,} of {first_pass['total']:,}",
            }
        )
    return rows


def _age_rows(publisher: Program, address: Address, line_port: int) -> list[Row]:
    """Return the row of ages while versions are published."""
    with Reader(address._replace(port=line_port), "late") as reader:
        reader.connect()
        wait_until("a picture", reader.has_passes, _PATIENCE_S)
        publisher.request("stamped", gaussians=GAUSSIANS, hz=HZ, timeout=_PATIENCE_S)
        time.sleep(5)
        reader.take_passes()
        time.sleep(_AGES_S)
        passes = reader.take_passes()
    stamps = publisher.request("stamps")
    publisher.request("stamped", gaussians=GAUSSIANS, hz=0.0, timeout=_PATIENCE_S)
    ages = ages_of(passes, [Published(*pair) for pair in stamps["times"]])
    oldest = percentile([age.oldest_s for age in ages], 0.5)
    return [
        {
            "what": f"line alone: age of the newest version, {HZ:g} published a second",
            "s": f"{oldest:.2f}",
            "age of what is seen": age_text(ages),
            "target": "3 s",
            "MB": f"{passes[-1]['bytes'] / 1e6:.2f}",
            "Gaussians": f"{passes[-1]['count']:,} of {passes[-1]['total']:,}",
        }
    ]


def _measure_viser() -> list[Row]:
    for package in ("viser", "websockets", "zstandard"):
        if importlib.util.find_spec(package) is None:
            raise Skipped(f"{package} is not installed")
    with Program("benchmarks.browser.viser_scene", str(GAUSSIANS)) as server:
        port = server.request("port", timeout=_PATIENCE_S)["port"]
        with PacedLine(port, LINE_MBIT_S, ROUND_TRIP_S) as line:
            answer = server.request("page", port=line.port, timeout=2 * _PATIENCE_S)
            passed_bytes = line.passed_bytes
    return [
        {
            "what": "viser: all Gaussians, without harmonics",
            "s": f"{answer['seconds']:.2f}",
            "MB": f"{passed_bytes / 1e6:.2f}",
            "Gaussians": f"{GAUSSIANS:,}",
        }
    ]


# ---- drawn by Chromium


@contextmanager
def _chromium() -> Iterator[Browser]:
    """Start a browser that draws without a GPU."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise Skipped("playwright is not installed") from None
    program = os.environ.get("SPLATVIEW_TEST_CHROMIUM") or shutil.which(
        "chromium-headless-shell"
    )
    if program is None:
        raise Skipped("no Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


def _measure_chromium() -> list[Row]:
    with (
        _chromium() as browser,
        ExitStack() as programs,
        _viewer_of(programs, GAUSSIANS) as started,
    ):
        _, viewer, address = started
        line = programs.enter_context(
            PacedLine(address.port, LINE_MBIT_S, ROUND_TRIP_S)
        )
        page = _page(browser, address._replace(port=line.port).url + "&draw=here")
        wait_until(
            "all of the scene",
            lambda: page.evaluate("Boolean(window.wholeAt)"),
            2 * _PATIENCE_S,
            partial(page.wait_for_timeout, 100),
        )
        rows = _drawn_rows(page)
        page.close()
    with (
        _chromium() as browser,
        ExitStack() as programs,
        _viewer_of(programs, GAUSSIANS // 50) as started,
    ):
        _, viewer, address = started
        page = _page(browser, address.url + "&draw=here")
        return [*rows, *_move_rows(page, viewer)]


def _page(browser: Browser, url: str) -> Page:
    width, height = _PAGE_SIZE
    page = browser.new_page(viewport={"width": width, "height": height})
    page.add_init_script(_NOTE_HELLO)
    page.goto(url)
    return page


def _drawn_rows(page: Page) -> list[Row]:
    rows = []
    for name, title, target in (
        ("shownAt", "first coarse picture drawn", "1 s"),
        ("wholeAt", "all in the quick form drawn", "10 s"),
    ):
        ms = page.evaluate(f"window.{name} - window.helloAt")
        rows.append(
            {
                "what": f"Chromium: {title}",
                "s": f"{ms / 1e3:.2f}",
                "target": target,
            }
        )
    return rows


def _move_rows(page: Page, viewer: Program) -> list[Row]:
    """Return the row of a camera that is moved for some seconds."""
    wait_until(
        "a picture at rest",
        lambda: page.evaluate("Boolean(window.wholeAt)"),
        _PATIENCE_S,
        partial(page.wait_for_timeout, 100),
    )
    page.wait_for_timeout(5000)
    resting = _watched(page, viewer, is_moving=False)
    page.mouse.move(900, 400)
    page.mouse.down()
    page.mouse.move(910, 400)
    # Until nothing of the interface answers the press any more.
    page.wait_for_timeout(5000)
    moving = _watched(page, viewer, is_moving=True)
    page.evaluate("window.messages.bytes = 0, window.messages.sent = []")
    page.mouse.up()
    page.wait_for_timeout(500)
    sent = page.evaluate(
        "window.messages.sent.filter((kind) => kind === 'place').length"
    )
    camera_kinds = [kind for kind in moving["kinds"] if kind not in _INTERFACE]
    kinds = ", ".join(sorted(set(moving["kinds"]))) or "none"
    return [
        {
            "what": "Chromium: camera moved for 5 s: messages about it",
            "messages of the camera": f"{len(camera_kinds)}",
            "bytes": f"{moving['bytes']}",
            "at rest": f"{resting['bytes']}",
            "messages": kinds,
            "viewer, % of a core": f"{moving['cpu_s'] * 20:.1f}, at rest {resting['cpu_s'] * 20:.1f}",
            "works of the viewer's GPU": f"{moving['works']}",
            "messages at its end": f"{sent}",
            "target": "0",
        }
    ]


def _watched(page: Page, viewer: Program, *, is_moving: bool) -> dict[str, Any]:
    """Return what went over the line in 5 s, and what the viewer did."""
    page.evaluate("window.messages = {received: [], sent: [], bytes: 0}")
    count_before = sum(viewer.request("works")["works"].values())
    cpu_before = _cpu(viewer.pid)
    for step in range(100):
        if is_moving:
            page.mouse.move(910 + step % 20 * 8, 400 + step % 7 * 5)
        page.wait_for_timeout(50)
    page_messages = page.evaluate("window.messages")
    gpu_works = sum(viewer.request("works")["works"].values()) - count_before
    return {
        "bytes": page_messages["bytes"],
        "kinds": page_messages["received"] + page_messages["sent"],
        "works": gpu_works,
        "cpu_s": (_cpu(viewer.pid) - cpu_before),
    }


def _cpu(pid: int) -> float:
    """Return the processor seconds of a program until now."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- sizes


def _measure_scripts() -> list[Row]:
    with ExitStack() as programs, _viewer_of(programs, 1000) as started:
        _, _, address = started
        code = [name for name in splat_scripts() if name != _SHADERS]
        rows = [
            _script_row("page and worker that draw", address, code, "40 KB"),
            _script_row("shaders and tables", address, [_SHADERS], ""),
        ]
    client = _viser_client()
    if client is not None:
        data = client.read_bytes()
        rows.append(_size_row("viser's client", len(gzip.compress(data)), len(data)))
    return rows


def _script_row(title: str, address: Address, names: list[str], target: str) -> Row:
    packed = 0
    unpacked = 0
    for name in names:
        request = urllib.request.Request(
            f"http://127.0.0.1:{address.port}/splats/{name}?token={address.token}",
            headers={"Accept-Encoding": "gzip"},
        )
        with urllib.request.urlopen(request) as response:
            data = response.read()
            is_packed = response.headers.get("Content-Encoding") == "gzip"
        packed += len(data)
        unpacked += len(gzip.decompress(data) if is_packed else data)
    return _size_row(title, packed, unpacked) | {"target": target}


def _size_row(title: str, packed: int, unpacked: int) -> Row:
    return {
        "what": f"JavaScript: {title}",
        "KB": f"{packed / 1e3:.1f}",
        "unpacked KB": f"{unpacked / 1e3:.1f}",
    }


def _viser_client() -> Path | None:
    """Return the file of viser's client, if viser is installed."""
    viser_spec = importlib.util.find_spec("viser")
    if viser_spec is None or viser_spec.origin is None:
        return None
    return Path(viser_spec.origin).parent / "client" / "build" / "index.html"


# ---- a scene in one file


def _measure_file() -> list[Row]:
    data = os.environ.get("SPLATVIEW_TEST_DATA")
    scene = Path(data or "") / "biker.compressed.ply"
    if not data or not scene.is_file():
        raise Skipped("no biker.compressed.ply in SPLATVIEW_TEST_DATA")
    with tempfile.TemporaryDirectory() as folder, _chromium() as browser:
        out = Path(folder) / "biker.html"
        command = [sys.executable, "-m", "splatview", "export", str(out), str(scene)]
        subprocess.run(command, check=True, capture_output=True)
        seconds = [_opening_s(browser, out) for _ in range(_TIMES)]
        size = out.stat().st_size
    return [
        {
            "what": "biker in one .html: bytes",
            "MB": f"{size / 1e6:.3f}",
            "target": "3 MB",
        },
        {
            "what": "biker in one .html: opened from a disk",
            "s": f"{statistics.median(seconds):.2f}",
            "each s": ", ".join(f"{value:.2f}" for value in seconds),
            "target": "2 s",
        },
    ]


def _opening_s(browser: Browser, file: Path) -> float:
    """Return the seconds until a page has all of its scene and draws it."""
    page = browser.new_page()
    started_at = time.perf_counter()
    page.goto(file.as_uri(), wait_until="commit")
    wait_until(
        "the scene of the file",
        lambda: page.evaluate("Boolean(window.splatview?.state().drawn)"),
        _PATIENCE_S,
        partial(page.wait_for_timeout, 20),
    )
    seconds = time.perf_counter() - started_at
    page.close()
    return seconds
