"""Pictures of a page in Chromium: `tools/pictures.py` takes them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

_PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome", "chromium-browser")
_FLAGS = ["--no-sandbox", "--disable-gpu"]
_PATIENCE_MS = 60_000
_POLL_MS = 200
_SHOWS_PICTURES = "splatview.state().frames >= 4 && splatview.state().lossless"
_DRAW_HERE = """{
  document.getElementById("drawhere").checked = true;
  document.getElementById("drawhere").dispatchEvent(new Event("change"));
}"""
_DRAWS_ALL = """(() => {
  const panes = splatview.state().drawing.panes;
  return panes.some((pane) => pane.shown && pane.form === "harmonics");
})()"""


def take_stopped_page(file: Path, scene: Path | None, size: tuple[int, int]) -> None:
    """Write what a page shows once its viewer has ended.

    Where Chromium or playwright is missing, that is printed instead.

    Args:
        file: the picture.
        scene: the file that the viewer shows.
        size: of the page, pixels.
    """

    def stop(page: Page, viewer: subprocess.Popen[str]) -> None:
        _wait_until(page, _SHOWS_PICTURES)
        viewer.terminate()
        viewer.wait()
        page.wait_for_selector("#stopped:visible", timeout=_PATIENCE_MS)

    _take_page(file, scene, size, stop)


def take_drawing_page(file: Path, scene: Path | None, size: tuple[int, int]) -> None:
    """Write what a page shows that draws its scene by itself, and says so.

    Args:
        file: the picture.
        scene: the file that the viewer shows.
        size: of the page, pixels.
    """

    def say_who_draws(page: Page, viewer: subprocess.Popen[str]) -> None:
        _wait_until(page, "splatview.state().drawing !== null")
        page.evaluate(_DRAW_HERE)
        _wait_until(page, _DRAWS_ALL)
        page.click("#draws")

    _take_page(file, scene, size, say_who_draws)


def _take_page(
    file: Path,
    scene: Path | None,
    size: tuple[int, int],
    set_up: Callable[[Page, subprocess.Popen[str]], None],
) -> None:
    """Write what a page of a viewer shows after `set_up(page, viewer)`."""
    chromium = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if chromium is None:
        print(f"{file.name} is left out: there is no Chromium")
        return
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print(f"{file.name} is left out: playwright is not installed")
        return
    command = [str(Path(sys.executable).parent / "splatview"), "serve", "--web"]
    if scene is not None:
        command.append(str(scene))
    viewer = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=_FLAGS)
            page = browser.new_page(viewport={"width": size[0], "height": size[1]})
            page.goto(_address_of(viewer))
            set_up(page, viewer)
            page.screenshot(path=file)
            browser.close()
    finally:
        viewer.kill()
        viewer.wait()
    print(file, flush=True)


def _wait_until(page: Page, condition: str) -> None:
    """Wait until an expression of JavaScript is true.

    The page evaluates no texts by itself, as playwright's own way would need.
    """
    for _ in range(_PATIENCE_MS // _POLL_MS):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(_POLL_MS)


def _address_of(viewer: subprocess.Popen[str]) -> str:
    """Return the address that a viewer prints."""
    assert viewer.stdout is not None
    for line in viewer.stdout:
        for address in line.split():
            if address.startswith("http"):
                return address
    raise SystemExit("the viewer prints no address")
