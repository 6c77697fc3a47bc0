"""`splatview.show`: what it displays, which viewer it takes, and what it says when
there is none.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import splatview
from splatview_ipc.control import registry
from splatview_ipc.control.errors import NoViewerError
from splatview_ipc.control.registry import Announcement

URL = "http://127.0.0.1:7007/"


def test_show_embeds_a_running_viewer_in_a_frame(
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = URL + "?token=a&b=c"
    with Announcement(url, host="127.0.0.1", port=7007):
        page = splatview.show()
        wide = splatview.show(800, "50vh")
    for page_of_size, size in (
        (page, "width: 100%; height: 600px"),
        (wide, "width: 800px; height: 50vh"),
    ):
        html = page_of_size._repr_html_()
        style = f"{size}; border: 0; display: block"
        assert f'<iframe src="{URL}?token=a&amp;b=c" style="{style}"' in html
    assert page.url == url
    assert capsys.readouterr().out.count(url) == 2, (
        "a script's call prints what a prompt would show"
    )


def test_show_prints_the_tunnel_command_over_ssh(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Announcement("http://127.0.0.1:7011/", host="127.0.0.1", port=7011):
        monkeypatch.delenv("SSH_CONNECTION", raising=False)
        assert "ssh" not in splatview.show()._repr_html_()
        monkeypatch.setenv("LOGNAME", "someone")
        monkeypatch.setattr(registry, "is_own_address", bool)
        for port, option in ((22, ""), (2222, " -p 2222")):
            monkeypatch.setenv("SSH_CONNECTION", f"10.0.0.1 50000 10.0.0.2 {port}")
            page = splatview.show()
            for text in (page._repr_html_(), repr(page)):
                assert f"ssh -L 7011:127.0.0.1:7011{option} someone@10.0.0.2)" in text


def test_show_takes_the_viewer_that_follows_the_same_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        Announcement(URL, host="127.0.0.1", port=7007),
        Announcement("http://127.0.0.1:7008/", host="127.0.0.1", port=7008, run="42"),
    ):
        assert splatview.show().port == 7007
        for run in (42, "42"):
            assert splatview.show(run=run).port == 7008


@pytest.mark.programs
def test_show_says_why_a_viewer_cannot_start(
    monkeypatch: pytest.MonkeyPatch, runtime_dir: Path
) -> None:
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", str(runtime_dir / "none.json"))
    with pytest.raises(NoViewerError, match=r"ended with code 2: .*OpenGL"):
        splatview.show()
    assert list(runtime_dir.iterdir()) == []
