"""Answers of the program that draws for `grab`, as its caller takes them.

The program and its stream are stand-ins: pictures in host memory, answers in a pipe.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from splatview.api import grab_client, grab_pictures
from splatview.api.grab_client import GrabClient
from splatview_ipc.control.frame import RemoteTensor, StreamFrame
from splatview_ipc.control.render_requests import (
    GPU,
    Answer,
    PictureQueued,
    Ready,
    RenderError,
    RenderRequest,
    RenderResult,
    encode,
)

REQUEST = RenderRequest(1.0)


class FakeProgram:
    """Stand-in for the program: takes any request, and answers what is put here."""

    latest: FakeProgram

    def __init__(self, *_: str, pipes: bool) -> None:
        requests, answers = os.pipe(), os.pipe()
        self._unread = os.fdopen(requests[0])
        self.stdin = os.fdopen(requests[1], "w")
        self.stdout = os.fdopen(answers[0])
        self._answers = os.fdopen(answers[1], "wb", buffering=0)
        self.exit_code = 0
        self.put(Ready("hidden"))
        FakeProgram.latest = self

    def put(self, *answers: Answer) -> None:
        self._answers.write(b"".join(encode(answer) + b"\n" for answer in answers))

    def is_running(self) -> bool:
        return not self.stdin.closed

    def last_error_lines(self) -> str:
        return ""

    def end(self, timeout_s: float) -> None:
        for pipe in (self.stdin, self.stdout, self._answers, self._unread):
            pipe.close()


class Pictures:
    """Stand-in for the subscriber and its only stream; a version is its colour."""

    latest: Pictures
    name = GPU
    fault = ""

    def __init__(self, run: str, client: str) -> None:
        self.streams = [self]
        self.newest = 0
        self.copied: list[int] = []
        Pictures.latest = self

    def open(self) -> None:
        pass

    def poll(self) -> None:
        pass

    def close(self) -> None:
        pass

    def read(self, after: int) -> StreamFrame | None:
        if self.newest <= after:
            return None
        self.copied.append(self.newest)
        image = RemoteTensor("uint8", np.full((2, 3, 3), self.newest, np.uint8))
        return StreamFrame("image", self.newest, 0, {}, {"image": image}, lambda: True)


class Drawing:
    """A client with its stand-ins."""

    def __init__(self) -> None:
        self.client = GrabClient("", 1.0)
        self.program = FakeProgram.latest
        self.pictures = Pictures.latest

    def draw(self) -> int:
        """Return the version of the picture."""
        return int(self.client.draw(REQUEST, 0)[0, 0, 0])


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(grab_client, "ChildProgram", FakeProgram)
    monkeypatch.setattr(grab_pictures, "Subscriber", Pictures)
    drawing = Drawing()
    yield drawing
    drawing.client.close()


def test_picture_is_copied_when_it_is_queued(drawing: Drawing) -> None:
    picture = RenderResult(GPU, 3)
    drawing.pictures.newest = 3
    drawing.program.put(PictureQueued(picture), picture)
    assert drawing.draw() == 3
    assert drawing.pictures.copied == [3]


def test_picture_that_was_not_whole_is_replaced(
    drawing: Drawing, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing.pictures.newest = 3
    drawing.program.put(PictureQueued(RenderResult(GPU, 3)), RenderResult(GPU, 4))
    read: Any = drawing.pictures.read

    def read_and_go_on(after: int) -> StreamFrame | None:
        frame = read(after)
        drawing.pictures.newest = 4
        return frame

    monkeypatch.setattr(drawing.pictures, "read", read_and_go_on)
    assert drawing.draw() == 4
    assert drawing.pictures.copied == [3, 4]


def test_next_answer_ends_the_wait_for_a_queued_picture(
    drawing: Drawing,
) -> None:
    drawing.program.put(PictureQueued(RenderResult(GPU, 3)))
    drawing.program.put(RenderError("lookup", "gone"))
    with pytest.raises(LookupError, match="gone"):
        drawing.draw()
    drawing.pictures.newest = 4
    drawing.program.put(RenderResult(GPU, 4))
    assert drawing.draw() == 4, "each answer belongs to its request"


def test_interrupted_wait_for_a_queued_picture_ends_the_program(
    drawing: Drawing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(after: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(drawing.pictures, "read", interrupt)
    drawing.program.put(PictureQueued(RenderResult(GPU, 3)))
    with pytest.raises(KeyboardInterrupt):
        drawing.draw()
    assert not drawing.client.alive
