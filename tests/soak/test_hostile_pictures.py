"""The real viewer draws streams with odd names and frames with odd metadata."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from support.frames import cloud
from support.pair import OtherRun
from support.wait import wait_until

from splatview_ipc.control import limits
from splatview_viewer.app.loop import App, AppOptions, step
from splatview_viewer.screens.offscreen import OffscreenScreen

NAMES = [
    "\x1b]0;x\x07\x1b[2J",
    "a\x00b",
    "\u202egnp.exe",
    "##",
    "%s%n",
    "-",
    "x" * limits.MAX_NAME,
    "\U0001f600" * 50,
]
META: list[dict[str, Any]] = [
    {"step": "text"},
    {"step": float("nan")},
    {"step": -(2**63) + 1},
    {"step": 2**63 - 1},
    {"step": (1.0, 2.0)},
    {"step": True},
    {"trouble": 5},
    {"trouble": "x" * limits.MAX_META_TEXT},
    {"trouble": "\x00\x1b[2J\u202e"},
    {"step": 1e308, "trouble": float("inf")},
    {"trouble": (1.0,)},
    {"trouble": True},
    {"loss": float("nan"), "by": 3},
]


def test_viewer_draws_each_hostile_picture(runtime_dir: Path) -> None:
    streams = {
        **dict.fromkeys(NAMES, torch.zeros(4, 6, 3, dtype=torch.uint8)),
        "splats": cloud(),
    }
    run = OtherRun()
    app = App(OffscreenScreen(320, 200), AppOptions(max_fps=500))

    def has_all_streams() -> bool:
        step(app)
        return len(app.catalogue.slots) == len(streams)

    def drawn(key: str, version: int) -> bool:
        step(app)
        slot = app.catalogue.slots[key]
        return (
            slot.entry.version == version
            and slot.view is not None
            and not slot.entry.fault
        )

    try:
        for version, meta in enumerate(META, 1):
            for name, value in streams.items():
                run.show(value, name, **meta)
            wait_until(has_all_streams, "all streams")
            for key in app.catalogue.slots:
                app.user.select(key)
                wait_until(partial(drawn, key, version), f"{key!r} with {meta}")
                for _ in range(4):
                    step(app)
    finally:
        app.close()
        run.close()
