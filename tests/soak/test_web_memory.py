"""The memory of a viewer with many pages: a few pictures for each that shows something, none for hidden ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.meters import MB, footprint
from support.programs import Programs
from support.wait import wait_until
from support.web_clients import Page, address

PAGES = 6
SIZE = 3840, 2160
PICTURES = 8
"""Pictures of 4 bytes a pixel for each page: drawn, read, shown and waiting; encoders and malloc keep some."""
MARGIN = 96 * MB
"""What pages cost beside pictures: views and panels."""


class Viewer:
    """`splatview serve --web` of a picture that does not compress well, and its pages."""

    def __init__(self, programs: Programs, folder: Path, pages: ExitStack) -> None:
        noise = np.random.default_rng(0).integers(0, 255, (SIZE[1] // 2, SIZE[0] // 2, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / "noise.png")
        self.process = programs.splatview("serve", "--host", "127.0.0.1", "--port", "0", str(folder / "noise.png"))
        self.port, self.token = address(self.process, [])
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self._pages = pages

    def page(self, id: str, *, acks: bool = True, visible: bool = True) -> Page:
        page = self._pages.enter_context(Page(self.port, acks=acks)).connect(token=self.token)
        page.greet(*SIZE, id=id, visible=visible)
        return page

    @property
    def memory(self) -> int:
        """Bytes of its own."""
        return footprint(self.process.pid).rss


@pytest.fixture
def viewer(programs: Programs, tmp_path: Path) -> Iterator[Viewer]:
    """A viewer that has loaded whatever its first page of this size needs."""
    with ExitStack() as pages:
        made = Viewer(programs, tmp_path, pages)
        made.page("first").picture()
        yield made


@pytest.mark.parametrize("acks", [False, True], ids=["pages that acknowledge nothing", "pages that show pictures"])
def test_large_pages_take_a_few_pictures_each(viewer: Viewer, acks: bool) -> None:
    base = most = viewer.memory
    pages = [viewer.page(f"page{n}", acks=acks) for n in range(PAGES)]

    def all_have_pictures() -> bool:
        nonlocal most
        most = max(most, viewer.memory)
        return all(page.waiting >= 2 for page in pages)

    wait_until(all_have_pictures)
    assert most - base < PAGES * PICTURES * 4 * SIZE[0] * SIZE[1] + MARGIN


def test_hidden_pages_cost_no_pictures(viewer: Viewer) -> None:
    base = viewer.memory
    for n in range(PAGES):
        viewer.page(f"hidden{n}", visible=False)
    viewer.page("last").picture()  # pages are taken in as they arrive: the others were before
    assert viewer.memory < base + (PICTURES * 4 * SIZE[0] * SIZE[1] + MARGIN)
