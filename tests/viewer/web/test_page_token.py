"""The token of a page in a real browser: out of the address, and there where it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.pages import connected, drawn, elsewhere, until
from support.wait import turns

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Route
    from support.pages import Open, Viewer

SCRIPT_CONNECTS = "splatview.state().connected"
TOKEN = "secret-Token_1"


def test_token_leaves_the_address(start: Callable[..., Viewer], open_page: Open) -> None:
    viewer = start(token=TOKEN)
    sent: list[dict[str, str]] = []

    def note(route: Route) -> None:
        sent.append({"url": route.request.url, **route.request.all_headers()})
        route.continue_()

    page, client = connected(viewer, open_page, expected="403|ERR_", routes={"**/*": note})
    assert page.url == viewer.bare
    assert page.evaluate("location.href") == viewer.bare
    for _ in range(2):
        page.reload()  # answered by a refusal first, with which the tab comes again
        again = viewer.client()
        assert again.hello.id == client.hello.id
        until(page, SCRIPT_CONNECTS)
        assert page.url == viewer.bare
        assert TOKEN not in page.content()
    assert not [one for one in sent if "referer" in one]
    assert all("?" not in one["url"] for one in sent if not one["url"].startswith(viewer.bare + "?")), "the page alone"
    assert not page.context.cookies()
    with elsewhere("") as other:  # at another port of the same host
        page.evaluate("url => { location.href = url; }", other.url)
        page.wait_for_url(other.url)
        assert page.evaluate("document.referrer") == ""
    assert other.headers and not {"referer", "cookie"} & {*other.headers[0]}
    page.go_back()
    viewer.client()
    until(page, SCRIPT_CONNECTS)
    assert page.url == viewer.bare


def test_token_of_a_viewer_that_ended_is_forgotten(start: Callable[..., Viewer], open_page: Open) -> None:
    first = start(token=TOKEN)
    page, _ = connected(first, open_page, expected="403|WebSocket connection|ERR_CONNECTION_REFUSED")
    first.close()
    second = start(first.port, token="another")
    assert second.port == first.port
    page.reload()
    page.wait_for_selector("#notice:visible")
    assert "not this viewer's" in page.inner_text("#notice")
    assert page.url == second.bare and not page.locator("canvas").count()
    page.reload()
    page.wait_for_selector("#notice:visible")
    assert "needs a token" in page.inner_text("#notice"), "the old one is not sent again"
    page.goto(second.url)
    second.client()
    until(page, SCRIPT_CONNECTS)
    assert not second.server.arrivals()


def test_frame_of_another_site_has_the_token(start: Callable[..., Viewer], open_page: Open) -> None:
    """A notebook's: no cookie would be sent there, and none in a tab that its link opens."""
    viewer = start(token=TOKEN)
    with elsewhere(f"<iframe src='{viewer.url}' width=640 height=400></iframe>"
                   f"<a href='{viewer.url}' target=_blank rel=noopener>open</a>", "localhost") as notebook:
        page = open_page(notebook.url, expected="403|ERR_")
        client = viewer.client()
        client.shows(drawn(client.hello.width, client.hello.height))
        frame = page.frames[1]
        assert frame.evaluate(SCRIPT_CONNECTS)
        frame.evaluate("location.reload()")
        viewer.client()
        with page.context.expect_page() as opened:
            page.click("text=open")
        viewer.client()
        until(opened.value, SCRIPT_CONNECTS)
        assert opened.value.url == viewer.bare
        assert all(TOKEN not in str(headers) for headers in notebook.headers)


def test_frame_without_the_token_shows_nothing(viewer: Viewer, open_page: Open) -> None:
    """A page of another user's server, in whose frame this user's clicks would land."""
    with elsewhere(f"<iframe src='{viewer.bare}' width=640 height=400></iframe>") as other:
        page = open_page(other.url, expected="frame|ERR_|403")
        for _ in turns("the frame shows an error"):
            page.wait_for_timeout(1)  # lets playwright take in what the browser reports
            if page.frames[1].url == "chrome-error://chromewebdata/":
                break
        assert viewer.server.arrivals() == []
    with elsewhere(f"<iframe src='{viewer.bare}?token={viewer.server.token}' width=640 height=400></iframe>") as own:
        open_page(own.url, expected="ERR_")
        viewer.client()
