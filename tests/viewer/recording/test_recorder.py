"""Recorded snapshots of scenes are small, faithful and bounded, and can be played."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.array_snapshots import array_snapshot
from support.frames import NAMES, scene
from support.unpacked_blocks import unpacked as unpacked_by_table
from support.wait import wait_until

from splatview_viewer.__main__ import main
from splatview_viewer.blocks.layout import HEADER
from splatview_viewer.core.errors import FileError, ViewerError
from splatview_viewer.formats import open_file
from splatview_viewer.recording.block_form import block_form_bytes
from splatview_viewer.recording.options import RecordOptions
from splatview_viewer.recording.packed import (
    pack,
    packed_row,
    read_packed,
    read_packed_row,
    unpack,
    write_packed,
)
from splatview_viewer.recording.player import Player
from splatview_viewer.recording.recording import (
    INDEX,
    Recording,
    SceneSnapshot,
    StreamFolder,
    is_recording,
    read_index,
    streams_in,
)
from splatview_viewer.render.activation import activate
from splatview_viewer.workspace.file_source import check_files, entries_of
from splatview_viewer.workspace.sources import StreamSource

BACKGROUND = 0.25, 0.5, 1.0


@pytest.mark.parametrize(
    ("degree", "activated"), [(0, True), (1, False), (3, False), (3, True)]
)
def test_unpacked_scene_is_within_the_stated_tolerances(
    degree: int, activated: bool, tmp_path: Path
) -> None:
    original = scene(1500, degree=degree, activated=activated)
    path = tmp_path / "000000001.gaussians"
    size = write_packed(path, pack(original, BACKGROUND))
    assert size == path.stat().st_size
    scene_bytes = block_form_bytes(len(original), original.shN.shape[1])
    assert 0 < size - scene_bytes < 400
    unpacked = unpack(read_packed(path), version=7, notes=("a note",))
    assert unpacked.sh_degree == degree
    assert unpacked.version == 7
    assert unpacked.notes == ("a note",)
    assert unpacked.background == BACKGROUND
    a = activate(original)[0]
    b = activate(unpacked)[0]
    np.testing.assert_allclose(a.means, b.means, rtol=1e-7, atol=1e-6)
    signs = (a.quats * b.quats).sum(1, keepdim=True).sign()
    np.testing.assert_allclose(a.quats, b.quats * signs, atol=7e-5)
    np.testing.assert_allclose(a.scales, b.scales, rtol=0.004)
    np.testing.assert_allclose(a.opacities, b.opacities, rtol=0, atol=2.5e-4)
    np.testing.assert_allclose(a.sh0, b.sh0, rtol=0, atol=1.4e-4 / 0.28209)
    tolerance = a.shN.abs().amax(2, keepdim=True) / 255 + 1e-7
    assert ((a.shN - b.shN).abs() <= tolerance).all()
    # One Gaussian alone is the same, from a file and from memory.
    for index in (7, 1400):
        for row in (read_packed_row(path, index), packed_row(read_packed(path), index)):
            for name in NAMES:
                expected = getattr(unpacked, name)[index : index + 1]
                np.testing.assert_array_equal(getattr(row, name), expected)
    with pytest.raises(FileError):
        read_packed_row(path, len(original))


def test_blocks_of_a_snapshot_are_read_as_their_table_says() -> None:
    original = scene(1500, degree=3)
    assert len(unpack(pack(original[:0]))) == 0
    for count in (1, 1500):
        packed = pack(original[:count])
        blocks = packed.blocks
        assert blocks is not None
        expected = unpacked_by_table(
            blocks.exact, blocks.harmonics, count, blocks.origin, 15
        )
        got = activate(unpack(packed))[0]
        for name in NAMES:
            np.testing.assert_allclose(
                getattr(got, name), getattr(expected, name), rtol=1e-6, atol=1e-6
            )


@pytest.mark.parametrize("byte", [0x00, 0x7C, 0xFF])
def test_damaged_blocks_are_never_handed_on(byte: int) -> None:
    packed = pack(scene(1500))
    blocks = packed.blocks
    assert blocks is not None
    assert blocks.packed("exact", 15) is blocks.exact
    # A header that is of no form, or numbers that are not finite.
    first_byte = 0 if byte == 0x00 else HEADER * 4
    blocks.exact[1, first_byte:] = byte
    assert blocks.packed("exact", 15) is None
    active = activate(unpack(packed))[0]
    assert active.opacities.isfinite().all()


def test_harmonics_that_are_not_in_use_are_left_out() -> None:
    original = scene(100, degree=3)
    unpacked = unpack(pack(replace(original, sh_degree=1)))
    assert unpacked.shN.shape == (100, 3, 3)
    assert unpacked.sh_degree == 1
    np.testing.assert_allclose(unpacked.shN, original.shN[:, :3], atol=5e-3)


@pytest.mark.parametrize(
    ("degree", "activated"), [(0, True), (1, (True, False)), (3, False)]
)
def test_snapshots_of_earlier_versions_are_read(
    degree: int, activated: Any, tmp_path: Path
) -> None:
    original = scene(50, degree=degree, activated=activated is True)
    if activated == (True, False):
        original = replace(original, activated=activated, scales=original.scales.exp())
    path = tmp_path / "000000001.gaussians"
    path.write_bytes(array_snapshot(original, BACKGROUND))
    packed = read_packed(path)
    assert packed.blocks is None
    unpacked = unpack(packed, version=7, notes=("a note",))
    assert unpacked.background == BACKGROUND
    assert unpacked.activated == activated
    assert (unpacked.sh_degree, unpacked.version) == (degree, 7)
    a = activate(original)[0]
    b = activate(unpacked)[0]
    np.testing.assert_array_equal(a.means, b.means)
    np.testing.assert_allclose(a.quats, b.quats, atol=2e-5)
    np.testing.assert_allclose(a.scales, b.scales, rtol=0.004)
    np.testing.assert_allclose(a.opacities, b.opacities, atol=3e-4)
    np.testing.assert_allclose(a.sh0, b.sh0, atol=1.4e-4 / 0.28209)
    if degree:
        largest = a.shN.abs().amax((1, 2), keepdim=True)
        assert ((a.shN - b.shN).abs() <= largest * (1 / 254 + 1e-3)).all()
    for row in (read_packed_row(path, 7), packed_row(packed, 7)):
        for name in NAMES:
            expected = getattr(unpacked, name)[7:8]
            np.testing.assert_array_equal(getattr(row, name), expected)


@pytest.mark.parametrize("name", NAMES)
def test_packing_keeps_invalid_gaussians_invalid(name: str) -> None:
    original = scene(50)
    for i, value in enumerate((np.nan, np.inf, -np.inf)):
        getattr(original, name)[7 + i] = value
    expected, left_out = activate(original)
    unpacked, unpacked_left_out = activate(unpack(pack(original)))
    assert unpacked_left_out.total == left_out.total > 0
    np.testing.assert_allclose(unpacked.means, expected.means, atol=1e-6)


def snapshot(serial: int) -> SceneSnapshot:
    return SceneSnapshot(f"{serial:09}.gaussians", serial * 5, serial, 0, 30, 10)


def test_recording_is_bounded_and_covers_the_whole_run() -> None:
    recording = Recording(1.0, limit=1000)
    last_version = 0
    for version in range(1, 5001):
        if not last_version or version >= last_version + recording.interval:
            recording.add(snapshot(version))
            last_version = version
        assert recording.nbytes <= 1000
    serials = [s.serial for s in recording.snapshots]
    assert 40 <= len(serials) <= 100
    assert serials[0] == 1
    assert serials[-1] > 5000 - recording.interval
    assert np.diff(serials).max() <= 2 * recording.interval


# -- going back ----------------------------------------------------------------------


class Screenless(list[Any]):
    """Collect the values that a player hands to its view."""

    def update(self, value: Any) -> bool:
        self.append(value)
        return True


@pytest.fixture
def player() -> Iterator[Player]:
    """Make a player of twenty snapshots, and of one whose file is gone."""
    recording = Recording(1.0, limit=10**9)
    for serial in range(1, 21):
        recording.add(snapshot(serial), pack(scene(30, seed=serial)))
    recording.add(snapshot(21))

    def wake() -> None:
        pass

    player = Player(recording, wake)
    yield player
    player.close()


def test_player_loads_the_requested_snapshot(player: Player) -> None:
    view = Screenless()
    for index in (5, 6, 7, 19, 0, 3):
        player.seek(index)
        wait_until(player.has_new_value)
        assert player.feed(view)  # type: ignore[arg-type]
        assert player.index == index
        expected = scene(30, seed=index + 1).means
        np.testing.assert_allclose(view[-1].scene.means, expected, atol=1e-6)
        assert view[-1].scene.notes == (f"step {5 * (index + 1)}", "recorded")
        assert not player.has_new_value()
    indices = []
    for step in (20, 1, -1, -30):
        player.move(step)
        indices.append(player.index)
    assert indices == [None, None, 20, 0]
    player.seek(99)
    wait_until(player.has_new_value)
    with pytest.raises(ViewerError, match=r"000000021\.gaussians"):
        player.feed(view)  # type: ignore[arg-type]
    player.live()
    assert player.index is None
    assert not player.has_new_value()


def test_player_plays_all_snapshots_and_returns_to_live(player: Player) -> None:
    view = Screenless()
    now = 0.0
    del player.recording.snapshots[20:]

    def has_ended() -> bool:
        nonlocal now
        now += 1.0
        player.tick(now)
        if player.has_new_value():
            player.feed(view)  # type: ignore[arg-type]
        return not player.playing

    player.seek(9)
    player.play(True)
    wait_until(has_ended)
    assert player.index is None
    assert [v.scene.version for v in view][-11:] == list(range(10, 21))
    # From the live value it plays from the start.
    player.play(True)
    assert player.index == 0


# -- on disk -------------------------------------------------------------------------


def record(root: Path, count: int = 5, start: int = 1, run: str = "a run") -> Path:
    """Record `count` snapshots of a stream, and return its folder."""
    with closing(StreamFolder(root, run, "splats")) as folder:
        recording = Recording(100.0, limit=10**9, folder=folder)
        for serial in range(start, start + count):
            file = recording.next_file
            packed = pack(scene(20, seed=serial), (0.25, 0.5, 1.0))
            size = write_packed(folder.path / file, packed)
            recording.add(SceneSnapshot(file, serial * 10, serial, 1, 20, size))
        folder.write_index(recording.interval, recording.snapshots)
        return folder.path


def header(form: int = 2, **change: Any) -> bytes:
    values: dict[str, Any] = {"count": 3, "sh_degree": 0, "antialiased": False}
    if form == 1:
        values |= {"coefficients": 0, "activated": False}
    else:
        values["origin"] = [0, 0, 0]
    text = json.dumps(values | change).encode()
    return b"SVSCENE%d" % form + struct.pack("<I", len(text)) + text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"hello, this is text", "no snapshot"),
        (b"SVSCENE3" + header()[8:], "no snapshot"),
        (b"SVSCENE1" + struct.pack("<I", 2**32 - 1), "a header of 4,294,967,295"),
        (b"SVSCENE2" + struct.pack("<I", 2**32 - 1), "a header of 4,294,967,295"),
        (header(1) + b"x" * 101, "3 Gaussians take"),
        (header() + b"x" * 101, "3 Gaussians take"),
        (header(1, count=2**40) + b"x", "1,099,511,627,776 Gaussians take"),
        (header(count=2**40) + b"x", "1,099,511,627,776 Gaussians take"),
        (header(1, coefficients=5), "damaged: .*coefficients"),
        (header(sh_degree=5), "damaged: .*sh_degree"),
        (header(origin=[0, 0]), "damaged: .*origin"),
    ],
)
def test_files_that_are_no_snapshots_are_refused(
    tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "000000001.gaussians"
    path.write_bytes(data)
    with pytest.raises(FileError, match=f"{path}: .*{message}"):
        read_packed(path)


def test_recording_is_reopened_and_continued(tmp_path: Path) -> None:
    folder = record(tmp_path, 3)
    assert is_recording(folder)
    assert streams_in(tmp_path) == streams_in(folder) == [folder]
    (folder / "000000009.gaussians").write_bytes(b"not in the index")
    (folder / "000000004.gaussians.part").write_bytes(b"half")
    (folder / "notes.txt").write_text("the user's own")
    assert record(tmp_path, 2, start=4) == folder
    assert sorted(p.name for p in folder.iterdir()) == [
        *(f"{n:09}.gaussians" for n in range(1, 6)),
        "notes.txt",
        INDEX,
    ]
    recording = Recording.opened(folder)
    assert [s.step for s in recording.snapshots] == [10, 20, 30, 40, 50]
    third = recording.scene(recording.snapshots[2])
    np.testing.assert_allclose(third.means, scene(20, seed=3).means, atol=1e-6)
    assert third.background == (0.25, 0.5, 1.0)
    assert recording.nbytes == sum(p.stat().st_size for p in folder.glob("*.gaussians"))


def test_folders_belong_to_one_stream_and_one_writer(tmp_path: Path) -> None:
    folder = record(tmp_path, run="a run")
    slash_folder = record(tmp_path, run="a/run")
    assert folder != slash_folder == record(tmp_path, run="a/run")
    assert read_index(folder).run == "a run"
    assert record(tmp_path, run="../../..").parent == tmp_path
    assert streams_in(tmp_path) == sorted(tmp_path.iterdir())
    with closing(StreamFolder(tmp_path, "a run", "splats")) as writer:
        assert writer.path == folder
        assert record(tmp_path) not in (folder, slash_folder)
    assert record(tmp_path) == folder


def test_index_keeps_only_existing_files_of_its_folder(tmp_path: Path) -> None:
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
    for text, message in (
        (json.dumps(index | {"format": 3}), "format 3"),
        ("[" * 100_000, "damaged"),
        (json.dumps(index | {"every": -5.0}), "damaged: .*every"),
    ):
        (folder / INDEX).write_text(text)
        with pytest.raises(FileError, match=rf"recording\.json: .*{message}"):
            read_index(folder)


def test_folder_has_an_entry_for_each_stream(tmp_path: Path) -> None:
    record(tmp_path, run="one")
    record(tmp_path, run="two")
    (tmp_path / "file.txt").write_text("")
    entries = entries_of([tmp_path, tmp_path / "file.txt"])
    # The check passes where a single entry can be opened.
    check_files(entries)
    assert [p.name for p in entries] == ["one-splats", "two-splats", "file.txt"]


def test_shot_draws_the_newest_snapshot_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kept"
    record(folder, count=2)
    out = tmp_path / "out.png"
    arguments = ["shot", str(out), str(folder), "--size", "64x48"]
    assert main(arguments) == 0
    assert np.asarray(Image.open(out)).any()
    assert "step 20" in capsys.readouterr().err
    record(folder, count=1, run="another")
    assert main(arguments) == 2
    assert f"name the folder of one: {folder / 'a-run-splats'}" in (
        capsys.readouterr().err
    )


def test_export_writes_the_newest_snapshot_of_a_folder(tmp_path: Path) -> None:
    record(tmp_path / "kept", count=2)
    out = tmp_path / "out.ply"
    assert main(["export", str(out), str(tmp_path / "kept")]) == 0
    exported = open_file(out)
    np.testing.assert_allclose(exported.means, scene(20, seed=2).means, atol=1e-6)


def test_video_films_the_newest_snapshot_of_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "first", count=1)
    record(tmp_path / "second", count=1, start=2)
    record(tmp_path / "both", count=2)
    pictures = {}
    for name in ("first", "second", "both"):
        film = tmp_path / f"film of {name}"
        arguments = [str(film), str(tmp_path / name), "--size", "64x48", "--fps", "0.5"]
        assert main(["video", *arguments]) == 0
        pictures[name] = [path.read_bytes() for path in sorted(film.iterdir())]
    assert len(pictures["both"]) == 4
    assert pictures["both"] == pictures["second"] != pictures["first"]
    capsys.readouterr()
    record(tmp_path / "both", count=1, run="another")
    assert main(["video", str(tmp_path / "out.mp4"), str(tmp_path / "both")]) == 2
    assert f"name the folder of one: {tmp_path / 'both' / 'a-run-splats'}" in (
        capsys.readouterr().err
    )


def test_impossible_recording_options_are_refused() -> None:
    with pytest.raises(ViewerError, match="--record-every is 0"):
        RecordOptions(every=0).check("serve")


@pytest.mark.parametrize(("every", "pace"), [(None, 10), (50, math.inf)])
def test_recording_of_steps_takes_all_versions(every: int | None, pace: float) -> None:
    paces = []

    def note_pace(hz: float, now: float) -> None:
        paces.append(hz)

    stream = SimpleNamespace(kind="gaussians", tell_pace=note_pace)
    recorder: Any = SimpleNamespace(options=RecordOptions(every=every))
    StreamSource(stream, recorder).tell_pace(10, 100.0)
    assert paces == [pace]
