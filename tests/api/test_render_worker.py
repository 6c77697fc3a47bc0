"""Scenes that a function draws in a process of its own: `publish(..., render=...)`."""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from support.reading import copied, stream_of
from support.wait import clock, wait_until

import splatview
from splatview.api import render_worker
from splatview.api.render_worker import TimeLimits
from splatview.api.session import session, started_publisher
from splatview.api.worker_output import WorkerOutput
from splatview.rendering.loading import check_name
from splatview.rendering.worker import RenderWorkerProgram
from splatview.rendering.worker_settings import WorkerReport, WorkerSettings
from splatview_ipc.control.messages import Draw, DrawnCamera
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.subscriber.subscriber import Subscriber

VIEWER = "ab" * 16
EYE = (1.0, 0, 0, 0, 0, 1.0, 0, 0, 0, 0, 1.0, 0, 0, 0, 0, 1.0)
CAMERA = DrawnCamera(8, 6, EYE, (5.0, 0, 4.0, 0, 5.0, 3.0, 0, 0, 1.0))
FLAT = """
import torch

def draw(tensors, camera):
    means = tensors["means"]
    return means.mean().expand(camera.height, camera.width, 3)
"""


class DrawingFile:
    """A module that a test writes, which may be imported by its name."""

    def __init__(self, folder: Path) -> None:
        self.name = f"drawing_{secrets.token_hex(4)}"
        self.function = f"{self.name}:draw"
        self._path = folder / f"{self.name}.py"

    def write(self, text: str) -> None:
        self._path.write_text(text)


@pytest.fixture
def drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DrawingFile:
    """Return the file of a module that draws the mean of all positions."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file = DrawingFile(tmp_path)
    file.write(FLAT)
    return file


class Asker:
    """A viewer that asks for pictures."""

    def __init__(self, subscriber: Subscriber, advance: Callable[[], Any]) -> None:
        self.subscriber = subscriber
        self.advance = advance
        self._request_number = 0
        self._version = 0

    def wait_for(self, condition: Callable[[], Any], expected: str) -> Any:
        def poll_both() -> Any:
            self.advance()
            self.subscriber.poll()
            return condition()

        return wait_until(poll_both, expected)

    def pictures(self) -> RemoteStream:
        """Return the stream of pictures of a live worker."""

        def find() -> RemoteStream | None:
            streams = [s for s in self.subscriber.streams if s.kind == "picture"]
            return next((s for s in streams if s.run.alive), None)

        return self.wait_for(find, "pictures")

    def request_picture(self) -> None:
        stream = self.pictures()
        stream.open()
        self._request_number += 1
        stream.request_picture(
            Draw(stream.info.index, VIEWER, self._request_number, CAMERA),
        )

    def picture(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ask for a picture; return the metadata and arrays of the answer."""
        self.request_picture()
        stream = self.pictures()

        def answer() -> Any:
            frame = copied(stream)
            if frame is None or frame[1]["request"] != self._request_number:
                return None
            return frame

        _, meta, arrays = self.wait_for(answer, "an answer")
        assert meta["viewer"] == VIEWER
        return meta, arrays


@pytest.fixture
def worker(
    subscriber: Subscriber, drawing: DrawingFile, request: pytest.FixtureRequest
) -> Iterator[Asker]:
    """Yield a viewer of a scene whose worker runs in this process."""
    value, module = getattr(request, "param", ({"means": torch.full((4, 3), 0.2)}, ""))
    maker = f"{drawing.name}:make" if module else None
    drawing.write(module or FLAT)
    splatview.publish(value, "scene", render=drawing.function, module=maker)
    publisher = started_publisher()
    assert publisher is not None
    settings = WorkerSettings(
        run=publisher.run_id,
        run_name="train",
        scene="scene",
        function=drawing.function,
        module=maker or "",
    )
    program = RenderWorkerProgram(settings, sent_news.append)
    yield Asker(subscriber, program.turn)
    program.close()
    sent_news.clear()


sent_news: list[WorkerReport] = []
"""What the worker of a test has told its trainer."""


def test_pictures_lie_over_the_scene_and_follow_its_versions(
    worker: Asker, drawing: DrawingFile
) -> None:
    for value in (0.2, 0.6):
        means = torch.full((4, 3), value)
        splatview.publish(
            {"means": means}, "scene", render=drawing.function, meta={"step": 7}
        )
        meta, arrays = worker.picture()
        while arrays["color"][0, 0, 0] != round(255 * value):
            meta, arrays = worker.picture()
        assert arrays["color"].shape == (6, 8, 3)
        assert meta["step"] == 7
        assert meta["ms"] >= 0
    info = worker.pictures().info
    publisher = started_publisher()
    assert publisher is not None
    assert (info.over, info.over_run) == ("scene", publisher.run_id)
    scene = stream_of(worker.subscriber, "scene")
    _, meta, arrays = worker.wait_for(partial(copied, scene), "the scene")
    assert arrays["points"].shape == (4, 3)
    assert meta["function"] == drawing.function
    with Subscriber(publisher.run_id) as follower:
        follower.poll()
        assert len(follower.runs) == 2, "the worker is found with its trainer"


def test_a_function_is_given_the_newest_controls(
    worker: Asker, drawing: DrawingFile
) -> None:
    drawing.write(
        FLAT.replace("camera)", "camera, controls)").replace(
            "means.mean()", "(means.mean() * controls.gain)"
        )
    )
    meta, _ = worker.picture()
    assert "no control 'gain'" in meta["trouble"]
    # Declared after the worker has begun, and read by its next picture.
    gain = splatview.controls.slider("gain", 0.0, 4.0, value=2.0)
    panel = stream_of(worker.subscriber, "controls")
    worker.wait_for(partial(copied, panel), "controls")
    _, arrays = worker.picture()
    assert arrays["color"][0, 0, 0] == 102
    last_version = panel.version
    gain.value = 4.0
    worker.wait_for(lambda: panel.version > last_version, "the controls' next version")
    _, arrays = worker.picture()
    assert arrays["color"][0, 0, 0] == 204


def test_a_function_is_edited_while_it_is_looked_at(
    worker: Asker, drawing: DrawingFile, capfd: pytest.CaptureFixture[str]
) -> None:
    worker.picture()
    drawing.write("")
    _, arrays = worker.picture()
    assert arrays["color"][0, 0, 0] == 51, "an editor has only begun to write"
    assert not sent_news[-1].fault_text
    drawing.write(FLAT + "\nraise KeyError('half done')\n")
    _, arrays = worker.picture()
    assert arrays["color"][0, 0, 0] == 51, "the old one draws"
    assert "half done" in sent_news[-1].fault_text
    assert "importlib" not in sent_news[-1].fault_text
    drawing.write(FLAT.replace("means.mean()", "(2 * means.mean())"))
    _, arrays = worker.picture()
    assert arrays["color"][0, 0, 0] == 102
    assert sent_news[-1] == WorkerReport(is_changed=True)
    drawing.write("def draw(tensors, camera):\n    return 1 / 0\n")
    meta, arrays = worker.picture()
    assert not arrays
    assert "ZeroDivisionError" in meta["trouble"]
    assert "return 1 / 0" in meta["trouble"]
    drawing.write(FLAT.replace("means.mean()", "(means.mean() * torch.nan)"))
    meta, _ = worker.picture()
    assert "NaN" in meta["trouble"]
    assert "NaN" in capfd.readouterr().err
    drawing.write("def other():\n    pass\n")
    worker.picture()
    assert "has no attribute 'draw'" in sent_news[-1].fault_text


MODULE = """
import torch
from torch import nn

def make():
    return nn.ModuleDict({"net": nn.Linear(2, 3), "norm": nn.BatchNorm1d(3)})

def draw(module, camera):
    color = module["net"](torch.ones(2))
    color = color + module["norm"].num_batches_tracked
    return color.expand(camera.height, camera.width, 3)
"""


def _network() -> torch.nn.Module:
    network = torch.nn.ModuleDict(
        {"net": torch.nn.Linear(2, 3), "norm": torch.nn.BatchNorm1d(3)}
    )
    torch.nn.init.constant_(network["net"].weight, 0.1)  # type: ignore[arg-type]
    torch.nn.init.constant_(network["net"].bias, 0.2)  # type: ignore[arg-type]
    return network


@pytest.mark.parametrize("worker", [(_network(), MODULE)], indirect=True)
def test_a_module_is_bound_to_the_published_tensors(
    worker: Asker, drawing: DrawingFile
) -> None:
    _, arrays = worker.picture()
    assert arrays["color"][0, 0].tolist() == [102] * 3
    drawing.write(MODULE.replace("nn.Linear(2, 3)", "nn.Linear(2, 3, bias=False)"))
    meta, _ = worker.picture()
    assert "not in the module net.bias" in meta["trouble"]


def test_a_worker_runs_while_viewers_look_and_is_ended_where_it_never_returns(
    subscriber: Subscriber,
    drawing: DrawingFile,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(render_worker, "TIME_LIMITS", TimeLimits(0.2, 20.0))
    means = torch.full((4, 3), 0.2)
    splatview.publish({"means": means}, "scene", render=drawing.function)
    worker = session().features["render scene"]
    asker = Asker(subscriber, lambda: None)
    scene = stream_of(subscriber, "scene")
    _, arrays = asker.picture()
    assert arrays["color"][0, 0, 0] == 51
    pictures = asker.pictures()
    drawing.write("def draw(tensors, camera):\n    while True:\n        pass\n")
    asker.request_picture()

    def scene_trouble() -> str:
        frame = copied(scene)
        return frame[1].get("trouble", "") if frame else ""

    text = asker.wait_for(scene_trouble, "trouble")
    assert f"{drawing.function} took longer than 0.2 s" in text
    assert f'{drawing.name}.py", line ' in text
    assert "rendering" not in text
    asker.wait_for(lambda: not pictures.run.alive, "the end of its run")
    assert "Timeout" in capfd.readouterr().err
    # It is started again after a pause, and ends with the run.
    worker.tick(clock() + render_worker.IDLE_S)
    splatview.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"render": "__main__:draw"}, "move draw into a file beside the script"),
        ({"render": "drawing"}, "package.module:function"),
        ({"render": "os; import sys:exit"}, "package.module:function"),
        ({"render": "../drawing:draw"}, "package.module:function"),
        ({"render": "a:b\n"}, "package.module:function"),
        ({"render": "a" * 300 + ":b"}, "at most 200"),
        ({"render": "a:b", "module": "c"}, "module is 'c'"),
        ({"render": "a:b", "copy": False}, "CPU tensor"),
    ],
)
def test_names_that_are_none_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        splatview.publish({"means": torch.zeros(2, 3)}, "scene", **options)


def test_a_scene_is_drawn_within_the_script_or_outside(drawing: DrawingFile) -> None:
    means = {"means": torch.zeros(2, 3)}
    splatview.renderer("inside")(print)
    with pytest.raises(ValueError, match=r"'inside' is drawn by a function of this"):
        splatview.publish(means, "inside", render=drawing.function)
    splatview.publish(means, "outside", render=drawing.function)
    with pytest.raises(ValueError, match=r"'outside' is published with render="):
        splatview.renderer("outside")(print)


def test_lines_that_each_restarted_worker_writes_are_printed_once(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    output = WorkerOutput("scene")
    with caplog.at_level(logging.WARNING, "splatview"):
        for line_index in range(3):
            output.begin()
            output.take(f"Thread 0x{line_index}f crashed")
            output.take("step 7")
            output.take("step 8")
            output.log_end("ended with code 3")
    printed = "scene: Thread 0x0f crashed\nscene: step 7\nscene: step 8\n"
    assert capfd.readouterr().err == printed
    assert list(output.lines) == ["Thread 0x2f crashed", "step 7", "step 8"]
    assert caplog.messages == ["splatview: scene: ended with code 3"]
    output.begin()
    for line_index in range(5000):
        output.take(f"line{line_index * 'a'}")
    last_line = capfd.readouterr().err.splitlines()[-1]
    assert last_line == "scene: more than 1,000 lines: the others are not printed"


@pytest.mark.parametrize("is_guarded", [False, True])
def test_script_that_would_start_again_is_not_imported(
    is_guarded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = ModuleType("__main__")
    script.__file__ = str(tmp_path / "train.py")
    script.__spec__ = None
    text = 'if __name__ == "__main__":\n    main()' if is_guarded else "main()"
    Path(script.__file__).write_text(text)
    monkeypatch.setitem(sys.modules, "__main__", script)
    if is_guarded:
        check_name("render", "train:draw")
        return
    with pytest.raises(ValueError, match="to import train would start this script"):
        check_name("render", "train:draw")


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        ({"a": "text"}, {"render": "a:b"}, "a is a str"),
        (torch.zeros(2, 3), {"render": "a:b"}, "mapping of names to tensors"),
        ({"a": torch.zeros(2)}, {"render": print}, "builtin_function_or_method"),
        ({"a": torch.zeros(2)}, {"module": "a:b"}, "without render"),
        ({"a": torch.zeros(2)}, {"render": "a:b", "kind": "image"}, "leave kind out"),
    ],
)
def test_values_that_are_none_are_refused(
    value: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        splatview.publish(value, "scene", **options)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "0 tensors; expected 1 to 256"),
        ({"a b": torch.zeros(2)}, "'a b'; expected letters"),
        ({"a": {"b": torch.zeros(2)}, "a.b": torch.zeros(2)}, "two tensors"),
        ({"a": torch.zeros(2, dtype=torch.complex64)}, "complex64; expected"),
    ],
)
def test_tensors_that_cannot_be_shared_are_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        splatview.publish(value, "scene", render="a:b")
