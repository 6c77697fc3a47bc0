"""The picture of a page whose viewer was stopped: `tools/pictures.py` takes it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

_PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome", "chromium-browser")
_FLAGS = ["--no-sandbox", "--disable-gpu"]
_PATIENCE_MS = 60_000
_POLL_MS = 200
_FRAMES = 4
"""Pictures that the page has shown before its viewer ends."""


def take_stopped_page(file: Path, scene: Path | None, size: tuple[int, int]) -> None:
    """Write what a page shows once its viewer has ended.

    Where Chromium or playwright is missing, that is printed instead.

    Args:
        file: the picture.
        scene: the file that the viewer shows.
        size: of the page, pixels.
    """
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
            # The page evaluates no texts by itself, as waiting for one would need.
            for _ in range(_PATIENCE_MS // _POLL_MS):
                state = page.evaluate("splatview.state()")
                if state["frames"] >= _FRAMES and state["lossless"]:
                    break
                page.wait_for_timeout(_POLL_MS)
            viewer.terminate()
            viewer.wait()
            page.wait_for_selector("#stopped:visible", timeout=_PATIENCE_MS)
            page.screenshot(path=file)
            browser.close()
    finally:
        viewer.kill()
        viewer.wait()
    print(file, flush=True)


def _address_of(viewer: subprocess.Popen[str]) -> str:
    """Return the address that a viewer prints."""
    assert viewer.stdout is not None
    for line in viewer.stdout:
        for address in line.split():
            if address.startswith("http"):
                return address
    raise SystemExit("the viewer prints no address")
