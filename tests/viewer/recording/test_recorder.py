"""Snapshots of scenes: how small and how faithful they are, which of them are kept, and how one goes back to them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.frames import NAMES, scene
from support.wait import wait_until

from splatview_viewer.core.errors import FileError, ViewerError
from splatview_viewer.recording.packed import (
    pack,
    packed_bytes,
    read_packed,
    unpack,
    write_packed,
)
from splatview_viewer.recording.recording import (
    INDEX,
    Player,
    Recording,
    RecordOptions,
    SceneSnapshot,
    StreamFolder,
    is_recording,
    read_index,
    streams_in,
)
from splatview_viewer.render.activation import activate
from splatview_viewer.workspace.sources import check_files, entries_of


@pytest.mark.parametrize(
    ("degree", "activated"), [(0, True), (1, False), (3, False), (3, True)]
)
def test_what_is_unpacked_is_as_near_as_is_said(
    degree: int, activated: bool, tmp_path: Path
) -> None:
    before = scene(degree=degree, activated=activated)
    path = tmp_path / "000000001.gaussians"
    for background in (
        (0.25, 0.5, 1.0),
        (0.0, 0.0, 0.25),
        (0.125, 0.0, 0.25),
    ):  # arrays begin at odd bytes as well
        size = write_packed(path, pack(before, background))
        assert size == path.stat().st_size
        assert (
            0 < size - packed_bytes(len(before), before.shN.shape[1], activated) < 300
        )
        after = unpack(read_packed(path), version=7, notes=("a note",))
        assert (after.sh_degree, after.activated, after.version, after.notes) == (
            degree,
            activated,
            7,
            ("a note",),
        )
        assert after.background == background
        a = activate(before)[0]
        b = activate(after)[0]
        np.testing.assert_array_equal(a.means, b.means)
        np.testing.assert_allclose(a.quats, b.quats, atol=2e-5)
        np.testing.assert_allclose(
            a.scales, b.scales, rtol=1e-7 if activated else 0.004
        )
        np.testing.assert_allclose(
            a.opacities, b.opacities, atol=3e-4 if activated else 2e-4
        )
        np.testing.assert_allclose(a.sh0, b.sh0, atol=1.4e-4 / 0.28209)
        if degree:
            assert (
                (a.shN - b.shN).abs()
                <= a.shN.abs().amax((1, 2), keepdim=True) * (1 / 254 + 1e-3)
            ).all()


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_drawn_cannot_be_drawn_afterwards(name: str) -> None:
    before = scene(50)
    for i, value in enumerate((np.nan, np.inf, -np.inf)):
        getattr(before, name)[7 + i] = value
    left, left_out = activate(before)
    after, out_again = activate(unpack(pack(before)))
    assert out_again.total == left_out.total > 0
    np.testing.assert_array_equal(after.means, left.means)


def snapshot(number: int) -> SceneSnapshot:
    return SceneSnapshot(f"{number:09}.gaussians", number * 5, number, 0, 30, 10)


def test_a_recording_is_bounded_and_covers_everything_however_many_come() -> None:
    recording = Recording(1.0, limit=1000)
    taken = 0
    for version in range(1, 5001):
        if not taken or version >= taken + recording.interval:
            recording.add(snapshot(version))
            taken = version
        assert recording.nbytes <= 1000
    numbers = [s.serial for s in recording.snapshots]
    assert 40 <= len(numbers) <= 100
    assert numbers[0] == 1
    assert numbers[-1] > 5000 - recording.interval
    assert np.diff(numbers).max() <= 2 * recording.interval


# -- going back ------------------------------------------------------------------------------------------------------


class Screenless(list[Any]):
    """What a player needs of a view."""

    def update(self, value: Any) -> bool:
        self.append(value)
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


def test_the_snapshot_that_is_asked_for_comes(player: Player) -> None:
    view = Screenless()
    for place in (5, 6, 7, 19, 0, 3):
        player.seek(place)
        wait_until(player.has_new_value)
        assert player.feed(view)  # type: ignore[arg-type]
        assert player.index == place
        np.testing.assert_array_equal(view[-1].means, scene(30, seed=place + 1).means)
        assert view[-1].notes == (f"step {5 * (place + 1)}", "recorded")
        assert not player.has_new_value()
    places = []
    for by in (20, 1, -1, -30):
        player.move(by)
        places.append(player.index)
    assert places == [None, None, 20, 0]
    player.seek(99)
    wait_until(player.has_new_value)
    with pytest.raises(ViewerError, match=r"000000021\.gaussians"):
        player.feed(view)  # type: ignore[arg-type]
    player.live()
    assert (player.index, player.has_new_value()) == (None, False)


def test_it_plays_all_of_them_and_comes_back_to_live(player: Player) -> None:
    view = Screenless()
    now = 0.0
    del player.recording.snapshots[20:]

    def ended() -> bool:
        nonlocal now
        now += 1.0
        player.tick(now)
        if player.has_new_value():
            player.feed(view)  # type: ignore[arg-type]
        return not player.playing

    player.seek(9)
    player.play(True)
    wait_until(ended)
    assert player.index is None
    assert [v.version for v in view][-11:] == list(range(10, 21))
    player.play(True)  # from the beginning
    assert player.index == 0


# -- on disk -----------------------------------------------------------------------------------------------------------


def record(root: Path, count: int = 5, begin: int = 1, run: str = "a run") -> Path:
    """Have `count` snapshots in a folder; the stream's."""
    with closing(StreamFolder(root, run, "splats")) as folder:
        recording = Recording(100.0, limit=10**9, folder=folder)
        for number in range(begin, begin + count):
            file = recording.next_file
            size = write_packed(
                folder.path / file, pack(scene(20, seed=number), (0.25, 0.5, 1.0))
            )
            recording.add(SceneSnapshot(file, number * 10, number, 1, 20, size))
        folder.write_index(recording.interval, recording.snapshots)
        return folder.path


def header(**change: Any) -> bytes:
    values = {
        "count": 3,
        "coefficients": 0,
        "sh_degree": 0,
        "activated": False,
        "antialiased": False,
    } | change
    text = json.dumps(values).encode()
    return b"SVSCENE1" + struct.pack("<I", len(text)) + text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"hello, this is text", "no snapshot"),
        (b"SVSCENE1" + struct.pack("<I", 2**32 - 1), "a header of 4,294,967,295"),
        (header() + b"x" * 101, "3 Gaussians take"),
        (header(count=2**40) + b"x", "1,099,511,627,776 Gaussians take"),
        (header(coefficients=5), "damaged: .*coefficients"),
    ],
)
def test_what_is_no_snapshot_is_refused(
    tmp_path: Path, data: bytes, words: str
) -> None:
    path = tmp_path / "000000001.gaussians"
    path.write_bytes(data)
    with pytest.raises(FileError, match=f"{path}: .*{words}"):
        read_packed(path)


def test_what_was_recorded_is_found_again_and_gone_on_with(tmp_path: Path) -> None:
    folder = record(tmp_path, 3)
    assert is_recording(folder)
    assert streams_in(tmp_path) == streams_in(folder) == [folder]
    (folder / "000000009.gaussians").write_bytes(b"not in the index")
    (folder / "000000004.gaussians.part").write_bytes(b"half")
    (folder / "notes.txt").write_text("the user's own")
    assert record(tmp_path, 2, begin=4) == folder
    assert sorted(p.name for p in folder.iterdir()) == [
        *(f"{n:09}.gaussians" for n in range(1, 6)),
        "notes.txt",
        INDEX,
    ]
    recording = Recording.opened(folder)
    assert [s.step for s in recording.snapshots] == [10, 20, 30, 40, 50]
    shown = recording.scene(recording.snapshots[2])
    np.testing.assert_array_equal(shown.means, scene(20, seed=3).means)
    assert shown.background == (0.25, 0.5, 1.0)
    assert recording.nbytes == sum(p.stat().st_size for p in folder.glob("*.gaussians"))


def test_folders_are_of_one_stream_and_one_writer(tmp_path: Path) -> None:
    one = record(tmp_path, run="a run")
    other = record(tmp_path, run="a/run")
    assert one != other == record(tmp_path, run="a/run")
    assert read_index(one).run == "a run"
    assert record(tmp_path, run="../../..").parent == tmp_path
    assert streams_in(tmp_path) == sorted(tmp_path.iterdir())
    with closing(StreamFolder(tmp_path, "a run", "splats")) as writer:
        assert writer.path == one
        assert record(tmp_path) not in (one, other)
    assert record(tmp_path) == one


def test_an_index_names_only_what_is_there_and_its_own(tmp_path: Path) -> None:
    folder = record(tmp_path / "kept", 4)
    (tmp_path / "secret").write_bytes(b"x" * 10)
    index = json.loads((folder / INDEX).read_text())
    lines = index["snapshots"]
    lines += [
        lines[0],
        lines[0] | {"file": "../../secret", "bytes": 10},
        lines[0] | {"file": "/etc/passwd"},
        lines[0] | {"file": "000000077.gaussians"},
    ]
    (folder / "000000002.gaussians").write_bytes(b"cut off")
    (folder / INDEX).write_text(json.dumps(index))
    assert [line.file for line in read_index(folder).snapshots] == [
        f"{n:09}.gaussians" for n in (1, 3, 4)
    ]
    for text, words in (
        (json.dumps(index | {"format": 2}), "format 2"),
        ("[" * 100_000, "damaged"),
        (json.dumps(index | {"every": -5.0}), "damaged: .*every"),
    ):
        (folder / INDEX).write_text(text)
        with pytest.raises(FileError, match=rf"recording\.json: .*{words}"):
            read_index(folder)


def test_a_folder_is_an_entry_for_each_stream(tmp_path: Path) -> None:
    record(tmp_path, run="one")
    record(tmp_path, run="two")
    (tmp_path / "file.txt").write_text("")
    found = entries_of([tmp_path, tmp_path / "file.txt"])
    check_files(found)  # one of them can be opened
    assert [p.name for p in found] == ["one-splats", "two-splats", "file.txt"]


def test_options_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ViewerError, match="--record-every is 0"):
        RecordOptions(every=0).check("serve")
