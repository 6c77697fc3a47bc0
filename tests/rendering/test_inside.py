"""A function inside the trainer: its budget, its turns, and what viewers are told."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import torch
from support.pair import Pair

from splatview.rendering.drawn_scene import sample_points
from splatview.rendering.inside import InsideRenderer
from splatview_ipc.control.messages import Draw, DrawnCamera

EYE = tuple(torch.eye(4).flatten().tolist())
CAMERA = DrawnCamera(
    width=4, height=3, viewmat=EYE, K=(5.0, 0.0, 2.0, 0.0, 5.0, 1.5, 0.0, 0.0, 1.0)
)


class Script:
    """A script that draws a scene, and a viewer of it, with a clock that is counted."""

    def __init__(self, pair: Pair, function: Any = None, budget: float = 0.05) -> None:
        self.pair = pair
        self.request_count = 0
        self.calls = 0
        self.picture_s = 0.0
        """What a picture takes."""
        self.drawn: list[Any] = []
        """The cameras of the pictures."""
        self.scene = InsideRenderer(
            pair.publisher, "scene", self.note_request, self.count_calls
        )
        points = torch.arange(15.0).view(5, 3)
        self.scene.set_function(function or self.picture, budget, points)
        pair.other_programs.append(self.tick)

    def note_request(self) -> None:
        self.request_count += 1

    def count_calls(self) -> int:
        return self.calls

    def tick(self) -> None:
        self.due = self.scene.tick(self.pair.now)

    def picture(self, camera: Any) -> torch.Tensor:
        self.drawn.append(camera)
        self.pair.now += self.picture_s
        return torch.full((camera.height, camera.width, 3), 0.2)

    def draw(self) -> bool:
        """Call `splatview.draw`; return whether that drew."""
        self.calls += 1
        if not self.scene.is_due():
            return False
        self.scene.draw(None)
        return True

    def ask_picture(self, request_number: int, viewer: str = "ab") -> None:
        """Ask for a picture, and have the script get the request."""
        stream = self.pair.stream("scene/pictures")
        self.pair.until(lambda: self.pair.publisher.streams[stream.name].readers)
        earlier_count = self.request_count
        stream.request_picture(
            Draw(
                index=stream.info.index,
                viewer=viewer,
                number=request_number,
                camera=CAMERA,
            )
        )
        self.pair.until(lambda: self.request_count > earlier_count)

    def answer(self, version: int = 0) -> Any:
        return self.pair.newest("scene/pictures", version)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with closing(Pair()) as pair:
        yield pair


def test_viewers_get_points_and_the_pictures_that_they_ask_for(pair: Pair) -> None:
    script = Script(pair)
    _, meta, arrays = pair.newest("scene")
    assert meta["function"] == "picture"
    assert arrays["points"].tolist() == torch.arange(15.0).view(5, 3).tolist()
    assert not script.draw()
    script.ask_picture(1)
    assert script.draw()
    _, meta, arrays = script.answer()
    assert (meta["viewer"], meta["request"]) == ("ab", 1)
    assert (arrays["color"] == 51).all()
    assert not pair.faults


def test_pictures_take_their_share_of_the_time(pair: Pair) -> None:
    script = Script(pair, budget=0.05)
    script.picture_s = 1.0
    script.ask_picture(1)
    started_at = pair.now
    request_numbers = iter(range(2, 100_000))
    picture_count = 0
    while pair.now < started_at + 200:
        picture_count += script.draw()
        script.scene.take_request(Draw(0, "ab", next(request_numbers), CAMERA))
        pair.now += 0.25
        script.tick()
    # The pause after the first one is short.
    assert picture_count == 11


@pytest.mark.parametrize("is_moving", [False, True])
def test_pictures_use_up_their_share_of_the_time(pair: Pair, is_moving: bool) -> None:
    """Though steps, viewer and the worker's turns let each picture come late."""
    script = Script(pair, budget=0.05)
    script.ask_picture(1)
    script.draw()
    script.picture_s = 0.0068
    scene = pair.publisher.streams["scene"]
    pictures = pair.publisher.streams["scene/pictures"]
    seen_versions = scene.version, pictures.version
    picture_count = 0
    script.tick()
    ended_at = pair.now + 10
    for millisecond in itertools.count():
        pair.now += 0.001
        if pair.now >= ended_at:
            break
        if pair.now >= script.due:
            script.tick()
        if millisecond % 30 == 0 and script.draw():
            picture_count += 1
            script.tick()
        # A viewer looks every 7 ms, at the answer or at the scene.
        versions = scene.version, pictures.version
        if millisecond % 7 == 0 and versions[is_moving] != seen_versions[is_moving]:
            seen_versions = versions
            request_number = picture_count + 2
            script.scene.take_request(Draw(0, "ab", request_number, CAMERA))
            script.tick()
    allowed_count = 10 * 0.05 / script.picture_s
    assert 0.95 * allowed_count < picture_count <= allowed_count + 1


def test_first_picture_which_loads_libraries_delays_the_next_for_a_second(
    pair: Pair,
) -> None:
    script = Script(pair, budget=0.05)
    script.ask_picture(1)
    started_at = pair.now
    for request_number, picture_s, pause_s in ((2, 0.6, 1.0), (3, 0.1, 2.0)):
        script.picture_s = picture_s
        assert script.draw()
        script.tick()
        script.scene.take_request(Draw(0, "ab", request_number, CAMERA))
        pair.now = started_at + pause_s - 0.01
        assert not script.draw()
        started_at += pause_s
        pair.now = started_at


def test_script_that_seldom_waits_for_its_gpu_draws_each_time(pair: Pair) -> None:
    """It calls `splatview.draw` 20 times in a row, and then its GPU works them off."""
    script = Script(pair, budget=0.05)
    script.picture_s = 0.0066
    script.ask_picture(1)
    picture_count = 0
    wait_count = 60
    for request_number in range(2, wait_count + 2):
        ends_at = pair.now + 0.166
        for _ in range(20):
            pair.now += 0.001
            picture_count += script.draw()
        # Only then the time of the picture is known, and the viewer gets it.
        pair.now = ends_at
        script.tick()
        script.scene.take_request(Draw(0, "ab", request_number, CAMERA))
    assert picture_count == wait_count


def test_no_picture_is_begun_before_the_time_of_the_last_one_is_known(
    pair: Pair,
) -> None:
    script = Script(pair, budget=1)
    script.ask_picture(1)
    assert script.draw()
    script.scene.take_request(Draw(0, "ab", 2, CAMERA))
    assert not script.draw()
    script.tick()
    assert script.draw()


def test_viewers_take_turns_and_newest_cameras_come_first(pair: Pair) -> None:
    script = Script(pair)
    script.ask_picture(1, "ab")
    for request_number in range(2, 5):
        script.scene.take_request(Draw(0, "ab", request_number, CAMERA))
    script.scene.take_request(Draw(0, "cd", 1, CAMERA))
    version = 0
    for expected in (("ab", 4), ("cd", 1)):
        pair.until(script.scene.is_due)
        assert script.draw()
        version, meta, _ = script.answer(version)
        assert (meta["viewer"], meta["request"]) == expected
    assert not script.draw()


def test_still_cameras_are_told_of_a_scene_that_changes(pair: Pair) -> None:
    script = Script(pair)
    version, _, _ = pair.newest("scene")
    script.ask_picture(1)
    script.draw()
    newer, _, _ = pair.newest("scene", version)
    pair.pump(10)
    # The script stands still.
    assert pair.publisher.streams["scene"].version == newer
    script.draw()
    assert pair.newest("scene", newer)


def test_script_that_does_not_draw_is_named(pair: Pair) -> None:
    script = Script(pair)
    script.ask_picture(1)
    version, meta, _ = pair.newest("scene")
    while "trouble" not in meta:
        version, meta, _ = pair.newest("scene", version)
    assert "has not called splatview.draw()" in meta["trouble"]
    assert script.draw()
    _, meta, _ = pair.newest("scene", version)
    assert "trouble" not in meta


def test_error_is_shown_with_its_traceback_and_logged_once(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(camera: Any) -> None:
        values = [camera]
        print(values[len(values) + 41])

    script = Script(pair, fail)
    version = 0
    with caplog.at_level(logging.WARNING, "splatview"):
        for request_number in (1, 2):
            script.ask_picture(request_number)
            pair.until(script.scene.is_due)
            assert script.draw()
            version, meta, arrays = script.answer(version)
            assert not arrays
            assert meta["request"] == request_number
            assert "values[len(values) + 41]" in meta["trouble"]
            assert meta["trouble"].endswith("IndexError: list index out of range")
    (message,) = caplog.messages
    assert "fail cannot draw 'scene', training goes on" in message


def test_nan_is_shown_and_logged(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    def bad(camera: Any, controls: Any) -> torch.Tensor:
        return torch.full((3, camera.height, camera.width), math.nan)

    script = Script(pair, bad)
    script.ask_picture(1)
    assert script.draw()
    _, meta, arrays = script.answer()
    assert "NaN" in meta["trouble"]
    assert not arrays
    assert "NaN" in caplog.text


def test_interrupted_picture_does_not_stop_the_next_one(pair: Pair) -> None:
    def interrupted(camera: Any) -> None:
        raise KeyboardInterrupt

    script = Script(pair, interrupted)
    script.ask_picture(1)
    with pytest.raises(KeyboardInterrupt):
        script.draw()
    script.scene.set_function(script.picture, 0.5, None)
    script.ask_picture(2)
    assert script.draw()


def test_points_are_sampled_evenly() -> None:
    many = torch.arange(30_000.0).view(-1, 3).requires_grad_()
    sample = sample_points(lambda: many)
    assert sample is not None
    assert sample.shape == (3334, 3)
    assert not sample.requires_grad
    assert sample_points(None) is None
    assert sample_points(torch.zeros(0, 3)) is None
    with pytest.raises(
        ValueError, match=r"\(2, 4\) and dtype float32; expected \(N, 3\)"
    ):
        sample_points(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="int64"):
        sample_points(torch.zeros(2, 3, dtype=torch.long))
    with pytest.raises(TypeError, match="points is"):
        sample_points("points")
