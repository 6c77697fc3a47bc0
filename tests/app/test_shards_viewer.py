"""A scene that several processes publish in parts, in the viewer: one entry, one picture, and what is said of ranks."""

from __future__ import annotations

import math
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.shard_cases import Training
from support.viewer import Viewer
from support.wait import PATIENCE

from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.events import PointerMove, PointerPress, PointerRelease
from splatview.viewer_app.recorder.options import RecordOptions
from splatview.viewer_app.scene import GaussianScene
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.shards.stream import ShardedStream
from splatview.viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.programs import Programs


    Start = Callable[..., Training]

SIZE = 900, 520


@pytest.fixture
def training(programs: Programs, tmp_path: Path) -> Iterator[Start]:
    """`training([300, 200])`: ranks that have published so many Gaussians each."""
    started: list[Training] = []

    def start(counts: list[int], **options: Any) -> Training:
        started.append(Training(programs, tmp_path, counts, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def viewer() -> Iterator[Viewer]:
    app = Viewer(OffscreenScreen(*SIZE), AppOptions(max_fps=500))
    yield app
    error = app.screen.ctx.error
    app.close()
    assert error == "GL_NO_ERROR"


def entries(viewer: Viewer) -> list[str]:
    return [e.name for e in viewer.state.entries]


def slot(viewer: Viewer) -> Any:
    found = viewer.seat.shown
    assert found is not None
    return found


def stream(viewer: Viewer) -> ShardedStream:
    found = next(iter(viewer.catalogue.shards.streams))
    assert isinstance(found, ShardedStream)
    return found


def count(viewer: Viewer) -> int:
    """Gaussians in what is shown."""
    viewer.turn()
    found = viewer.seat.shown
    facts = found.view.content.facts if found is not None and isinstance(found.view, GaussianView) else None
    return -1 if facts is None else facts.count


def trouble(viewer: Viewer) -> str:
    viewer.turn()
    return "; ".join(viewer.catalogue.overlays.troubles(slot(viewer)))


def part(n: int, seed: int) -> GaussianScene:
    """What a rank publishes (`shard_cases.RANK`)."""
    g = torch.Generator().manual_seed(seed)
    means, quats = torch.randn(n, 3, generator=g), torch.randn(n, 4, generator=g)
    sh0 = torch.rand(n, 1, 3, generator=g)
    return GaussianScene(means.numpy(), quats.numpy(), np.full((n, 3), -2.0, np.float32), np.full(n, 3.0, np.float32),
                         sh0[:, 0].numpy(), np.zeros((n, 0, 3), np.float32), sh_degree=0)


def test_ranks_are_one_entry_and_one_scene(viewer: Viewer, training: Start) -> None:
    """The picture is that of all Gaussians as one scene, not of one part over the other."""
    from splatview.viewer_app.comparing.merging import merged

    training([300, 200, 100])
    viewer.until(lambda: count(viewer) == 600)
    assert entries(viewer) == ["gaussians \u00b7 3 shards"]
    assert trouble(viewer) == ""
    entry, view = slot(viewer).entry, slot(viewer).view
    assert (entry.kind, entry.alive) == ("gaussians", True)
    entry.settings.gaussians.coarse_ms, entry.settings.gaussians.reproject = math.inf, False
    viewer.seat.mark()
    viewer.do()
    picture = viewer.picture()
    alone = GaussianView(viewer.screen.ctx)
    try:
        alone.update(merged([part(300, 0), part(200, 1), part(100, 2)], [False] * 3))
        alone.settings.coarse_ms, alone.settings.reproject = math.inf, False
        alone.like(view)
        alone.draw(viewer.screen.framebuffer, view.rect)
        x, y, width, height = view.rect.x, view.rect.y, view.rect.width, view.rect.height
        drawn = viewer.screen.pixels()[y:y + height, x:x + width, :3].astype(int)
    finally:
        alone.close()
    assert picture.max() > 60
    middle = np.s_[40:-40, 120:-120]  # axes and words stand at the edges
    np.testing.assert_allclose(picture[middle], drawn[middle], atol=1)


def test_each_step_of_all_is_one_picture_and_a_late_rank_holds_up_nobody(viewer: Viewer, training: Start) -> None:
    ranks = training([300, 200])
    viewer.until(lambda: count(viewer) == 500)
    for rank, n in enumerate((310, 210)):
        assert ranks.publish(rank, n) == 1
    viewer.until(lambda: count(viewer) == 520)
    assert stream(viewer).version == 2
    assert "shards ranks 0, 1: version 2" in slot(viewer).source.notes
    ranks.ranks[1].signal(signal.SIGSTOP)  # it is far behind from now on
    assert [ranks.publish(0, n) for n in (320, 330, 340)] == [2, 3, 4]  # these calls came back
    viewer.until(lambda: count(viewer) == 550)
    assert trouble(viewer) == ""  # it is alive, and shows what it had last
    assert "shards ranks 0, 1: versions 2 to 5" in slot(viewer).source.notes
    assert "Gaussians by rank: 340, 210" in slot(viewer).source.notes
    ranks.ranks[1].signal(signal.SIGCONT)
    ranks.publish(1, 220)
    viewer.until(lambda: count(viewer) == 560)
    assert slot(viewer).entry.version >= 5


def test_what_is_missing_is_said(viewer: Viewer, training: Start) -> None:
    ranks = training([300, 200], world=4)
    viewer.until(lambda: count(viewer) == 500)
    assert entries(viewer) == ["gaussians \u00b7 4 shards"]
    assert trouble(viewer) == "2 of 4 shards; ranks 2, 3 not found"
    ranks.kill(1)
    viewer.until(lambda: trouble(viewer) == "1 of 4 shards; rank 1 ended, ranks 2, 3 not found")
    assert count(viewer) == 500  # what it had last is seen
    assert slot(viewer).entry.alive
    ranks.publish(0, 301)
    viewer.until(lambda: count(viewer) == 501)
    ranks.again(1, 50)
    viewer.until(lambda: count(viewer) == 351)
    assert trouble(viewer) == "2 of 4 shards; ranks 2, 3 not found"
    assert entries(viewer) == ["gaussians \u00b7 4 shards"]


@pytest.mark.exhaustive
def test_when_all_have_ended_the_last_picture_stays_and_a_restart_continues(viewer: Viewer, training: Start) -> None:
    ranks = training([300, 200])
    viewer.until(lambda: count(viewer) == 500)
    view = slot(viewer).view
    for rank in (0, 1):
        ranks.kill(rank)
    viewer.until(lambda: not slot(viewer).entry.alive)
    assert slot(viewer).entry.note == "ended"
    assert count(viewer) == 500
    viewer.until(lambda: trouble(viewer) == "")
    for port, counts in ((29500, [30, 20]), (29501, [60, 50, 40])):  # of the same group, as torchrun's; of another
        again = training(counts, world=2 if len(counts) == 2 else 3, port=port)
        if len(counts) == 2:
            viewer.until(lambda: count(viewer) == 50)
            assert slot(viewer).view is view
            assert entries(viewer) == ["gaussians \u00b7 2 shards"]
            for rank in (0, 1):
                again.kill(rank)
            viewer.until(lambda: not slot(viewer).entry.alive)
        else:
            viewer.until(lambda: "gaussians \u00b7 3 shards" in entries(viewer))
            assert count(viewer) == 50  # another number of ranks is another scene


def test_two_trainings_of_one_name_are_two(viewer: Viewer, training: Start) -> None:
    training([300, 200], port=1111)
    training([30, 20], port=2222)
    viewer.until(lambda: len(entries(viewer)) == 2)
    assert entries(viewer) == ["gaussians \u00b7 2 shards"] * 2
    counts = set()
    for entry in list(viewer.state.entries):
        viewer.seat.select(entry.key)
        viewer.until(lambda: count(viewer) > 0)
        counts.add(count(viewer))
    assert counts == {500, 50}


@pytest.mark.exhaustive
def test_trainings_that_cannot_be_told_apart_are_not_mixed(viewer: Viewer, training: Start) -> None:
    first = training([300, 200])
    viewer.until(lambda: count(viewer) == 500)
    second = training([30, 20])
    viewer.until(lambda: sorted(n for n in entries(viewer) if "rank" in n) == [
        f"gaussians \u00b7 rank {i} of 2" for i in (0, 0, 1, 1)])
    assert any("Set SPLATVIEW_GROUP" in text for text in viewer.state.notices)
    assert count(viewer) == 500  # what was seen stays, as that of a run that ended
    for rank in (0, 1):
        first.kill(rank)
    viewer.until(lambda: count(viewer) == 50)  # the other goes on in its place
    assert viewer.state.notices == []
    assert second.publish(0, 31) == 1
    viewer.until(lambda: count(viewer) == 51)


def test_a_part_is_shown_alone_and_the_whole_goes_on(viewer: Viewer, training: Start) -> None:
    from splatview.viewer_app.shards import panel

    ranks = training([300, 200])
    viewer.until(lambda: count(viewer) == 500)
    whole = slot(viewer).entry.key
    panel.show(viewer.catalogue, stream(viewer), stream(viewer).parts[1], viewer.seat.panes.active)
    viewer.until(lambda: count(viewer) == 200)
    assert entries(viewer) == ["gaussians \u00b7 2 shards", "gaussians \u00b7 rank 1 of 2"]
    viewer.until(lambda: not stream(viewer).parts[0].stream.opened)  # nobody looks at that one
    assert stream(viewer).parts[1].stream.opened
    viewer.seat.panes.add(whole)  # both at once, from one rank's memory
    viewer.until(lambda: count(viewer) == 500)
    ranks.publish(0, 310)
    ranks.publish(1, 210)
    viewer.until(lambda: count(viewer) == 520)
    shown = {s.entry.key: s for s in viewer.catalogue.slots.values()}
    viewer.until(lambda: {facts.count for s in shown.values() if isinstance(s.view, GaussianView)
                          and (facts := s.view.content.facts) is not None} == {520, 210})
    for pane in list(viewer.seat.panes):
        if pane.key != whole:
            viewer.seat.panes.remove(pane)
    ranks.kill(0)  # the list is looked through again
    viewer.until(lambda: entries(viewer) == ["gaussians \u00b7 2 shards"])
    ranks.publish(1, 220)
    viewer.until(lambda: count(viewer) == 530)  # its part is still open


def test_pausing_pauses_all_ranks(viewer: Viewer, training: Start) -> None:
    ranks = training([30, 20])
    viewer.until(lambda: count(viewer) == 50)
    slot(viewer).source.set_paused(True)
    runs = stream(viewer).run.runs
    viewer.until(lambda: all(run.paused for run in runs))
    viewer.until(lambda: bool(slot(viewer).entry.paused))
    slot(viewer).source.set_paused(False)
    viewer.until(lambda: not any(run.paused for run in runs))
    assert ranks.publish(1, 21) == 1


def test_the_rank_of_a_gaussian_is_said(viewer: Viewer, training: Start) -> None:
    training([300, 200])
    viewer.until(lambda: count(viewer) == 500)
    view = slot(viewer).view
    inspect = view.tools["inspect"]
    inspect.choose(350)
    viewer.until(lambda: inspect.values is not None)
    np.testing.assert_allclose(inspect.values.mean, part(200, 1).means[50], atol=1e-6)
    assert view.content.facts.shard_of(350) == (1, 50)
    assert view.content.facts.shard_of(299) == (0, 299)
    assert view.content.facts.shard_of(500) is None


@pytest.mark.exhaustive
def test_it_is_recorded_as_any_scene(training: Start) -> None:
    """Snapshots are of all ranks, and going back shows them."""
    ranks = training([300, 200])
    app = Viewer(OffscreenScreen(*SIZE), AppOptions(max_fps=500, record=RecordOptions(every=1)))
    try:
        app.until(lambda: count(app) == 500)
        for n in (310, 320):
            ranks.publish(0, n)
            ranks.publish(1, 200)
            app.until(lambda n=n: count(app) == n + 200)
        app.until(lambda: slot(app).source.tape is not None and len(slot(app).source.tape.recording) >= 2)
        counts = [s.count for s in slot(app).source.tape.recording.snapshots]
        assert set(counts) <= {500, 510, 520}
        slot(app).source.tape.player.seek(0)
        app.until(lambda: count(app) == counts[0])
        for rank in (0, 1):
            ranks.kill(rank)
        app.until(lambda: not slot(app).entry.alive)
        assert count(app) == counts[0]
    finally:
        app.close()


def test_the_panel_says_how_far_each_rank_is_and_shows_one_that_is_clicked(viewer: Viewer, training: Start) -> None:
    ranks = training([300, 200, 100])
    viewer.until(lambda: count(viewer) == 600)
    assert viewer.seat.panel is not None
    viewer.seat.panel.open_folds(["Shards"])
    ranks.kill(1)
    viewer.until(lambda: trouble(viewer) == "2 of 3 shards; rank 1 ended")
    whole = slot(viewer).entry.key

    def click(row: int) -> None:
        """A row of the part "Shards": 0 is all, then the ranks."""
        x, y = 60.0, _rows(viewer)[row]
        viewer.do(PointerMove(x, y), PointerPress(x, y, "left"))
        viewer.do(PointerRelease(x, y, "left"))

    click(3)
    viewer.until(lambda: count(viewer) == 100)
    assert slot(viewer).entry.name == "gaussians \u00b7 rank 2 of 3"
    click(0)
    viewer.until(lambda: slot(viewer).entry.key == whole)
    viewer.until(lambda: count(viewer) == 600)


def _rows(viewer: Viewer) -> list[float]:
    """The middle of each row of the part "Shards", in pixels from above."""
    from splatview.viewer_app.shards import panel

    found: list[float] = []
    row = panel._row

    def noted(*args: Any) -> bool:
        from imgui_bundle import imgui

        found.append(imgui.get_cursor_screen_pos().y + 8)
        return row(*args)

    panel._row = noted
    try:
        viewer.seat.mark(2)
        viewer.do()
    finally:
        panel._row = row
    return found[-4:]


@pytest.mark.parametrize("run", ["train", "rank"])
def test_a_process_that_was_asked_for_is_shown_alone(training: Start, run: str) -> None:
    ranks = training([30, 20])
    wanted = "train" if run == "train" else str(ranks.ranks[1].pid)
    app = Viewer(OffscreenScreen(300, 200), AppOptions(run=wanted, panel=False))
    try:
        app.until(lambda: count(app) == (50 if run == "train" else 20), PATIENCE)
    finally:
        app.close()


def test_a_single_picture_waits_for_parts_that_come_a_little_later(programs: Programs, training: Start,
                                                                   tmp_path: Path) -> None:
    """`splatview shot` draws all of them, though some were not there when it found the scene."""
    from splatview.viewer_app.shot import ShotOptions, newest

    ranks = training([300], world=2)
    late: list[Training] = []
    screen = OffscreenScreen(64, 64)

    def use(kind: str, frame: Any, overlays: Any) -> Any:
        return frame.shards, frame.meta.get("trouble")

    from splatview.viewer_app.shards.stream import ShardedStream as Stream

    opened = Stream.open

    def open_late(stream: Any) -> None:
        if not late:
            late.append(ranks)
            ranks.ranks.append(ranks._start(1, 200))
        opened(stream)

    Stream.open = open_late  # type: ignore[method-assign]
    try:
        found = newest(screen, "shot", ShotOptions(tmp_path / "a.png", stream="gaussians", timeout=PATIENCE), use)
    finally:
        Stream.open = opened  # type: ignore[method-assign]
        screen.close()
    assert found == (((0, 300), (1, 200)), None)
