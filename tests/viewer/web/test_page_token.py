"""The token of a page in a real browser: out of the address, and there where it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.pages import connected, elsewhere, until
from support.wait import turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Route
    from support.pages import Open, Viewer

CONNECTED = "splatview.state().connected"
TOKEN = "secret-Token_1"


def test_token_leaves_the_address(start: Callable[..., Viewer], open_page: Open) -> None:
    viewer = start(token=TOKEN)
    sent: list[dict[str, str]] = []

    def note(route: Route) -> None:
        sent.append({"url": route.request.url, **route.request.all_headers()})
        route.continue_()

    page, client = connected(viewer, open_page, routes={"**/*": note})
    assert page.url == page.evaluate("location.href") == viewer.bare
    page.reload()
    assert viewer.client().hello.id == client.hello.id
    until(page, CONNECTED)
    assert page.url == viewer.bare and TOKEN not in page.content()
    assert not [one for one in sent if "referer" in one] and not page.context.cookies()
    assert all("?" not in one["url"] for one in sent[1:]), "the page alone"
    with elsewhere("") as (url, heard):  # at another port of the same host
        page.evaluate("url => { location.href = url; }", url)
        page.wait_for_url(url)
        assert page.evaluate("document.referrer") == ""
    assert heard and not {"referer", "cookie"} & {*heard[0]}
    page.go_back()
    viewer.client()
    until(page, CONNECTED)
    assert page.url == viewer.bare


def test_a_page_without_the_token_says_what_to_do(start: Callable[..., Viewer], open_page: Open) -> None:
    """Of a viewer that ended, too."""
    first = start(token=TOKEN)
    page, _ = connected(first, open_page, expected="403|WebSocket connection|ERR_CONNECTION_REFUSED")
    first.close()
    second = start(first.port, token="another")
    assert second.port == first.port
    until(page, "splatview.state().notice.startsWith(\"This token is not this viewer's.\")")
    page.goto(second.url)
    second.client()
    until(page, CONNECTED)
    bare = open_page(second.bare, expected="403|WebSocket connection")
    until(bare, "splatview.state().notice.startsWith('This viewer needs a token.')")
    assert not second.arrivals()


def test_frame_of_another_site_has_the_token(start: Callable[..., Viewer], open_page: Open) -> None:
    """A notebook's: no cookie would be sent there, and none in a tab that its link opens."""
    viewer = start(token=TOKEN)
    with elsewhere(f"<iframe src='{viewer.url}' width=640 height=400></iframe>"
                   f"<a href='{viewer.url}' target=_blank rel=noopener>open</a>", "localhost") as (url, heard):
        page = open_page(url, expected="ERR_")
        viewer.client()
        page.frames[1].evaluate("location.reload()")
        viewer.client()
        with page.context.expect_page() as opened:
            page.click("text=open")
        viewer.client()
        until(opened.value, CONNECTED)
        assert opened.value.url == viewer.bare
        assert all(TOKEN not in str(headers) for headers in heard)


def test_frame_without_the_token_shows_nothing(viewer: Viewer, open_page: Open) -> None:
    """A page of another user's server, in whose frame this user's clicks would land."""
    with elsewhere(f"<iframe src='{viewer.bare}' width=640 height=400></iframe>") as (url, _):
        page = open_page(url, expected="frame|ERR_")
        for _ in turns("the frame shows an error"):
            page.wait_for_timeout(1)  # lets playwright take in what the browser reports
            if page.frames[1].url == "chrome-error://chromewebdata/":
                break
        assert viewer.arrivals() == []
