"""What the benchmarks of the browser screen measure with: numbered pictures, the page without a browser, clocks."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
from patience import PATIENCE

from benchmarks.browser import clocks, garden, jpeg, marks, numbered
from benchmarks.browser.programs import Program
from benchmarks.gpu.clocks import until
from splatview.viewer_app.web.messages import Ack, Picture
from splatview.viewer_app.web.server import WebServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from splatview.viewer_app.web.connection import Connection, Upload
    from splatview.viewer_app.web.messages import ClientMessage

SIZE = (480, 270)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("base") / "base.npy"
    np.save(file, garden.picture(576, 324)[0])
    return file


def encoded(base: Path, number: int, quality: int = 80) -> bytes:
    import simplejpeg

    picture = numbered.moving(numbered.load(base), SIZE, numbered.POOL)[number % numbered.POOL]
    numbered.write(picture, number)
    return simplejpeg.encode_jpeg(picture, quality, colorsubsampling="420")


@pytest.mark.parametrize("number", [0, 1, 12345, (1 << numbered.BITS) - 1])
def test_a_number_survives_jpeg_and_another_size(base: Path, number: int) -> None:
    from PIL import Image

    picture = jpeg.decode(encoded(base, number, 60))
    assert numbered.read(picture) == number
    smaller = np.asarray(Image.fromarray(picture).resize((360, 202)))
    assert numbered.read(smaller) == number


def test_a_picture_without_a_number_is_told(base: Path) -> None:
    with pytest.raises(ValueError, match="no number"):
        numbered.read(numbered.moving(numbered.load(base), SIZE, 1)[0])


@pytest.mark.parametrize("quality", [40, 50, 80, 95])
def test_a_jpeg_says_its_quality(base: Path, quality: int) -> None:
    assert jpeg.describe(encoded(base, 3, quality)) == {"format": "jpeg", "quality": quality, "colour": "4:2:0"}


def test_the_mark_is_found_where_it_lies(base: Path) -> None:
    picture = numbered.moving(numbered.load(base), SIZE, 1)[0]
    with pytest.raises(ValueError, match="no mark"):
        marks.find(picture)
    marks.draw(picture)
    assert marks.find(np.roll(picture, (20, -31), (0, 1))) == (240 - 31, 135 + 20)


@pytest.mark.exhaustive
def test_processor_time_is_told_by_thread() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            sum(range(1000))

    spinning = threading.Thread(target=spin, name="encode_0")
    spinning.start()
    try:
        assert spinning.native_id is not None
        names = {"encode_0": spinning.native_id}
        before = clocks.cpu(os.getpid(), names)
        until("0.2 s of work", lambda: (clocks.cpu(os.getpid(), names) - before).parts["encode"] > 200,
              PATIENCE)
        taken = clocks.cpu(os.getpid(), names) - before
    finally:
        stop.set()
        spinning.join()
    assert taken.total >= taken.parts["encode"] - 20 > 150
    assert taken.parts["web"] == 0


class Sender:
    """Takes acknowledgements and events on the server's side."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.acks: list[int] = []
        connection.attach(self)

    def take(self, message: ClientMessage | Upload, now: float) -> None:
        if isinstance(message, Ack):
            self.acks.append(message.number)

    def lost(self) -> None:
        pass

    def send(self, number: int, data: bytes) -> None:
        self.connection.send_picture(Picture(number, "jpeg", SIZE, SIZE, 0.0, 0, 80, False, data))
        until(f"acknowledgement of {number}", lambda: number in self.acks, PATIENCE)


@pytest.fixture
def server() -> Iterator[WebServer]:
    server = WebServer(port=0, wake=lambda: None)
    yield server
    server.close()


def test_the_page_counts_and_checks_what_it_is_sent(server: WebServer, base: Path) -> None:
    with Program("benchmarks.browser.page", json.dumps({"port": server.port, "size": SIZE})) as page:
        arrived: list[Connection] = []
        until("the page", lambda: arrived.extend(server.arrivals()) or bool(arrived), PATIENCE)
        sender = Sender(arrived[0])
        assert page.ask("state") == {"pictures": 0, "closed": "", "number": -1, "mark": None}
        page.ask("begin")
        times = []
        for number in range(40, 50):
            times.append((number, time.monotonic()))
            sender.send(number, encoded(base, number))
        report = page.ask("report")
        assert report["pictures"] == 10
        assert report["sizes"] == [["480x270", 10]]
        check = page.ask("check", base=str(base), times=times, until=time.monotonic())
        assert check["checked"] == 10
        assert check["quality"] == 80
        assert check["worst"] > 28
        with pytest.raises(RuntimeError, match="not published by then"):
            page.ask("check", base=str(base), times=times[:3], until=time.monotonic())
        page.ask("begin")
        sender.send(60, encoded(base, 61))
        sender.send(61, encoded(base, 60))
        now = time.monotonic()
        with pytest.raises(RuntimeError, match="60 after 61"):
            page.ask("check", base=str(base), times=[(60, now - 60), (61, now - 60)], until=now)
