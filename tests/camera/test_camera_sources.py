"""Sources of pictures: one suite over all of them, and what each has of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from support.stream_servers import StreamServer, mjpeg_handler, served_folder
from support.videos import H, W, jpeg, pattern, write_video, zero_packets
from support.wait import PATIENCE_S, polls

import splatview
from splatview.api.frames import Frame
from splatview.camera.capture import main
from splatview.camera.only_host import host_of
from splatview.camera.open_source import source_for
from splatview.camera.pattern import read_index
from splatview.camera.sources import (
    CaptureError,
    CaptureSettings,
    NoPictureError,
    PictureSource,
    check,
    display_name,
)
from splatview.cli import doctor
from splatview_ipc.system import optional_packages as extras

CLOSE_TO = 6.0
"""Mean difference of levels that compression may make; swapped colours make 50."""


@pytest.fixture(params=["file", "http"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A SOURCE."""
    if request.param == "file":
        yield str(write_video(tmp_path / "a video.mp4"))
    else:
        with StreamServer(mjpeg_handler(100)) as server:
            yield f"http://127.0.0.1:{server.port}/camera"


def test_sources_give_their_pictures_in_order(address: str) -> None:
    """They are what was sent, upright, in RGB, in order, with times that grow, in
    memory that is the caller's.
    """
    source = source_for(CaptureSettings(source=address, patience=PATIENCE_S))
    images = []
    times = []
    source.open()
    for _ in range(10):
        times.append(source.grab())
        images.append(np.asarray(source.retrieve()))
    source.close()
    assert address in source.description
    indices = [read_index(image) for image in images]
    assert indices == list(range(indices[0], indices[0] + 10))
    # Only the pictures of files have times of their own here.
    assert len(set(times)) == (10 if source.recorded else 1)
    assert times == sorted(times)
    for image, index in zip(images, indices, strict=True):
        assert image.dtype == np.uint8
        assert image.flags.c_contiguous
        assert image.flags.writeable
        assert image.shape == (H, W, 3)
        assert np.abs(image.astype(int) - pattern(index)).mean() < CLOSE_TO


def test_source_is_opened_again_in_half_its_size(address: str) -> None:
    source = source_for(
        CaptureSettings(source=address, width=W // 2, patience=PATIENCE_S)
    )
    for _ in range(3):
        source.open()
        source.grab()
        image = np.asarray(source.retrieve())
        assert image.shape == (H // 2, W // 2, 3)
        assert (
            np.abs(image[2 * H // 5 :, -W // 8 :].astype(int) - (200, 30, 40)).mean()
            < CLOSE_TO
        )
        source.close()
        source.close()


def test_file_has_its_own_times_and_an_end(tmp_path: Path) -> None:
    times = [0.0, 0.1, 0.2, 0.5, 1.2, 1.3]
    source = source_for(
        CaptureSettings(source=str(write_video(tmp_path / "a.mp4", times)))
    )
    source.open()
    assert source.recorded
    read = []
    while (time_s := source.grab()) is not None:
        read.append((round(time_s, 2), read_index(np.asarray(source.retrieve()))))
    assert read == [(time_s, i) for i, time_s in enumerate(times)]
    assert source.grab() is None
    source.close()


def read_all(source: PictureSource, tries: int) -> list[np.ndarray]:
    """Read the pictures of a source in this many grabs, without damaged ones."""
    pictures = []
    source.open()
    for _ in range(tries):
        try:
            if source.grab() is None:
                break
        except NoPictureError:
            continue
        picture = source.retrieve()
        if picture is not None:
            pictures.append(picture)
    source.close()
    return pictures


def damaged_jpeg(index: int) -> bytes:
    """The test picture as a JPEG; of twelve, some without tables, empty, or no JPEG at
    all.
    """
    data = jpeg(index)
    return {
        3: data[:2] + b"\x55" * 300 + data[302:],
        5: data[:2],
        7: b"",
        8: b"\x55" * 300,
    }.get(index % 12, data)


def test_damaged_pictures_of_a_stream_are_the_only_ones_lost() -> None:
    connections = []

    def serve(connection: Any) -> None:
        connections.append(connection)
        mjpeg_handler(100, pictures=30, encode=damaged_jpeg)(connection)

    with StreamServer(serve) as server:
        address = f"http://127.0.0.1:{server.port}/a"
        pictures = read_all(
            source_for(CaptureSettings(source=address, patience=PATIENCE_S)), 29
        )
    indices = [read_index(picture) for picture in pictures]
    expected = [n for n in range(30) if n % 12 not in (3, 5, 7, 8)]
    assert len(connections) == 1
    assert len(indices) >= 18
    assert set(indices) <= set(expected)
    assert indices == expected[expected.index(indices[0]) :][: len(indices)]


def test_video_goes_on_behind_damaged_pictures(tmp_path: Path) -> None:
    """Read as a file and by HTTP."""
    zero_packets(write_video(tmp_path / "a.mp4", [i / 30 for i in range(24)]), 5, 6, 13)
    expected = [i for i in range(24) if i not in (5, 6, 13)]
    with served_folder(tmp_path) as site:
        for source in (str(tmp_path / "a.mp4"), f"{site}/a.mp4"):
            pictures = read_all(
                source_for(CaptureSettings(source=source, patience=PATIENCE_S)), 40
            )
            assert [read_index(picture) for picture in pictures] == expected, source


def test_each_picture_has_its_own_size(tmp_path: Path) -> None:
    """The size changes within a file, and within a stream of JPEGs."""
    first = write_video(tmp_path / "first.ts", size=(W, H))
    second = write_video(tmp_path / "second.ts", size=(160, 200), first=12)
    path = tmp_path / "a.ts"
    path.write_bytes(first.read_bytes() + second.read_bytes())

    def changing(index: int) -> bytes:
        if index < 12:
            return jpeg(index, W, H)
        return jpeg(index, 160, 200)

    with StreamServer(mjpeg_handler(100, pictures=24, encode=changing)) as server:
        for source in (str(path), f"http://127.0.0.1:{server.port}/a"):
            pictures = read_all(
                source_for(CaptureSettings(source=source, patience=PATIENCE_S)), 24
            )
            shapes = {read_index(p): p.shape for p in pictures}
            assert shapes[11] == (H, W, 3)
            assert shapes[23] == (200, 160, 3)
            for picture in pictures:
                height, width, _ = picture.shape
                sent = pattern(read_index(picture), width, height)
                assert np.abs(picture.astype(int) - sent).mean() < CLOSE_TO


class Orientation(NamedTuple):
    """A picture is transposed first, then mirrored."""

    transposed: bool = False
    upside_down: bool = False
    mirrored: bool = False

    def apply(self, image: np.ndarray) -> np.ndarray:
        if self.transposed:
            image = image.transpose(1, 0, 2)
        if self.upside_down:
            image = image[::-1]
        if self.mirrored:
            image = image[:, ::-1]
        return image


MATRICES = {
    (1, 0, 0, 1): Orientation(),
    (-1, 0, 0, 1): Orientation(mirrored=True),
    (1, 0, 0, -1): Orientation(upside_down=True),
    (-1, 0, 0, -1): Orientation(upside_down=True, mirrored=True),
    (0, 1, -1, 0): Orientation(transposed=True, mirrored=True),
    (0, -1, 1, 0): Orientation(transposed=True, upside_down=True),
    (0, 1, 1, 0): Orientation(transposed=True),
    (0, -1, -1, 0): Orientation(transposed=True, upside_down=True, mirrored=True),
}
"""Orientation of a picture by the entries a b c d of its display matrix."""


def test_pictures_are_turned_and_mirrored_as_the_file_says(tmp_path: Path) -> None:
    for index, (matrix, orientation) in enumerate(MATRICES.items()):
        a, b, c, d = (round(value * 65536) for value in matrix)
        full_matrix = (a, b, 0, c, d, 0, 0, 0, 1 << 30)
        path = write_video(
            tmp_path / f"{index}.mp4", [0.0, 0.1], display_matrix=full_matrix
        )
        source = source_for(CaptureSettings(source=str(path)))
        picture = read_all(source, 1)[0]
        expected = orientation.apply(pattern(0))
        assert picture.shape == expected.shape
        assert picture.flags.c_contiguous
        assert np.abs(picture.astype(int) - expected).mean() < CLOSE_TO, matrix
        # Width and height of the displayed picture are those that have to fit.
        small = read_all(
            source_for(CaptureSettings(source=str(path), width=400, height=60)), 1
        )[0]
        width = 80 if expected.shape[1] > expected.shape[0] else 45
        assert small.shape == (60, width, 3), matrix


def test_pixels_that_are_not_square_are_shown_in_their_proportions(
    tmp_path: Path,
) -> None:
    path = write_video(tmp_path / "a.mp4", [0.0, 0.1], pixel_aspect=Fraction(3, 2))
    with served_folder(tmp_path) as site:
        for source in (str(path), f"{site}/a.mp4"):
            picture = read_all(source_for(CaptureSettings(source=source)), 1)[0]
            assert picture.shape == (H, W * 3 // 2, 3), source
            small = read_all(source_for(CaptureSettings(source=source, width=160)), 1)
            assert small[0].shape == (round(H / 3), 160, 3), source


@pytest.mark.parametrize(
    "name",
    ["2026-11-29T12:30:00.mp4", "concat:a.mp4", "http:a.mp4", "pipe:0", "a%20b.mp4"],
)
def test_file_is_read_by_any_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FFmpeg takes what stands before a colon for a protocol."""
    monkeypatch.chdir(tmp_path)
    write_video(tmp_path / "a.mp4").rename(name)
    for source in (name, f"file://{tmp_path}/{name}"):
        settings = CaptureSettings(source=source)
        check(settings)
        opened = source_for(settings)
        opened.open()
        assert opened.grab() is not None, source
        opened.close()


def test_address_of_a_file_has_spaces_as_programs_write_them(tmp_path: Path) -> None:
    write_video(tmp_path / "my film.mp4")
    settings = CaptureSettings(source=f"file://{tmp_path}/my%20film.mp4")
    check(settings)
    opened = source_for(settings)
    opened.open()
    assert opened.grab() is not None
    opened.close()


@pytest.mark.parametrize("password", ["secret", "se@cret", "se[cret", "s:e:cret", "]"])
def test_password_is_not_shown_and_hides_no_host(password: str) -> None:
    address = f"rtsp://me:{password}@porch:554/a@b?c"
    assert display_name(address) == "rtsp://me:...@porch:554/a@b?c"
    assert host_of(address) == "porch"


def test_source_that_can_never_be_read_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.mp4").write_bytes(b"no video")
    for source, text in (
        ("", "SOURCE is empty"),
        ("nosuch.mp4", "no file nosuch.mp4"),
        ("ftp://a/b", r"'ftp' is no protocol.*rtsp"),
        ("/dev/null", "/dev/null is no camera"),
    ):
        with pytest.raises(CaptureError, match=text):
            check(CaptureSettings(source=source))
    with pytest.raises(CaptureError, match="no video that"):
        source_for(CaptureSettings(source=str(tmp_path / "a.mp4"))).open()
    with pytest.raises(CaptureError, match="PyPI's has no GStreamer"):
        source_for(CaptureSettings(source="a ! b")).open()

    def find_no_spec(name: str) -> None:
        return None

    monkeypatch.setattr(extras, "find_spec", find_no_spec)
    check(CaptureSettings(source="test"))
    for name, needed in (
        (str(tmp_path / "a.mp4"), r"PyAV.*\[video\]"),
        (
            "rtsp://me:secret@porch/a",
            r"^rtsp://me:\.\.\.@porch/a.*OpenCV.*\[camera\]",
        ),
    ):
        with pytest.raises(CaptureError, match=needed):
            check(CaptureSettings(source=name))


def test_silent_server_is_lost_after_its_patience() -> None:
    with StreamServer(mjpeg_handler(100, pictures=60)) as server:
        source = source_for(
            CaptureSettings(source=f"http://127.0.0.1:{server.port}/x", patience=1)
        )
        for _ in polls("the source opens within a second"):
            try:
                source.open()
                break
            except CaptureError:
                source.close()
        assert not source.recorded
        with pytest.raises(CaptureError, match="no picture comes"):
            for _ in range(100):
                source.grab()
        source.close()


def test_error_is_published_over_the_last_picture(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("splatview.camera.capture.RETRY_S", 0.01)
    frames_seen: list[Frame] = []

    def watch() -> None:
        def first(troubled: bool) -> None:
            frames_seen.append(
                next(
                    frame
                    for frame in frames
                    if bool(frame.meta.get("trouble")) == troubled
                )
            )

        try:
            with splatview.frames("camera", timeout=PATIENCE_S) as frames:
                first(False)
                server.server_close()
                first(True)
                with StreamServer(mjpeg_handler(100), server.port):
                    first(False)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def ignore(*_: object) -> None:
        pass

    saved_handler = signal.signal(signal.SIGTERM, ignore)
    with StreamServer(mjpeg_handler(100)) as server:
        thread = threading.Thread(target=watch)
        thread.start()
        source = f"http://127.0.0.1:{server.port}/a"
        assert main(json.dumps({"source": source, "patience": PATIENCE_S})) == 0
        thread.join()
    signal.signal(signal.SIGTERM, saved_handler)
    sent, troubled, _ = frames_seen
    index = read_index(sent.numpy())
    assert np.abs(sent.numpy().astype(int) - pattern(index)).mean() < CLOSE_TO
    assert troubled.numpy().shape == (H, W, 3)
    assert read_index(troubled.numpy()) >= index
    assert "trying again" in troubled.meta["trouble"]
    text = capsys.readouterr().err.splitlines()
    assert "trying again" in text[1]
    assert "the pictures go on" in text


def test_doctor_finds_what_cameras_need(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = doctor.check_camera()
    assert complete.state == "ok"
    assert "OpenCV 4." in complete.detail
    assert " GStreamer" in complete.detail
    monkeypatch.setitem(sys.modules, "av", None)
    less = doctor.check_camera()
    assert less.state == "absent"
    assert "no PyAV" in less.detail
    assert "OpenCV 4." in less.detail
    assert less.advice == extras.install_line("camera")
