"""The memory of a viewer with many pages: a few pictures a page, none if hidden."""

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
PICTURES = 12
"""Pictures of 4 bytes a pixel for each page: of its interface and of its pictures what
is drawn, waits, is encoded and was sent last; encoders and malloc keep some."""
MARGIN = 96 * MB
"""What pages cost beside pictures: views and panels."""


@pytest.fixture
def viewer(
    programs: Programs, tmp_path: Path
) -> Iterator[tuple[Callable[..., Page], Callable[[], int]]]:
    """Yield `page(id)`, a page of a viewer, and `memory()`, the viewer's bytes.

    The viewer shows a picture that does not compress well, and has loaded whatever the
    first page of this size needs.
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
            new_page = pages.enter_context(Page(port, acks=acks)).connect(token=token)
            new_page.greet(*SIZE, id=id, visible=visible)
            return new_page

        def memory() -> int:
            return footprint(process.pid).rss

        page("first").picture()
        yield page, memory


@pytest.mark.parametrize(
    "acks",
    [False, True],
    ids=["pages that acknowledge nothing", "pages that show pictures"],
)
def test_large_pages_take_a_few_pictures_each(viewer: Any, acks: bool) -> None:
    page, memory = viewer
    base = memory()
    peak = base
    pages = [page(f"page{n}", acks=acks) for n in range(PAGES)]

    def all_have_pictures() -> bool:
        nonlocal peak
        peak = max(peak, memory())
        # The one without loss waits for an answer.
        return all(page.waiting >= 1 + acks for page in pages)

    wait_until(all_have_pictures)
    assert peak - base < PAGES * PICTURES * 4 * SIZE[0] * SIZE[1] + MARGIN


def test_hidden_pages_cost_no_pictures(viewer: Any) -> None:
    page, memory = viewer
    base = memory()
    for n in range(PAGES):
        page(f"hidden{n}", visible=False)
    # Pages are accepted as they arrive, so that all others were before this one.
    page("last").picture()
    assert memory() < base + (PICTURES * 4 * SIZE[0] * SIZE[1] + MARGIN)


def test_closed_pages_release_their_memory(viewer: Any) -> None:
    page, memory = viewer
    base = memory()
    for round_index in range(2):
        pages = [page(f"{round_index}-{n}") for n in range(PAGES)]
        for drawn in pages:
            drawn.picture()
        for closing in pages:
            closing.end()
        wait_until(lambda: memory() < base + MARGIN)
