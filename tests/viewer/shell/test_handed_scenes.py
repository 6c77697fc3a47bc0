"""Scenes that pages draw by themselves, in a viewer with real connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
import torch
from support.array_snapshots import array_snapshot
from support.frames import scene as make_scene
from support.house import House
from support.scene_files import alpha_of, ply_columns, truth, write_ply
from support.wait import clock
from support.web_clients import Page

from splatview_viewer.core import events as ev
from splatview_viewer.core.handed import HandedLook, HandedPlace
from splatview_viewer.core.screen import Rect
from splatview_viewer.core.selection import EVERYTHING
from splatview_viewer.kinds.gaussians.inspect import Inspect
from splatview_viewer.recording.packed import (
    Packed,
    pack,
    read_packed,
    unpack,
    write_packed,
)
from splatview_viewer.recording.recording import Recording, SceneSnapshot, StreamFolder
from splatview_viewer.render.activation import activate
from splatview_viewer.scene.selecting import mask_of
from splatview_viewer.shell.user import User
from splatview_viewer.web import messages as m

COUNT = 3000


class ScenePage(NamedTuple):
    """A page that draws by itself, and its user."""

    house: House
    page: Page
    user: User

    @property
    def pane(self) -> int:
        return self.user.layout.active.number

    @property
    def view(self) -> Any:
        """The view of its pane."""
        pane_view = self.user.view
        assert pane_view is not None
        return pane_view.view

    @property
    def handed(self) -> m.HandedScene:
        return self.page.scenes.handed[self.pane]

    def camera_place(self) -> HandedPlace:
        drawing = self.handed.drawing
        assert drawing is not None
        return drawing.place

    def handed_look(self) -> HandedLook | None:
        """Return how the page draws the pane; None where it does not."""
        if self.handed.drawing is None:
            return None
        return self.handed.drawing.look

    def await_place(self, **expected: Any) -> None:
        """Wait until the place that the page has is so."""

        def is_there() -> bool:
            place_fields = msgspec.structs.asdict(self.camera_place())
            return place_fields.items() >= expected.items()

        self.house.until(is_there)

    def draws(self) -> bool:
        """Return whether the page draws the pane by itself."""
        return self.handed.drawing is not None

    def gets_pictures(self) -> bool:
        return self.page.waiting > 0

    def has_viewer_picture(self) -> bool:
        return not self.view.picture.is_empty

    def has_drawn(self) -> bool:
        drawn = self.page.scenes.drawn.get(self.pane)
        return drawn is not None and drawn.header.count == COUNT

    def is_settled(self) -> bool:
        """Return whether nothing is left to draw or to send."""
        return not self.user.waiting and not self.user.schedule.pictures_dirty

    def change(self, **fields: Any) -> None:
        self.view.change(**fields)
        self.user.mark()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[ScenePage]:
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(COUNT)))
    with House(scene) as house:
        page = house.page(900, 520)
        page.send(m.Draws(on=True))
        new_reader = ScenePage(house, page, house.users[page])
        house.until(new_reader.has_drawn)
        house.until(new_reader.is_settled)
        while page.next_picture():
            pass
        yield new_reader


def test_new_numbers_wait_beside_what_a_page_draws(reader: ScenePage) -> None:
    user = reader.user
    schedule = user.schedule
    assert user.draws_aside
    # A time to come, at which the interfaces of all pages are due.
    due = 2.0 * round(clock())
    while not schedule.kept_boards.may_stay:
        schedule.kept_boards.count_drawing(due)
    user.pace.draw_interface(due + 100.1)
    user.mark_pictures()
    assert schedule.next_interface(due + 100.2) == due + 100.25
    account = reader.house.app.work.governor.account
    account.shared = True
    assert schedule.next_interface(due + 100.2) == due + 102
    user.mark_interface()
    assert schedule.next_interface(due + 100.2) < due + 100.2
    account.shared = False


def test_page_draws_the_scene_and_moves_its_camera(reader: ScenePage) -> None:
    house, page, user = reader
    page_scene = page.scenes.scene(reader.pane)
    means = torch.from_numpy(truth(COUNT).means)
    torch.testing.assert_close(page_scene.means.float(), means, atol=1e-4, rtol=0)
    # The page's hand.
    start = reader.camera_place()
    sent_bytes = page.scenes.bytes
    for move_number in (1, 2):
        distance = start.distance / 2**move_number
        moved_place = msgspec.structs.replace(start, distance=distance)
        page.send(ev.Placed(pane=reader.pane, number=move_number, place=moved_place))

    def is_there() -> bool:
        drawing = reader.handed.drawing
        return drawing is not None and drawing.placed == 2

    house.until(is_there)
    assert reader.camera_place() == moved_place
    assert reader.view.state.place.orbit.distance == moved_place.distance
    assert reader.view.state.place.by_hand
    # The viewer's own ways of moving it.
    user.history.undo()
    reader.await_place(distance=start.distance)
    reader.view.rig.set_lens("fisheye", 80.0)
    user.mark()
    reader.await_place(model="fisheye")
    assert page.scenes.bytes == sent_bytes
    assert page.waiting == 0
    assert reader.view.picture.is_empty, "nothing was drawn for it"


def test_what_is_chosen_is_marked_in_the_interface(reader: ScenePage) -> None:
    house, page, user = reader
    rect = user.layout.active.rect

    def covered_pixels() -> int:
        interface = house.interface(page)
        assert interface is not None
        rows = slice(rect.y, rect.y + rect.height)
        columns = slice(rect.x, rect.x + rect.width)
        return int(np.count_nonzero(interface[rows, columns, 3]))

    initial = covered_pixels()

    def is_marked() -> bool:
        return covered_pixels() > initial + 1000

    reader.change(chosen=mask_of(np.ones(COUNT, bool)))
    house.until(is_marked)
    assert reader.handed.drawing is not None
    assert page.waiting == 0


def test_what_is_inspected_stands_out_in_the_page(reader: ScenePage) -> None:
    """Among all, and where others are not sent."""
    house, page, _ = reader
    sent_bytes = page.scenes.bytes
    opacities = alpha_of(truth(COUNT).opacities)
    index = int(np.flatnonzero(opacities >= 0.5)[-1])

    def is_marked() -> bool:
        means = page.scenes.marked_means(reader.pane)
        expected = truth(COUNT).means[[index]]
        return means.shape == (1, 3) and np.allclose(means, expected, atol=1e-4)

    reader.view.tools.of(Inspect).choose(index)
    reader.user.mark()
    house.until(is_marked)
    assert page.scenes.bytes == sent_bytes
    selection = replace(reader.view.state.selection, opacity=(0.5, 1.0))
    reader.change(selection=selection)

    def shows_fewer() -> bool:
        return page.scenes.drawn[reader.pane].header.count < COUNT

    house.until(shows_fewer)
    house.until(is_marked)
    reader.view.tools.of(Inspect).choose(None)
    reader.user.mark()

    def is_unmarked() -> bool:
        return not page.scenes.drawn[reader.pane].marked

    house.until(is_unmarked)
    assert page.waiting == 0
    assert reader.view.picture.is_empty, "nothing was drawn for it"


def test_legend_has_the_range_that_the_page_measures(reader: ScenePage) -> None:
    house, page, _ = reader

    def measures() -> bool:
        handed_look = reader.handed_look()
        if handed_look is None or handed_look.paint != "depth":
            return False
        return handed_look.range is None

    reader.change(show="depth")
    house.until(measures)
    house.until(reader.is_settled)
    assert not reader.view.writes_about_picture()
    # Of another pane, of what is not shown any more, and no range.
    page.send(ev.Ranged(pane=reader.pane + 99, show="depth", low=1, high=2))
    page.send(ev.Ranged(pane=reader.pane, show="overdraw", low=0, high=9))
    with pytest.raises(ValueError, match="above"):
        ev.Ranged(pane=reader.pane, show="depth", low=4, high=3)
    ends = (1.5, 4.25)
    page.send(ev.Ranged(pane=reader.pane, show="depth", low=1.5, high=4.25))

    def has_range() -> bool:
        return reader.view.number_range == ends

    house.until(has_range)
    house.until(reader.is_settled)
    assert reader.view.writes_about_picture()
    assert "depth 1.5 to 4.25" in reader.view.tools.details()
    reader.change(show="overdraw")
    house.until(reader.is_settled)
    assert not reader.view.writes_about_picture(), "another range is on its way"
    reader.change(show="depth", depth_range=(1.0, 3.0))

    def is_given() -> bool:
        handed_look = reader.handed_look()
        return handed_look is not None and handed_look.range == (1.0, 3.0)

    house.until(is_given)
    assert page.waiting == 0
    assert reader.view.picture.is_empty, "nothing was drawn for it"


def test_hidden_gaussians_are_not_sent(reader: ScenePage) -> None:
    house, page, _ = reader
    opaque = alpha_of(truth(COUNT).opacities) >= 0.5
    selection = replace(EVERYTHING, opacity=(0.5, 1.0))

    def shows(count: int) -> bool:
        return page.scenes.drawn[reader.pane].header.count == count

    reader.change(selection=selection)
    house.until(partial(shows, int(opaque.sum())))
    page_scene = page.scenes.scene(reader.pane)
    expected = torch.from_numpy(truth(COUNT).means[opaque])
    torch.testing.assert_close(page_scene.means.float(), expected, atol=1e-4, rtol=0)
    reader.change(selection=replace(selection, opacity=(0.99999, 1.0)))
    house.until(partial(shows, 0))
    reader.change(selection=EVERYTHING)
    house.until(partial(shows, COUNT))
    assert page.waiting == 0


def test_what_the_viewer_has_to_draw_comes_as_pictures(reader: ScenePage) -> None:
    house, page, _ = reader
    selection = reader.view.state.selection
    reader.change(selection=replace(selection, marked=tuple(range(5000))))
    house.until(reader.gets_pictures)
    assert reader.handed.drawing is None
    assert "marked" in reader.handed.reason
    sent_bytes = page.scenes.bytes
    reader.change(selection=selection)
    house.until(reader.draws)
    assert page.scenes.bytes == sent_bytes, "the page has kept it"
    page.send(m.Draws(on=False))
    house.until(reader.has_viewer_picture)

    def gets_blocks() -> bool:
        return page.scenes.bytes > sent_bytes

    page.send(m.Draws(on=True))
    house.until(gets_blocks)


def test_what_no_page_should_send_changes_nothing(reader: ScenePage) -> None:
    house, page, _ = reader
    start = reader.view.state.place.orbit
    far_place = msgspec.structs.replace(
        reader.camera_place(), distance=1e9, target=(1e12, 0, 0)
    )

    def draws_fewer() -> bool:
        return page.scenes.drawn[reader.pane].header.count < COUNT

    def is_far() -> bool:
        return reader.view.state.place.orbit.distance == 1e9

    page.send(ev.Placed(pane=reader.pane + 99, number=1, place=far_place))
    page.send(m.Taken(0xFFFFFFFF))
    page.send(m.Taken(0))
    page.send(m.Draws(on=True, max_gaussians=1))
    house.until(draws_fewer)
    assert reader.view.state.place.orbit == start
    # As far as a hand can go, the camera is still one.
    page.send(ev.Placed(pane=reader.pane, number=2, place=far_place))
    house.until(is_far)
    camera = reader.view.rig.camera_of_scene(Rect(0, 0, 100, 100))
    assert np.isfinite(camera.viewmat).all()


def test_a_page_that_comes_back_gets_all_anew(reader: ScenePage) -> None:
    house, page, user = reader
    handing = reader.view.data.handing

    def has_left() -> bool:
        return user not in house.app.users

    page.end()
    house.until(has_left)
    assert handing.held_bytes == 0
    page = house.page(900, 520, id="page1")
    returned = ScenePage(house, page, user)
    assert house.users[page] is user
    house.until(returned.gets_pictures)
    page.send(m.Draws(on=True))
    house.until(returned.has_drawn)


def recorded_folder(folder: Path) -> tuple[Path, list[Packed]]:
    """Record three snapshots of growing scenes; the second is of an earlier form."""
    snapshots = []
    with closing(StreamFolder(folder, "run", "splats")) as stream_folder:
        recording = Recording(limit=10**9, folder=stream_folder)
        for serial in (1, 2, 3):
            scene = make_scene(1000 * serial, seed=serial)
            path = stream_folder.path / recording.next_file
            if serial == 2:
                path.write_bytes(array_snapshot(scene))
            else:
                write_packed(path, pack(scene))
            size = path.stat().st_size
            recording.add(
                SceneSnapshot(path.name, serial, serial, serial, len(scene), size)
            )
            snapshots.append(read_packed(path))
        stream_folder.write_index(1.0, recording.snapshots)
    return stream_folder.path, snapshots


def test_page_draws_the_snapshots_of_a_recording(tmp_path: Path) -> None:
    folder, snapshots = recorded_folder(tmp_path)
    with House(folder) as house:
        page = house.page(900, 520)
        page.send(m.Draws(on=True))
        reader = ScenePage(house, page, house.users[page])

        def has_all_of(packed: Packed) -> bool:
            drawn = page.scenes.drawn.get(reader.pane)
            if drawn is None or drawn.header.count != len(packed):
                return False
            return ("harmonics", 0) in drawn.blocks

        for packed in reversed(snapshots):
            house.until(partial(has_all_of, packed))
            expected = activate(unpack(packed))[0]
            page_scene = page.scenes.scene(reader.pane)
            for name in ("means", "scales", "opacities", "shN"):
                got = getattr(page_scene, name).float()
                wanted = getattr(expected, name)
                torch.testing.assert_close(got, wanted, rtol=5e-3, atol=5e-3)
            drawn = page.scenes.drawn[reader.pane]
            if packed.blocks is not None:
                # The page has the very bytes of the file.
                assert drawn.blocks["exact", 0] == packed.blocks.exact[0].tobytes()
                assert drawn.header.origin == packed.blocks.origin
            reader.view.tools["history"].move(-1)
