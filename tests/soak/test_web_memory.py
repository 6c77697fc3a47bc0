"""The memory of a viewer with many pages: a few pictures for each that shows something,
none for hidden ones.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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
"""Pictures of 4 bytes a pixel for each page: drawn, read, shown and waiting; encoders
and malloc keep some."""
MARGIN = 96 * MB
"""What pages cost beside pictures: views and panels."""


@pytest.fixture
def viewer(
    programs: Programs, tmp_path: Path
) -> Iterator[tuple[Callable[..., Page], Callable[[], int]]]:
    """`page(id)`: a page of a viewer that shows a picture which does not compress well,
    and has loaded whatever the first page of this size needs; and the bytes that it
    takes.
    """
    noise = np.random.default_rng(0).integers(
        0, 255, (SIZE[1] // 2, SIZE[0] // 2, 3), dtype=np.uint8
    )
    Image.fromarray(noise).save(tmp_path / "noise.png")
    process = programs.splatview(
        "serve", "--host", "127.0.0.1", "--port", "0", str(tmp_path / "noise.png")
    )
    port, token = address(process, [])
    threading.Thread(target=process.stderr.read, daemon=True).start()
    with ExitStack() as pages:

        def page(id: str, *, acks: bool = True, visible: bool = True) -> Page:
            made = pages.enter_context(Page(port, acks=acks)).connect(token=token)
            made.greet(*SIZE, id=id, visible=visible)
            return made

        page("first").picture()
        yield page, lambda: footprint(process.pid).rss


@pytest.mark.parametrize(
    "acks",
    [False, True],
    ids=["pages that acknowledge nothing", "pages that show pictures"],
)
def test_large_pages_take_a_few_pictures_each(viewer: Any, acks: bool) -> None:
    page, memory = viewer
    base = memory()
    most = base
    pages = [page(f"page{n}", acks=acks) for n in range(PAGES)]

    def all_have_pictures() -> bool:
        nonlocal most
        most = max(most, memory())
        return all(page.waiting >= 2 for page in pages)

    wait_until(all_have_pictures)
    assert most - base < PAGES * PICTURES * 4 * SIZE[0] * SIZE[1] + MARGIN


def test_hidden_pages_cost_no_pictures(viewer: Any) -> None:
    page, memory = viewer
    base = memory()
    for n in range(PAGES):
        page(f"hidden{n}", visible=False)
    page("last").picture()  # pages are taken in as they arrive: the others were before
    assert memory() < base + (PICTURES * 4 * SIZE[0] * SIZE[1] + MARGIN)


def test_closed_pages_release_their_memory(viewer: Any) -> None:
    page, memory = viewer
    base = memory()
    for turn in range(2):
        pages = [page(f"{turn}-{n}") for n in range(PAGES)]
        for drawn in pages:
            drawn.picture()
        for closing in pages:
            closing.end()
        wait_until(lambda: memory() < base + MARGIN)
