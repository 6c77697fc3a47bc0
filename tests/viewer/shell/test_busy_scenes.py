"""Films, comparisons, new versions and more beside a picture in steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from support.house import House
from support.scene_files import ply_columns, truth, write_ply
from support.stepped import (
    Gate,
    begin_picture,
    draw_in_steps,
    is_like_one_drawn_at_once,
    published_page,
    scene_values,
    until_final,
    view_of,
)

import splatview
from splatview_ipc.control.frame import StreamFrame
from splatview_viewer.app.loop import step
from splatview_viewer.core import events as ev
from splatview_viewer.kinds.gaussians import arrivals
from splatview_viewer.kinds.gaussians.select import Select


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return draw_in_steps(monkeypatch)


def test_version_is_copied_while_the_loop_turns(
    gate: Gate, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_copy = threading.Event()
    scene_of = arrivals.scene_of
    copied_versions = []

    def scene_of_late(frame: StreamFrame, choices: frozenset[str]) -> object:
        copied_versions.append(frame.version)
        may_copy.wait(60)
        return scene_of(frame, choices)

    splatview.publish(scene_values(0.0), "scene", meta={"step": 1})
    with House() as house:
        _, user, view = published_page(house)
        slot = user.shown
        assert slot is not None

        def has_step_1() -> bool:
            return slot.source.step == 1

        house.until(has_step_1)
        loads = view.data.loads

        def has_loaded(count: int) -> bool:
            return view.data.loads == loads + count

        monkeypatch.setattr(arrivals, "scene_of", scene_of_late)
        splatview.publish(scene_values(0.5), "scene", meta={"step": 2})
        house.until(lambda: view.data.frames.copier.frame is not None)
        splatview.publish(scene_values(1.0), "scene", meta={"step": 3})
        for _ in range(5):
            step(house.app)
        assert (view.data.loads, slot.source.step) == (loads, 1)
        may_copy.set()
        house.until(partial(has_loaded, 1))
        assert slot.source.step == 2
        house.until(partial(has_loaded, 2))
        assert slot.source.step == 3
    assert len(set(copied_versions)) == len(copied_versions) == 2


def test_scene_grows_and_vanishes_while_a_picture_is_in_steps(
    gate: Gate, runtime_dir: Path
) -> None:
    splatview.publish(scene_values(0.0), "scene")
    with House() as house:
        page, user, view = published_page(house)
        for count in (3000, 0):
            begin_picture(house, user, gate)
            splatview.publish(scene_values(0.5, count), "scene")
            for _ in range(4):
                step(house.app)
            gate.is_open = True

            def is_shown(count: int = count) -> bool:
                summary = view.data.summary
                return summary is not None and summary.count == count

            house.until(is_shown)
            picture = until_final(house, page)
            rect = user.layout.active.rect
            assert is_like_one_drawn_at_once(house, page, picture, rect)


class BusyPage:
    """A page that does other things while its picture is in steps."""

    def __init__(self, house: House, gate: Gate, files: list[Path]) -> None:
        self._house = house
        self._gate = gate
        self._page, self._user, _ = published_page(house)
        self._key = self._user.layout.active.key
        self._other_key = next(str(f) for f in files if str(f) != self._key)

    def do(self, action: Callable[[BusyPage], None]) -> None:
        """Do something, and wait until the scene is shown again, without a fault."""
        begin_picture(self._house, self._user, self._gate)
        action(self)
        self._gate.is_open = True
        self._house.until(lambda: self._user.view is not None)
        until_final(self._house, self._page)
        assert self._user.layout.active.key == self._key
        assert not any(entry.fault for entry in self._house.app.state.entries)

    def _take_turns(self) -> None:
        for _ in range(3):
            step(self._house.app)

    def keep_picture(self) -> None:
        self._user.layout.active.keep_picture()

    def hide_and_undo(self) -> None:
        select = view_of(self._user).tools.of(Select)
        select.choose(np.arange(200) < 50, "new")
        self._user.mark()
        step(self._house.app)
        select.hide()
        self._user.mark()
        step(self._house.app)
        for pressed in (True, False):
            self._page.send(ev.Key("z", pressed, mods=frozenset({"ctrl"}), at=50.0))

    def film(self) -> None:
        path = view_of(self._user).path
        self._user.layout.active.run_named("path.around")
        path.film = replace(path.film, width=64, height=48, fps=1.0)
        path.film_maker.as_frames = True
        path.film_maker.start()
        self._house.until(lambda: path.film_maker.filming is None)

    def show_beside_and_close(self) -> None:
        first = self._user.layout.active
        self._user.show_beside(self._key)
        step(self._house.app)
        self._user.on_viewport(type(self._user.layout).remove, first)

    def split(self) -> None:
        self._compare("pair")

    def show_together(self) -> None:
        self._compare("together")

    def _compare(self, mode: str) -> None:
        self._user.compare(mode, self._other_key)
        self._take_turns()
        self._gate.is_open = True
        self._house.until(lambda: self._user.view is not None)
        self._house.final_picture(self._page)
        self._user.select(self._key)

    def show_on_another_page(self) -> None:
        other_page = self._house.page(300, 420)
        self._house.users[other_page].select(self._key)
        self._take_turns()


def test_picture_in_steps_leaves_all_else_to_be_done(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = []
    for seed, name in enumerate(("first", "second")):
        columns = ply_columns(truth(200, seed=seed))
        files.append(write_ply(tmp_path / f"{name}.ply", columns))
    with House(*files) as house:
        busy_page = BusyPage(house, gate, files)
        busy_page.do(BusyPage.keep_picture)
        busy_page.do(BusyPage.hide_and_undo)
        busy_page.do(BusyPage.film)
        busy_page.do(BusyPage.show_beside_and_close)
        busy_page.do(BusyPage.split)
        busy_page.do(BusyPage.show_together)
        busy_page.do(BusyPage.show_on_another_page)
