"""A session of a page, message by message, and its requests: what any page of protocol 4 relies on.

Of pictures only the kinds without loss are told, at the end: how many come depends on the machine.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support import frozen

import splatview

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs

TYPES = {"viewer": str, "key": str, "version": str, "quality": int}
"""Fields whose values vary."""
AWAITED = {"copy it": "clipboard", "keep a picture": "offer", "keep one with nothing behind it": "offer",
           "click the other stream": "caption"}


def script(page: frozen.Page) -> dict[str, Callable[[], object]]:
    """What the user does, step by step."""
    def drag(button: str, *points: tuple[int, int]) -> None:
        page.send("press", x=points[0][0], y=points[0][1], button=button)
        for x, y in points[1:]:
            page.send("move", x=x, y=y)
        page.send("release", x=points[-1][0], y=points[-1][1], button=button)

    camera = json.dumps({"position": [1.5, -1.5, -3.5], "look_at": [0, 0.2, 0]})
    return {
        "resize": lambda: page.resize(480, 300),
        "hide the panel": lambda: page.send("key", name="h", pressed=True, mods=[], repeat=False),
        "drag": lambda: drag("left", (200, 150), (230, 150), (260, 170)),
        "drag with the right button": lambda: drag("right", (200, 150), (220, 160)),
        "wheel": lambda: page.send("wheel", x=240, y=150, dx=0, dy=2),
        "pinch": lambda: page.send("pinch", x=240, y=150, factor=1.2, dx=3, dy=0, turn=0.1),
        "paste a camera": lambda: page.send("text", text=camera),
        "copy it": lambda: page.send("key", name="c", pressed=True, mods=["ctrl"], repeat=False),
        "keep a picture": lambda: page.send("screenshot"),
        "keep one with nothing behind it": lambda: page.send(
            "key", name="s", pressed=True, mods=["shift", "ctrl"], repeat=False),
        "leave": lambda: page.send("leave"),
        "hide and show the tab": lambda: [page.send("visible", on=on) for on in (False, True)],
        "show the panel": lambda: page.send("key", name="h", pressed=True, mods=[], repeat=False),
        "click the other stream": lambda: page.click(100, 77),
    }


def plain(message: dict[str, Any]) -> str:
    """The message without what varies."""
    fields = {key: TYPES[key].__name__ if key in TYPES else value for key, value in message.items() if key != "number"}
    if message["t"] == "clipboard":
        fields["text"] = sorted(json.loads(message["text"]))
    if message["t"] == "offer":
        fields["size"] = "int"
    if message["t"] == "picture":
        fields |= {"at": "of an event, or 0", "format": "str"}
    return re.sub(rf"\b{os.getpid()}\b", "PID", json.dumps(fields, ensure_ascii=False))


@pytest.fixture
def page(programs: Programs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A tab of a viewer of this process's run."""
    monkeypatch.setenv("SPLATVIEW_NAME", "train")
    splatview.publish({name: torch.from_numpy(part) for name, part in frozen.scene().items()}, step=7)
    splatview.publish(frozen.picture(), "render", step=7)
    where = frozen.serve(programs, XDG_STATE_HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    with frozen.opened(where, frozen.WIDE) as page:
        yield page


def test_session_is_as_frozen(page: frozen.Page) -> None:
    said: list[str] = []
    pictures: set[str] = set()

    def take(title: str, act: Callable[[], object]) -> None:
        act()
        if title in AWAITED and AWAITED[title] not in [m["t"] for m in page.heard]:
            page.until(lambda m: m.get("t") == AWAITED[title])
        page.settle()
        said.extend([f"-- {title}", *(f"> {json.dumps(m)}" for m in page.said if m["t"] != "ack")])
        said.extend(f"< {plain(m)}" for m in page.heard if m["t"] != "picture")
        pictures.update(f"< {plain(m)}" for m in page.heard if m["t"] == "picture" and m["lossless"])
        page.said.clear()
        page.heard.clear()

    page.until(lambda m: m.get("lossless"))
    take("open", lambda: any("gaussians" in m.get("title", "") for m in page.heard) or page.until(
        lambda m: m.get("t") == "caption" and "gaussians" in m["title"]))
    for title, act in script(page).items():
        take(title, act)
    frozen.check_text("session.txt", "\n".join([*said, "-- pictures without loss", *sorted(pictures)]) + "\n")


def test_requests_are_as_frozen(page: frozen.Page) -> None:
    welcome = page.heard[0]
    found: dict[str, Any] = {}
    for path in ("", "viewer.js", "files.js", "session.js", "viewer.css", "favicon.svg", "nothing"):
        status, headers, _ = page.ask("GET", "/" + path)
        found[f"GET /{path}"] = status, headers["Content-Type"].partition(";")[0]
    png = (frozen.FOLDER / "image-uint8.png").read_bytes()
    upload = "/upload?name=sent.png"
    found["POST /upload without the page's key"] = page.ask("POST", upload, png)[0]
    found["POST /upload"] = page.ask("POST", upload, png, **{"X-Splatview-Page": welcome["key"]})[0]
    found["caption"] = page.until(lambda m: m.get("t") == "caption" and "sent" in m["title"])["title"]
    found["no hello"] = [plain(m) if isinstance(m, dict) else m for m in page.refusal("hello")]
    frozen.check_text("requests.json", json.dumps(found, indent=1) + "\n")
