"""Scenes on their way to pages that draw them by themselves."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from support.scene_pages import PageScenes
from support.wait import polls

from splatview_viewer.blocks.layout import BLOCK
from splatview_viewer.blocks.packing_request import (
    STALLED_S,
    PackingForm,
    PackingTerms,
    SceneToPack,
    VersionFacts,
)
from splatview_viewer.blocks.versions import MOST_PACKINGS, PackedVersions
from splatview_viewer.core.handed import (
    HandedDrawing,
    HandedLook,
    HandedOn,
    HandedPlace,
)
from splatview_viewer.core.screen import HandedPane
from splatview_viewer.geometry.cameras import Camera
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.web import messages as m
from splatview_viewer.web.scene_pace import ScenePace
from splatview_viewer.web.scene_sender import SceneSender

PANE = 7
CAMERA_PLACE = HandedPlace(
    rotation=(1.0, 0, 0, 0, 1, 0, 0, 0, 1),
    target=(0.0, 0, 0),
    distance=1.0,
    up=(0.0, -1, 0),
    fov=60.0,
    model="pinhole",
    near=0.01,
    far=1e10,
)
PANE_LOOK = HandedLook(
    paint="color",
    mode="classic",
    sh_degree=None,
    scale=1.0,
    point_reach=2.0,
    background=(0.0, 0.0, 0.0),
)
DRAWING = HandedDrawing(
    place=CAMERA_PLACE,
    camera=None,
    placed=0,
    look=PANE_LOOK,
    navigates=True,
    looks_around=False,
    covered=(),
)
SLOW = 2e4
"""Bytes a second of a line that carries a block in a second."""


def make_scene(count: int, degree: int = 0, seed: int = 0) -> GaussianScene:
    random = torch.Generator().manual_seed(seed)

    def normal_values(*shape: int) -> torch.Tensor:
        return torch.randn(count, *shape, generator=random)

    coefficients = (degree + 1) ** 2 - 1
    return GaussianScene(
        means=normal_values(3),
        quats=normal_values(4),
        scales=normal_values(3) - 4,
        opacities=normal_values(),
        sh0=normal_values(3),
        shN=normal_values(coefficients, 3) * 0.1,
        sh_degree=degree,
    )


class TrainedScene:
    """A scene that the viewer has, whose versions follow each other."""

    def __init__(self) -> None:
        self.versions = PackedVersions()
        self.scene = make_scene(0)
        self.readings = 0
        self.now = 0.0
        """Time of the thread that draws."""

    def show(self, scene: GaussianScene) -> None:
        self.scene = scene
        version_facts = VersionFacts(
            0, len(scene), scene.sh_degree, False, (0.0, 0.0, 0.0)
        )
        self.versions.put(version_facts)

    def tick(self) -> None:
        """Do what the thread that draws does in each turn."""
        self.versions.start_requested(self._read, self.now)

    def _read(self) -> SceneToPack:
        self.readings += 1
        return SceneToPack(self.scene, None)


class LinedPage:
    """A page on a line of some pace, and its sender."""

    def __init__(self, trainer: TrainedScene, rate: float = 1e9) -> None:
        self.trainer = trainer
        self.now = 0.0
        self.rate = rate
        self._woken = threading.Event()
        self.sender = SceneSender(self.wake, self.wake)
        self.page = PageScenes(self.hear)
        self.sender.begin(6_000_000)
        self.hand(HandedOn(DRAWING, trainer.versions))
        self._announced: m.Blocks | m.PanePhoto | None = None
        self._data = b""

    def wake(self) -> None:
        """Stand for both threads, which are the test's."""
        self._woken.set()

    def hear(self, message: m.ClientMessage) -> None:
        assert isinstance(message, m.Taken)
        self.sender.note_taken(message.number, self.now)

    def hand(self, *handed: HandedOn) -> None:
        panes = [HandedPane(PANE + k, handed_on) for k, handed_on in enumerate(handed)]
        self.sender.put(panes)

    def take_message(self) -> bool:
        """Take one message; return whether there was one."""
        self.trainer.tick()
        messages = self.sender.next(self.now)
        for message in messages or ():
            self._take(message)
        return messages is not None

    def _take(self, message: Any) -> None:
        if isinstance(message, (m.Blocks, m.PanePhoto)):
            self._announced = message
            self._data = b""
        elif isinstance(message, bytes):
            assert self._announced is not None
            assert len(message) <= 48 * 1024
            self.now += len(message) / self.rate
            self._data += message
            if len(self._data) == self._announced.bytes:
                self.page.take(self._announced, self._data)
        else:
            self.page.take(message)

    def run_until(self, condition: Callable[[], Any]) -> None:
        for _ in polls("the page's scene", pauses=False):
            if condition():
                return
            if not self.take_message():
                self._woken.wait(0.01)
                self._woken.clear()

    def await_bytes(self, count: int = 1) -> None:
        """Go on until so many bytes of blocks have come."""

        def has_come() -> bool:
            return self.page.bytes >= count

        self.run_until(has_come)

    def draws(self) -> bool:
        """Return whether the pane is drawn."""
        return PANE in self.page.drawn

    def shows(self, pane: int, count: int) -> bool:
        """Return whether so many Gaussians are drawn in a pane."""
        drawn = self.page.drawn.get(pane)
        return drawn is not None and drawn.header.count == count

    def settle(self) -> None:
        """Go on until the page has all of the newest version, exactly."""

        def has_all() -> bool:
            drawn = self.page.drawn.get(PANE)
            newest = self.trainer.versions.newest
            if drawn is None or newest is None:
                return False
            header = drawn.header
            if header.version != newest.version_number:
                return False
            if header.count < newest.gaussians:
                return False
            is_exact = header.form == "exact" or not newest.gaussians
            return is_exact and (header.has_harmonics or not newest.coefficients)

        self.run_until(has_all)


@pytest.fixture
def trainer() -> Iterator[TrainedScene]:
    trainer = TrainedScene()
    yield trainer
    trainer.versions.close()


def test_a_quick_line_brings_the_whole_scene_at_once(trainer: TrainedScene) -> None:
    scene = make_scene(2 * BLOCK + 5, degree=3)
    trainer.show(scene)
    reader = LinedPage(trainer)
    reader.settle()
    (header,) = reader.page.passes
    assert (header.form, header.has_harmonics) == ("exact", True)
    assert header.count == len(scene)
    page_scene = reader.page.scene(PANE)
    torch.testing.assert_close(page_scene.means.float(), scene.means)
    torch.testing.assert_close(page_scene.shN, scene.shN, atol=2e-3, rtol=0)
    assert not reader.take_message(), "there is nothing more to send"


def test_a_slow_line_gets_the_most_important_first_then_all(
    trainer: TrainedScene,
) -> None:
    scene = make_scene(80 * BLOCK)
    trainer.show(scene)
    reader = LinedPage(trainer, SLOW)
    reader.settle()
    first, *later_passes = reader.page.passes
    assert first.count < first.total == len(scene)
    assert [(b.form, b.refines, b.count) for b in later_passes] == [
        ("quick", False, len(scene)),
        ("exact", True, len(scene)),
    ]
    torch.testing.assert_close(reader.page.scene(PANE).means.float(), scene.means)


def test_a_version_that_rested_gives_way_to_the_next(trainer: TrainedScene) -> None:
    """All of it would take many seconds."""
    trainer.show(make_scene(300 * BLOCK))
    page = LinedPage(trainer, 5e5)
    page.run_until(page.draws)
    bytes_of_part = page.page.bytes
    page.await_bytes(bytes_of_part + 1)
    trainer.show(make_scene(300 * BLOCK))
    newest = trainer.versions.newest
    assert newest is not None

    def draws_newest() -> bool:
        return page.page.drawn[PANE].header.version == newest.version_number

    page.run_until(draws_newest)
    assert page.page.dropped == 1
    assert page.page.bytes < 3 * bytes_of_part


def test_what_is_seen_large_and_opaque_comes_first(trainer: TrainedScene) -> None:
    scene = make_scene(3 * BLOCK)
    important = torch.arange(0, 3 * BLOCK, 3)
    scene.opacities[:] = -2.0
    scene.opacities[important] = 2.0
    unseen = important[::2]
    scene.means[:] = torch.tensor([0.0, 0.0, 5.0])
    scene.means[unseen] = torch.tensor([0.0, 0.0, -5.0])
    scene.scales[:] = -4.0
    K = np.array([[100.0, 0, 50], [0, 100, 50], [0, 0, 1]])
    trainer.versions.watch_from([Camera(np.eye(4), K, 100, 100)])
    trainer.show(scene)
    reader = LinedPage(trainer)
    reader.sender.begin(BLOCK)
    reader.run_until(reader.draws)
    page_scene = reader.page.scene(PANE)
    assert len(page_scene) == BLOCK
    has_high_opacity = page_scene.opacities > 0.8
    assert has_high_opacity.sum() == len(important) - len(unseen), "those in view"


def test_what_stands_out_follows_the_order_that_was_sent(trainer: TrainedScene) -> None:
    """In the part that a slow line has got, in the rest while it comes, and in all."""
    scene = make_scene(80 * BLOCK)
    trainer.show(scene)
    reader = LinedPage(trainer, SLOW)
    reader.run_until(reader.draws)
    first = reader.page.drawn[PANE].header
    assert first.count < len(scene)
    sent_means = reader.page.scene(PANE).means.float()
    distances = torch.cdist(sent_means[[5, 9]], scene.means)
    indices = distances.argmin(1)
    expected = scene.means[indices].numpy()
    marked = tuple(sorted(indices.tolist()))

    def differs() -> float:
        """Return how far what stands out is from what should, at most."""
        means = reader.page.marked_means(PANE)
        if means.shape != expected.shape:
            return math.inf
        return float(np.abs(means - expected[expected[:, 0].argsort()]).max())

    reader.hand(HandedOn(DRAWING, trainer.versions, marked=marked))
    sent_bytes = reader.page.bytes
    reader.take_message()
    assert reader.page.bytes == sent_bytes, "a message of a few numbers"
    assert differs() < 0.01
    reader.settle()
    assert reader.page.drawn[PANE].header.count == len(scene)
    assert differs() < 0.01
    # Places that the scene does not have do not count.
    reader.hand(HandedOn(DRAWING, trainer.versions, marked=(len(scene), 2**40)))

    def has_none() -> bool:
        return not reader.page.drawn[PANE].marked

    reader.run_until(has_none)


def test_versions_never_mix_while_training_goes_on(trainer: TrainedScene) -> None:
    """Each Gaussian of a version has the version's number as its place."""
    reader = LinedPage(trainer, 1e6)
    for version in range(1, 60):
        scene = make_scene(BLOCK * (1 + version % 5))
        scene.means[:] = float(version)
        trainer.show(scene)
        for _ in range(9):
            reader.take_message()
        if PANE in reader.page.drawn:
            means = reader.page.scene(PANE).means
            assert (means == means[:1]).all()
    reader.settle()
    assert (reader.page.scene(PANE).means == 59).all()
    assert trainer.readings < 60


def test_a_scene_that_shrinks_to_nothing_and_grows(trainer: TrainedScene) -> None:
    reader = LinedPage(trainer)
    for count in (5000, 0, 30_000, 1, 0, 3000):
        trainer.show(make_scene(count))
        reader.settle()
        assert reader.page.drawn[PANE].header.count == count


def test_a_scene_that_grows_while_it_waits_to_be_packed_is_planned_anew(
    trainer: TrainedScene,
) -> None:
    trainer.show(make_scene(1))
    reader = LinedPage(trainer)
    assert reader.sender.next(reader.now), "what is handed on"
    assert reader.sender.next(reader.now) is None, "a packing is requested"
    trainer.show(make_scene(5000))
    reader.settle()
    assert [header.count for header in reader.page.passes] == [5000]


def test_a_page_that_takes_nothing_is_sent_a_bounded_part(
    trainer: TrainedScene,
) -> None:
    trainer.show(make_scene(60 * BLOCK, degree=3))
    reader = LinedPage(trainer)
    reader.page.answers = False
    reader.await_bytes(300_001)
    for block_count in range(20):
        trainer.show(make_scene(BLOCK * block_count))
        reader.take_message()
    assert reader.page.bytes < 1_000_000
    assert len(reader.page.passes) == 1


def test_readers_of_other_paces_share_a_packing(trainer: TrainedScene) -> None:
    trainer.show(make_scene(80 * BLOCK))
    quick, slow, slower = (LinedPage(trainer, rate) for rate in (1e9, SLOW, SLOW / 2))

    def slow_pages_draw() -> bool:
        slow.take_message()
        slower.take_message()
        return bool(slow.page.drawn) and bool(slower.page.drawn)

    quick.run_until(slow_pages_draw)
    assert trainer.readings <= 3


def test_pages_that_take_nothing_hold_no_other_up(trainer: TrainedScene) -> None:
    """Each of them is in the middle of another version."""
    stuck_pages = []
    for _ in range(MOST_PACKINGS):
        trainer.show(make_scene(100 * BLOCK))
        stuck_page = LinedPage(trainer, SLOW)
        stuck_page.page.answers = False
        stuck_page.await_bytes()
        stuck_pages.append(stuck_page)
    trainer.show(make_scene(100 * BLOCK))
    page = LinedPage(trainer)
    for _ in range(3):
        page.take_message()
    assert not page.page.passes, "there is no room"
    stuck_pages[0].await_bytes(stuck_pages[0].page.bytes + 1)
    trainer.now += STALLED_S - 0.1
    assert not page.take_message()
    trainer.now += 0.1
    page.settle()
    # Those get the newest version, once they take something again.
    _, second_page = stuck_pages[:2]
    second_page.page.answers = True
    second_page.sender.note_taken(0xFFFFFFFF, second_page.now)
    second_page.run_until(second_page.draws)
    assert second_page.page.dropped == 1
    newest = trainer.versions.newest
    assert newest is not None
    assert second_page.page.drawn[PANE].header.version == newest.version_number


def test_a_hidden_page_holds_nothing(trainer: TrainedScene) -> None:
    trainer.show(make_scene(100 * BLOCK))
    page = LinedPage(trainer, SLOW)
    page.await_bytes()
    page.sender.pause(True)
    while page.take_message():
        pass
    assert page.page.dropped == 1
    assert trainer.versions.held_bytes == 0
    assert not trainer.versions.has_readers
    page.sender.pause(False)
    page.run_until(page.draws)


def test_no_pass_begins_before_the_last_one_is_drawn(trainer: TrainedScene) -> None:
    """Not even where the viewer draws the pane in between."""
    trainer.show(make_scene(80 * BLOCK))
    page = LinedPage(trainer, SLOW)
    page.page.late_panes.add(PANE)
    page.run_until(page.draws)
    for handed in (HandedOn(reason="A photograph is compared."), HandedOn()):
        page.hand(handed)
        page.take_message()
    page.hand(HandedOn(DRAWING, trainer.versions))
    while page.take_message():
        pass
    (header,) = page.page.passes
    page.page.late_panes.clear()
    page.sender.note_taken(page.page.message_number, page.now)
    page.settle()
    assert page.page.passes[1].pass_number == header.pass_number + 1


def test_what_has_no_bytes_is_bounded_as_well() -> None:
    """Such as the ends of passes without Gaussians, of a page that begins ever anew."""
    pace = ScenePace()
    sent_count = 0
    while pace.may_send and sent_count < 10_000:
        sent_count += 1
        pace.sent(sent_count, 0, 0.0)
    assert sent_count < 10_000
    pace.note_taken(1, 1.0)
    assert pace.may_send


def test_packings_that_fail_are_told_of_once(
    trainer: TrainedScene, caplog: pytest.LogCaptureFixture
) -> None:
    scene = make_scene(2 * BLOCK)
    scene = replace(scene, quats=scene.quats[:, :2])
    page = LinedPage(trainer)

    def has_failed(count: int) -> bool:
        return trainer.readings == count and not trainer.versions.held_bytes

    for count in range(1, 4):
        trainer.show(scene)
        page.run_until(partial(has_failed, count))
    assert len(caplog.records) == 1
    trainer.show(make_scene(BLOCK))
    page.settle()


def test_what_cannot_be_read_just_now_is_packed_later(trainer: TrainedScene) -> None:
    trainer.show(make_scene(BLOCK))
    form = PackingForm(("quick",), BLOCK)
    packing = trainer.versions.request(form, None, trainer.tick)
    assert packing is not None

    def fail() -> SceneToPack:
        raise RuntimeError("the GPU is out of memory")

    with pytest.raises(RuntimeError):
        trainer.versions.start_requested(fail, 0.0)
    page = LinedPage(trainer)
    page.settle()
    assert packing.is_done


def test_a_reader_that_begins_anew_gets_all_again(trainer: TrainedScene) -> None:
    trainer.show(make_scene(3000))
    reader = LinedPage(trainer)
    reader.settle()

    def begins_again() -> bool:
        return len(reader.page.passes) == 2

    reader.sender.begin(6_000_000)
    reader.run_until(begins_again)
    reader.settle()
    reader.sender.end()
    assert trainer.versions.held_bytes == 0


def test_another_scene_in_the_pane_ends_the_pass(trainer: TrainedScene) -> None:
    trainer.show(make_scene(100 * BLOCK))
    reader = LinedPage(trainer, SLOW)
    reader.await_bytes()
    next_trainer = TrainedScene()
    next_trainer.show(make_scene(100))
    reader.trainer = next_trainer
    reader.hand(HandedOn(DRAWING, next_trainer.versions))
    reader.settle()
    assert reader.page.dropped == 1
    assert len(reader.page.scene(PANE)) == 100
    assert trainer.versions.held_bytes == 0


def test_a_pane_that_is_drawn_again_here_gets_nothing(trainer: TrainedScene) -> None:
    trainer.show(make_scene(100 * BLOCK))
    reader = LinedPage(trainer, SLOW)
    reader.await_bytes()
    reader.hand(HandedOn(reason="A photograph is compared."))
    while reader.take_message():
        pass
    assert reader.page.handed[PANE].reason == "A photograph is compared."
    assert reader.page.handed[PANE].drawing is None
    assert reader.page.dropped == 1
    assert trainer.versions.held_bytes == 0


def test_a_pass_that_is_not_drawn_yet_holds_its_own_pane_back_alone(
    trainer: TrainedScene,
) -> None:
    """The page answers later blocks of another pane before that."""
    trainer.show(make_scene(BLOCK))
    page = LinedPage(trainer)
    page.page.late_panes.add(PANE)
    handed = HandedOn(DRAWING, trainer.versions)
    page.hand(handed, handed)
    counts = [BLOCK + k for k in range(5)]
    for count in counts:
        trainer.show(make_scene(count))
        page.run_until(partial(page.shows, PANE + 1, count))
    assert [header.pane for header in page.page.passes].count(PANE) == 1


def test_a_pane_that_closes_amid_a_pass_leaves_no_trace(trainer: TrainedScene) -> None:
    trainer.show(make_scene(100 * BLOCK))
    page = LinedPage(trainer, SLOW)
    handed = HandedOn(DRAWING, trainer.versions)
    page.hand(handed, handed)

    def both_have_begun() -> bool:
        return len(page.page.passes) == 2

    page.run_until(both_have_begun)
    page.await_bytes(page.page.bytes + 1)
    page.hand(handed)
    page.settle()
    assert page.page.dropped == 0, "numbers of messages follow each other all the same"


def test_versions_are_awaited_between_passes_alone(trainer: TrainedScene) -> None:
    trainer.show(make_scene(100 * BLOCK))
    page = LinedPage(trainer, SLOW)
    assert trainer.versions.is_awaited
    page.await_bytes()
    assert not trainer.versions.is_awaited
    second_page = LinedPage(trainer)
    second_page.settle()
    assert trainer.versions.is_awaited
    second_page.sender.end()
    assert not trainer.versions.is_awaited
    page.run_until(page.draws)
    assert trainer.versions.is_awaited
    trainer.versions.terms = PackingTerms(is_held=True)
    assert not trainer.versions.is_awaited, "it would be old when it is packed"
    form = PackingForm(("quick",), BLOCK)
    trainer.versions.request(form, None, threading.Event().set)
    assert trainer.versions.is_awaited, "a reader has nothing yet"


def test_a_moved_camera_is_one_small_message(trainer: TrainedScene) -> None:
    trainer.show(make_scene(3000))
    reader = LinedPage(trainer)
    reader.settle()
    sent_bytes = reader.page.bytes
    for move_count in range(1, 6):
        drawing = msgspec.structs.replace(DRAWING, placed=move_count)
        reader.hand(HandedOn(drawing, trainer.versions))
        reader.hand(HandedOn(drawing, trainer.versions))
        while reader.take_message():
            pass
    assert reader.page.bytes == sent_bytes
    assert reader.page.moves == 6
    assert trainer.readings == 1
