"""A viewer that others may reach: who has the address with the token gets in."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from support.pages import drawn, until
from support.whole import IMAGE, Stage, comes, is_like, open_at, placed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.pages import Open


@pytest.mark.soak
def test_only_the_printed_address_gets_in(stage: Stage, open_page: Open, tmp_path: Path,
                                          picture_of: Callable[..., np.ndarray]) -> None:
    image = drawn(310, 266, 5)
    np.save(tmp_path / "image.npy", image)
    stage.trainer(IMAGE, tmp_path / "image.npy")
    program = stage.viewer("--host", "127.0.0.1")
    token = parse_qs(urlsplit(program.url).query)["token"][0]
    assert len(token) >= 16

    bare = program.url.split("?")[0]
    for url in (bare, f"{bare}?token={token[:-1]}"):
        page = open_page(url, expected="403")
        assert "token" in page.inner_text("body")
        assert not page.locator("canvas").count()
    picture_of(page, "viewer-token")

    page = open_at(program.url, open_page, expected="403|WebSocket connection|ERR_CONNECTION_REFUSED")
    comes(page, is_like(placed(image, 0, 1, 2)))

    program.kill()  # the next one has another token
    other = stage.viewer("--host", "127.0.0.1", port=program.port)
    assert other.port == program.port and other.url != program.url
    until(page, "splatview.state().notice.includes('token')")
    picture_of(page, "viewer-token-changed")
