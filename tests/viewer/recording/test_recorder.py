"""Snapshots of scenes: how small and how faithful they are, which of them are kept, and how one goes back to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.frames import NAMES, scene

from splatview_viewer.core.errors import ViewerError
from splatview_viewer.recording.packed import pack, packed_bytes, unpack
from splatview_viewer.recording.player import Player
from splatview_viewer.recording.recording import Recording, Snapshot
from splatview_viewer.render.activation import activate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview_viewer.scene.scene import GaussianScene


@pytest.mark.parametrize(("degree", "activated"), [(0, True), (1, False), (3, False), (3, True)])
def test_what_is_unpacked_is_as_near_as_is_said(degree: int, activated: bool) -> None:
    before = scene(degree=degree, activated=activated)
    packed = pack(before)
    after = unpack(packed, version=7, notes=("a note",))
    assert 0 < packed.data.nbytes - packed_bytes(len(before), before.shN.shape[1], activated) < 300
    assert (after.sh_degree, after.activated, after.version, after.notes) == (degree, activated, 7, ("a note",))
    a, b = activate(before), activate(after)
    np.testing.assert_array_equal(a.means, b.means)
    np.testing.assert_allclose(a.quats, b.quats, atol=2e-5)
    np.testing.assert_allclose(a.scales, b.scales, rtol=1e-7 if activated else 0.004)
    np.testing.assert_allclose(a.opacities, b.opacities, atol=3e-4 if activated else 2e-4)
    np.testing.assert_allclose(a.sh0, b.sh0, atol=1.4e-4 / 0.28209)
    largest = np.abs(a.shN).reshape(len(a), -1).max(axis=1, initial=0)[:, None, None]
    assert (np.abs(a.shN - b.shN) <= largest * (1 / 254 + 1e-3)).all()


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_drawn_cannot_be_drawn_afterwards(name: str) -> None:
    before = scene(50)
    for i, value in enumerate((np.nan, np.inf, -np.inf)):
        getattr(before, name)[7 + i] = value
    left = activate(before)
    after = activate(unpack(pack(before)))
    assert after.left_out.total == left.left_out.total > 0
    np.testing.assert_array_equal(after.means, left.means)


def snapshot(number: int) -> Snapshot:
    return Snapshot(f"{number:09}.gaussians", number * 5, number, 0, 30, 10)


def test_a_recording_is_bounded_and_covers_everything_however_many_come() -> None:
    recording, taken = Recording(1.0, limit=1000), 0
    for version in range(1, 5001):
        if not taken or version >= taken + recording.every:
            recording.add(snapshot(version))
            taken = version
        assert recording.nbytes <= 1000
    numbers = [s.number for s in recording.snapshots]
    assert 40 <= len(numbers) <= 100
    assert numbers[0] == 1
    assert numbers[-1] > 5000 - recording.every
    gaps = np.diff(numbers)
    assert gaps.max() <= 2 * recording.every
    assert np.median(gaps) == recording.every


# -- going back ------------------------------------------------------------------------------------------------------


class Screenless:
    """What a player needs of a view."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def update(self, value: Any) -> bool:
        self.values.append(value)
        return True


@pytest.fixture
def player() -> Iterator[Player]:
    """Twenty snapshots, and one that is gone."""
    recording = Recording(1.0, limit=10**9)
    for number in range(1, 21):
        recording.add(snapshot(number), pack(scene(30, seed=number)))
    recording.add(snapshot(21))
    made = Player(recording, lambda: None)
    yield made
    made.close()


def feed(player: Player, view: Screenless, wait_until: Callable[..., Any]) -> GaussianScene:
    wait_until(player.has_news)
    assert player.feed(view)  # type: ignore[arg-type]
    return view.values[-1]


def test_the_snapshot_that_is_asked_for_comes(player: Player, wait_until: Callable[..., Any]) -> None:
    view = Screenless()
    for place in (5, 6, 7, 19, 0, 3):
        player.seek(place)
        shown = feed(player, view, wait_until)
        assert player.at == place
        np.testing.assert_array_equal(shown.means, scene(30, seed=place + 1).means)
        assert shown.notes == (f"step {5 * (place + 1)}", "recorded")
        assert not player.has_news()
    places = []
    for by in (20, 1, -1, -30):
        player.move(by)
        places.append(player.at)
    assert places == [None, None, 20, 0]
    player.seek(99)
    wait_until(player.has_news)
    with pytest.raises(ViewerError, match=r"000000021\.gaussians"):
        player.feed(view)  # type: ignore[arg-type]
    player.live()
    assert (player.at, player.has_news()) == (None, False)


def test_it_plays_all_of_them_and_comes_back_to_live(player: Player, wait_until: Callable[..., Any]) -> None:
    view, now = Screenless(), 0.0
    del player.recording.snapshots[20:]

    def ended() -> bool:
        nonlocal now
        now += 1.0
        player.tick(now)
        if player.has_news():
            player.feed(view)  # type: ignore[arg-type]
        return not player.playing

    player.seek(9)
    player.play(True)
    wait_until(ended)
    assert player.at is None
    assert [v.version for v in view.values][-11:] == list(range(10, 21))
    player.play(True)  # from the beginning
    assert player.at == 0
    player.play(False)
    assert not player.playing
