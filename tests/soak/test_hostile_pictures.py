"""The real viewer under a run whose streams have odd names, and whose frames say odd things: it draws each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.impostor import Impostor, info
from support.wait import wait_until

from splatview_ipc.control import limits, mail, messages
from splatview_ipc.transports.cpu_ring import CpuRingWriter
from splatview_viewer.app.loop import App, AppOptions, step
from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ["\x1b]0;x\x07\x1b[2J", "a\x00b", "\u202egnp.exe", "##", "%s%n", "-", "x" * limits.MAX_NAME, "\U0001f600" * 50]
META: list[dict[str, Any]] = [
    {"step": "text"}, {"step": float("nan")}, {"step": -(2**63) + 1}, {"step": 2**63 - 1}, {"step": (1.0, 2.0)},
    {"step": True}, {"trouble": 5}, {"trouble": "x" * limits.MAX_META_TEXT}, {"trouble": "\x00\x1b[2J\u202e"},
    {"step": 1e308, "trouble": float("inf")}, {"trouble": (1.0,)}, {"trouble": True}, {"loss": float("nan"), "by": 3}]
IMAGE = {"image": torch.zeros(4, 6, 3, dtype=torch.uint8)}
SCENE = {"means": torch.randn(300, 3), "quats": torch.randn(300, 4), "scales": torch.full((300, 3), -2.0),
         "opacities": torch.zeros(300), "rgb": torch.rand(300, 3)}


class Odd(Impostor):
    """Answers as an honest run does; what it answers is odd."""

    def __init__(self) -> None:
        super().__init__(endpoint=mail.endpoint)
        self.writers: dict[int, CpuRingWriter] = {}
        self.version = 0
        self.streams = tuple(
            info(i, name=name, kind=kind, why=name, device=name[:40])
            for i, (name, kind) in enumerate([*((name, "image") for name in NAMES), ("splats", "gaussians")]))

    def turn(self) -> None:
        self.hear()
        for said in self.heard:
            if isinstance(said, messages.Hello):
                self.tell(self.welcome(), messages.Manifest(self.streams, (messages.ViewerInfo(1, "\x1b[2J\x00%s"),)))
            elif isinstance(said, messages.Open):
                if said.index not in self.writers:
                    self.writers[said.index] = CpuRingWriter(1 << 17, 3)
                self.tell(messages.Offer(said.index, "ring", self.writers[said.index].ref, "\x00note"))
        self.heard.clear()
        self.version += 1
        for index, writer in self.writers.items():
            said = META[self.version // 2 % len(META)]
            if self.streams[index].kind == "image":
                writer.write("image", IMAGE, {"layout": "HWC", **said}, self.version)
            else:
                writer.write("gaussians", SCENE, {"color": "rgb", "activated": False, **said}, self.version)
            self.control.words[self.control.version_word(index)] = self.version

    def close(self) -> None:
        for writer in self.writers.values():
            writer.close()
        super().close()


@pytest.fixture
def odd(runtime_dir: Path) -> Iterator[Odd]:
    odd = Odd()
    yield odd
    odd.close()


def test_each_is_drawn(odd: Odd) -> None:
    app = App(OffscreenScreen(320, 200), AppOptions(max_fps=500))

    def turn() -> None:
        odd.turn()
        step(app)

    wait_until(lambda: (turn(), len(app.catalogue.slots) >= len(odd.streams))[-1], "all streams")
    for key in list(app.catalogue.slots):
        app.user.select(key)

        def drawn() -> bool:
            turn()
            slot = app.user.shown
            return slot is not None and slot.view is not None and not slot.entry.fault

        wait_until(drawn, f"{key!r} is drawn")
        for _ in range(2 * len(META) + 4):  # every metadata is seen, by and by
            turn()
    app.close()
