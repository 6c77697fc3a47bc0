"""The two layers of a page: an exact interface that comes first, and its pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from support.browser_rig import Rig, parts_of, poll, restful
from support.house import House
from support.pages import on_interface, state
from support.slow_line import slow_line
from support.wait import polls
from support.web_clients import Page

from splatview_viewer.app.loop import step
from splatview_viewer.core import events as ev
from splatview_viewer.core.screen import Caption, Pane, Rect, read_pixels
from splatview_viewer.web import sender
from splatview_viewer.web.address import local_url
from splatview_viewer.web.browser import BrowserScreen
from splatview_viewer.web.pacing import RESTING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page as Tab
    from support.pages import Open

    from splatview_viewer.shell.user import User

Color = tuple[float, float, float, float]
PANES = [Pane(3, Rect(40, 10, 50, 40))]


def show_interface(
    screen: BrowserScreen, color: Color, *boxes: tuple[int, int, int, int]
) -> np.ndarray:
    """Show an interface of a colour, with black boxes; return it, premultiplied."""
    poll(screen, lambda: screen.state.ready)
    framebuffer = screen.interface.framebuffer
    framebuffer.clear(color=color)
    for x, y, width, height in boxes:
        bottom = framebuffer.height - y - height
        framebuffer.clear(0, 0, 0, 1, viewport=(x, bottom, width, height))
    drawn = read_pixels(framebuffer)
    screen.interface.present(Caption(), PANES, answers=True)
    return drawn


def test_only_what_changed_in_an_interface_is_sent(
    screen: BrowserScreen, page: Page
) -> None:
    drawn = show_interface(screen, (0.1, 0.2, 0.3, 0.4))
    first = poll(screen, page.next_update)
    assert first.boxes == [(0, 0, 160, 120)]
    assert page.layouts[first.layout].panes == [(3, (40, 10, 50, 40))]
    ((_, pixels),) = parts_of(first)
    straight = pixels.astype(int)
    multiplied = (2 * straight[..., :3] * straight[..., 3:] + 255) // 510
    np.testing.assert_array_equal(multiplied, drawn[..., :3])
    show_interface(screen, (0.1, 0.2, 0.3, 0.4))
    drawn = show_interface(screen, (0.1, 0.2, 0.3, 0.4), (70, 90, 9, 7))
    second = poll(screen, page.next_update)
    assert second.number == first.number + 1, "nothing is sent where nothing changed"
    ((box, part_pixels),) = parts_of(second)
    x, y, width, height = box
    assert width * height <= 64 * 64
    opaque = part_pixels[..., 3] == 255
    assert opaque.sum() == 9 * 7
    expected = drawn[y : y + height, x : x + width][opaque]
    np.testing.assert_array_equal(part_pixels[opaque], expected)


def test_interface_comes_between_the_parts_of_a_picture(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture that takes long on the line delays no answer of the interface."""
    monkeypatch.setattr(sender, "_PART_BYTES", 1000)
    screen = rig.open(640, 480)
    page = rig.pages[screen]
    show_interface(screen, (0, 0, 0, 0))
    noise = np.random.default_rng(0).integers(0, 256, 640 * 480 * 4, np.uint8)
    texture = rig.ctx.texture((640, 480), 4, data=noise.tobytes())
    source = rig.ctx.framebuffer([texture])
    order: list[str] = []
    take_part = page.read_part

    def note_part(data: bytes) -> None:
        order.append("part")
        take_part(data)

    monkeypatch.setattr(page, "read_part", note_part)
    rig.ctx.copy_framebuffer(screen.framebuffer, source)
    screen.present(Caption())
    poll(screen, lambda: len(order) > 3)
    show_interface(screen, (0, 0.5, 0, 1))
    while (update := poll(screen, page.next_update)).number < 2:
        pass
    order.append("update")
    poll(screen, page.next_picture)
    assert update.boxes
    assert restful(screen, page).lossless


def test_interface_is_sent_while_pictures_wait(rig: Rig) -> None:
    """A page that cannot take pictures any more gets its interface all the same."""
    screen = rig.open(160, 120, acks=False)
    page = rig.pages[screen]
    k = 0
    while screen.takes_pictures or screen.is_encoding:
        k += 1
        if screen.takes_pictures:
            draw_any(screen, k)
        screen.poll(0.01)
    show_interface(screen, (0.5, 0.5, 0.5, 1))
    assert poll(screen, page.next_update).boxes


def draw_any(screen: BrowserScreen, shade: int) -> None:
    screen.framebuffer.clear(shade % 7 / 7, 0.3, 0.1, 1)
    screen.present(Caption())


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """Write a picture whose files are large."""
    rng = np.random.default_rng(0)
    path = tmp_path / "noise.png"
    Image.fromarray(rng.integers(0, 256, (600, 800, 3), np.uint8)).save(path)
    return path


@pytest.fixture
def house(picture: Path) -> Iterator[House]:
    with House(picture) as new_house:
        yield new_house


def test_use_of_the_panel_draws_no_pictures(house: House) -> None:
    page = house.page(1200, 800)
    house.final_picture(page)
    user = house.users[page]
    drawn_at = user.pace.times[-1]
    panel = user.interface.zones.tabs
    for offset in range(0, panel.width, 20):
        x = panel.x + offset
        page.send(ev.PointerMove(x, panel.y + panel.height // 2, at=1.0 + offset))
        for _ in range(5):
            step(house.app)
    house.until(page.next_update)
    assert user.pace.times[-1] == drawn_at
    assert page.waiting == 0


def test_interface_follows_pictures_slowly_beside_a_training(house: House) -> None:
    page = house.page(1200, 800)
    user = house.users[page]

    def rests() -> bool:
        newest = house.newest(page)
        has_rested = newest is not None and newest.quality >= RESTING.quality
        return has_rested and not user.waiting

    house.until(rests)
    account = house.app.governor.account
    schedule = user.schedule
    now = user.pace.next_interface
    user.pace.draw_interface(now)
    while not schedule.kept_boards.may_stay:
        schedule.kept_boards.count_drawing(now)
    user.mark_pictures()
    assert schedule.next_interface(now) < now + 0.02
    account.shared = True
    assert schedule.next_interface(now) == now + 0.05
    user.mark_interface()
    assert schedule.next_interface(now) < now + 0.02


def is_exact(tab: Tab, user: User) -> bool:
    """Return whether a page shows each pixel of the interface as it was drawn."""
    interface_pixels = on_interface(tab).astype(int)
    assert user.screen.interface is not None
    drawn = read_pixels(user.screen.interface.framebuffer).astype(int)
    if (
        interface_pixels.shape != drawn.shape
        or (interface_pixels[..., 3] != drawn[..., 3]).any()
    ):
        return False
    # A canvas tells of colours that are not multiplied any more.
    multiplied = (interface_pixels[..., :3] * interface_pixels[..., 3:] + 127) // 255
    return bool(np.abs(multiplied - drawn[..., :3]).max() <= 1)


def test_interface_stays_exact_over_a_slow_line(house: House, open_page: Open) -> None:
    """Letters are as sharp as ever while pictures are small and coarse."""
    server = house.browsers.server
    with slow_line(server.port, 300e3) as line:
        url = f"http://127.0.0.1:{line.port}/?token={server.token}"
        # Fonts may be on their way when the line ends.
        tab = open_page(url, expected="ERR_")
        user = house.until_user()
        house.until(lambda: state(tab)["number"] > 0)
        rect = user.layout.active.rect
        tab.mouse.move(rect.x + rect.width // 2, rect.y + rect.height // 2)
        moves = 0

        def has_coarse_pictures() -> bool:
            """Zoom on, and return whether what is shown is what a slow line has."""
            nonlocal moves
            moves += 1
            tab.mouse.wheel(0, -100 if moves % 4 < 2 else 100)
            page_state = state(tab)
            return page_state["number"] > 3 and page_state["quality"] < 85

        house.until(has_coarse_pictures)
        house.until(lambda: is_exact(tab, user))
        assert not state(tab)["lossless"]


def test_interface_is_exact_in_both_themes(house: House, open_page: Open) -> None:
    tab = open_page(local_url(house.browsers.server))
    user = house.until_user()

    def is_exact_at_rest() -> bool:
        return not user.waiting and is_exact(tab, user)

    for light in (True, False):
        user.set_light(light)
        house.until(is_exact_at_rest)
        is_light = "document.body.classList.contains('light')"
        for _ in polls("the page's own colours"):
            if tab.evaluate(is_light) is light:
                break
