"""`splatview.controls`: what a script declares, and what viewers set."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.pair import Pair
from support.reading import copied, stream_of
from support.wait import wait_until

import splatview
from splatview import controls
from splatview.api import script_controls
from splatview.api.controls_stream import ControlsStream
from splatview.rendering.control_values import ControlValues
from splatview_ipc.kinds.controls import MAX_CONTROLS, Control, decode
from splatview_ipc.subscriber.remote_stream import RemoteStream
from splatview_ipc.subscriber.subscriber import Subscriber


class Panel:
    """The controls of the script as one viewer sees them."""

    def __init__(self, pair: Pair, viewer: Subscriber) -> None:
        self.pair = pair
        self.viewer = viewer
        self.stream: RemoteStream = pair.stream("controls", viewer)

    def controls(self) -> dict[str, Control]:
        """Return the controls of the newest version, by name."""
        frame = self.pair.until(partial(copied, self.stream), "controls")
        return {control.name: control for control in decode(frame[2]["controls"])}

    def value(self, name: str) -> Any:
        """Return a value; None before the control is there."""
        control = self.controls().get(name)
        return None if control is None else control.value

    def until_value(self, name: str, value: Any) -> None:
        def has_value() -> bool:
            return self.value(name) == value

        self.pair.until(has_value, f"{name} is {value!r}")


@pytest.fixture
def script(runtime_dir: Path) -> Iterator[Pair]:
    """Yield a run that publishes the controls which the test declares."""
    with closing(Pair()) as pair:
        stream = ControlsStream(pair.publisher, script_controls.registry)

        def tick() -> None:
            stream.tick(pair.now)

        pair.other_programs.append(tick)
        yield pair


@pytest.fixture
def panel(script: Pair) -> Panel:
    return Panel(script, script.viewer)


def test_every_form_is_declared_and_set(panel: Panel) -> None:
    time = controls.slider("time", 0, 1, value=0.5)
    panel.until_value("time", 0.5)
    with controls.folder("Deformation"), controls.folder("Network"):
        is_on = controls.checkbox("on", np.bool_(True))  # type: ignore[arg-type]
    degree = controls.slider("degree", 0, 3, value=3, step=1)
    mode = controls.dropdown("mode", ["rgb", "depth"])
    note = controls.text("note", "first")
    paint = controls.color("paint", torch.tensor([0.0, 0.5, 1.0]))  # type: ignore[arg-type]
    rate = controls.number("rate", 1e-3, low=0.0)
    up = controls.vector("up", (0, -1, 0))
    panel.until_value("up", (0.0, -1.0, 0.0))
    folders = {name: control.folder for name, control in panel.controls().items()}
    names = ["time", "on", "degree", "mode", "note", "paint", "rate", "up"]
    assert list(folders) == names
    assert folders["on"] == "Deformation/Network"
    assert folders["degree"] == ""
    for name, value in (
        ("time", 0.25),
        ("on", False),
        ("degree", 1.6),
        ("mode", "depth"),
        ("note", "ü"),
        ("paint", (1.0, 0.0, 0.0)),
        ("rate", 2),
        ("up", (0.0, 0.0, 1.0)),
    ):
        panel.stream.set_control(name, value)
    panel.until_value("up", (0.0, 0.0, 1.0))
    assert (time.value, is_on.value, mode.value, note.value) == (
        0.25,
        False,
        "depth",
        "ü",
    )
    assert (paint.value, rate.value, up.value) == (
        (1.0, 0.0, 0.0),
        2.0,
        (0.0, 0.0, 1.0),
    )
    assert degree.value == 2
    assert type(degree.value) is int
    assert panel.value("degree") == 2
    time.value = torch.tensor(0.75)  # type: ignore[assignment]
    panel.until_value("time", 0.75)


def test_what_viewers_may_not_set_is_dropped(
    panel: Panel, caplog: pytest.LogCaptureFixture
) -> None:
    time = controls.slider("time", 0, 1, value=0.5)
    panel.until_value("time", 0.5)
    last_version = panel.stream.version
    for value in (7.0, float("nan"), "a", (1.0, 2.0), True):
        panel.stream.set_control("time", value)
    panel.stream.set_control("none", 1)

    def has_answer() -> bool:
        return panel.stream.version > last_version

    panel.pair.until(has_answer, "an answer")
    assert time.value == 0.5
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2, "each control is logged once"
    assert "'time': 7.0 is no value of the slider time" in texts[0]
    assert "no control of this name" in texts[1]


def test_each_click_counts_once(panel: Panel) -> None:
    save = controls.button("save")
    panel.until_value("save", 0)
    assert not save.clicked()
    panel.stream.set_control("save", clicks=2)
    panel.stream.set_control("save", clicks=1)
    panel.until_value("save", 3)
    assert [save.clicked() for _ in range(5)] == [True, True, True, False, False]
    with pytest.raises(TypeError, match="button 'save' counts its clicks"):
        save.value = 7


def test_viewers_agree_and_the_end_of_one_loses_nothing(
    script: Pair, panel: Panel
) -> None:
    time = controls.slider("time", 0.0, 1.0)
    save = controls.button("save")
    second_panel = Panel(script, script.attach())
    panel.until_value("time", 0.0)
    second_panel.until_value("time", 0.0)
    panel.stream.set_control("time", 0.25)
    panel.until_value("time", 0.25)
    second_panel.stream.set_control("time", 0.75)
    second_panel.stream.set_control("save", clicks=1)
    # What it has sent counts, whatever becomes of it.
    second_panel.viewer.close()
    script.viewers.remove(second_panel.viewer)
    panel.until_value("save", 1)
    assert panel.value("time") == 0.75
    assert time.value == 0.75
    assert save.clicked()


def test_script_needs_no_lock_to_read_and_set() -> None:
    time = controls.slider("time", 0.0, 1.0)
    read: list[float] = []

    def use() -> None:
        time.value = 0.5
        read.append(time.value)

    with splatview.api.session.session().lock:  # type: ignore[attr-defined]
        thread = threading.Thread(target=use)
        thread.start()
        thread.join(10)
    assert read == [0.5]


def test_run_shows_controls_from_its_beginning_and_the_next_one_again(
    subscriber: Subscriber,
) -> None:
    time = controls.slider("time", 0.0, 1.0)
    for run_index in (1, 2):
        splatview.publish(torch.zeros(2, 2))
        stream = stream_of(subscriber, "controls")

        def shown_controls() -> Any:
            subscriber.poll()
            return copied(stream)  # noqa: B023

        frame = wait_until(shown_controls, f"controls of run {run_index}")
        assert [control.name for control in decode(frame[2]["controls"])] == ["time"]
        splatview.close()
    time.value = 0.5
    assert controls.slider("time", 0.0, 1.0) is time
    longer = controls.slider("time", 0.0, 2.0)
    assert longer.value == 0.0
    assert longer is not time


def test_declared_again_it_is_the_same() -> None:
    time = controls.slider("time", 0.0, 1.0)
    time.value = 0.5
    assert controls.slider("time", 0.0, 1.0, value=0.25) is time
    assert time.value == 0.5
    assert copy.deepcopy({"time": time})["time"] is time
    with pytest.raises(ValueError, match="another name") as caught:
        controls.slider("time", 0.0, 2.0)
    text = str(caught.value)
    assert "slider('time', low=0, high=2) in " in text
    assert "before as slider('time', low=0, high=1) in " in text
    assert text.count(f"{Path(__file__).name}:") == 2
    named = r"checkbox\('time'\) in the folder 'A' in "
    with controls.folder("A"), pytest.raises(ValueError, match=named):
        controls.checkbox("time")


@pytest.mark.parametrize(
    ("declare", "arguments", "message"),
    [
        (controls.slider, (1, 0), "bounds 1 and 0"),
        (controls.slider, (0, 1, 2), "'a' is 2.0; expected 0.0 to 1.0"),
        (controls.slider, (0, 1, 0, 0), "step is 0; .* over 0"),
        (controls.number, (float("nan"),), "'a' is nan"),
        (controls.number, (2**60,), "expected -9007199254740992 to"),
        (controls.checkbox, ("yes",), "'a' is 'yes', not True or False"),
        (controls.dropdown, ([],), "0 choices"),
        (controls.dropdown, ("abc",), "choices is a str"),
        (controls.dropdown, (["x", "x"],), "'x' twice"),
        (controls.text, ("x" * 1025,), "1025 characters"),
        (controls.color, ((255, 0, 0),), "divide"),
        (controls.vector, ([],), "0 numbers; expected 1 to 16"),
    ],
)
def test_mistakes_in_declarations_are_raised(
    declare: Callable[..., Any], arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        declare("a", *arguments)
    assert not script_controls.registry.controls


def test_empty_range_and_missing_choices_are_refused() -> None:
    with pytest.raises(ValueError, match="a lower one and then a higher one"):
        controls.slider("a", 3, 3)
    with pytest.raises(TypeError, match="choices is None"):
        controls.dropdown("a", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declare", "arguments", "value", "message"),
    [
        (controls.slider, (0, 1), 1.5, "expected 0.0 to 1.0"),
        (controls.number, (3,), 2.5, "not a whole number"),
        (controls.number, (3, 0, 1e30), 2**60, "expected 0 to 9007199254740992"),
        (controls.number, (3.0,), float("inf"), "finite"),
        (controls.dropdown, (["x", "y"],), "z", r"one of \('x', 'y'\)"),
        (controls.text, (), 7, "an int, not a str"),
        (controls.text, (), "\ud800", "surrogate"),
        (controls.color, (), (1.0, 0.0), "red, green and blue"),
        (controls.vector, ((0, 0),), (1, 2, 3), "3 numbers; expected 2"),
    ],
)
def test_mistakes_in_values_are_raised(
    declare: Callable[..., Any], arguments: tuple[Any, ...], value: object, message: str
) -> None:
    control = declare("a", *arguments)
    start = control.value
    with pytest.raises((TypeError, ValueError), match=message):
        control.value = value
    assert control.value == start


def test_name_of_the_stream_is_needed_for_the_controls() -> None:
    splatview.publish(torch.zeros(2, 2), "controls")
    with pytest.raises(ValueError, match="publishes image under the name 'controls'"):
        controls.checkbox("a")
    assert not script_controls.registry.controls


def test_ten_thousand_controls_and_no_more(panel: Panel) -> None:
    for index in range(MAX_CONTROLS):
        controls.checkbox(f"control {index}")
    with pytest.raises(ValueError, match=r"one too many; .* at most 10,000"):
        controls.checkbox("another")
    assert len(panel.controls()) == MAX_CONTROLS
    assert panel.value("control 9999") is False
    panel.stream.set_control("control 5000", True)
    panel.until_value("control 5000", True)


def test_texts_that_would_not_travel_are_refused() -> None:
    with pytest.raises(ValueError, match="declare fewer texts"):
        for index in range(2000):
            controls.text(f"text {index}")


def test_disabled_script_keeps_plain_values(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPLATVIEW_DISABLE", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    time = controls.slider("time", 0.0, 1.0, value=0.5, remember=True)
    time.value = 0.75
    splatview.publish(torch.zeros(2, 2))
    assert time.value == 0.75
    assert not controls.button("save").clicked()
    assert not list(tmp_path.iterdir())


# ---- remembered values


@pytest.fixture
def state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("SPLATVIEW_NAME", "a/run")
    return tmp_path / "splatview" / "controls"


def restart() -> None:
    """End the run, and begin with the controls of another process."""
    splatview.close()
    script_controls.registry = script_controls.ControlRegistry()


def test_restarted_script_finds_its_values(state_folder: Path) -> None:
    time = controls.slider("time", 0.0, 1.0, remember=True)
    up = controls.vector("up", (0, 1), remember=True)
    passing = controls.slider("passing", 0.0, 1.0)
    splatview.publish(torch.zeros(2, 2))
    time.value = 0.75
    up.value = (2.0, 3.0)
    passing.value = 0.5
    # As in a notebook's cell that is run again.
    late = controls.number("late", 1)
    late.value = 2
    assert controls.number("late", 1, remember=True) is late
    restart()
    (file,) = state_folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    # `up` is declared after the run has begun, and `passing` not to be remembered.
    assert controls.slider("time", 0.0, 1.0, remember=True).value == 0.75
    splatview.publish(torch.zeros(2, 2))
    assert controls.vector("up", (0, 1), remember=True).value == (2.0, 3.0)
    assert controls.slider("passing", 0.0, 1.0, remember=True).value == 0.0
    assert controls.number("late", 1, remember=True).value == 2


def test_values_that_do_not_fit_are_not_found_again(
    state_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    controls.slider("time", 0.0, 1.0, remember=True).value = 0.75
    splatview.publish(torch.zeros(2, 2))
    restart()
    assert controls.slider("time", 0.0, 0.5, remember=True).value == 0.0
    assert "'time' begins with 0.0" in caplog.text
    (file,) = state_folder.iterdir()
    file.write_text("{broken")
    restart()
    assert controls.slider("time", 0.0, 1.0, remember=True).value == 0.0
    assert "cannot be read" in caplog.text


def test_folder_that_cannot_be_written_leaves_the_script(
    state_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state_folder.parent.write_text("not a folder")
    time = controls.slider("time", 0.0, 1.0, remember=True)
    splatview.publish(torch.zeros(2, 2))
    time.value = 0.5

    def has_log() -> bool:
        return "training goes on" in caplog.text

    wait_until(has_log, "a fault in the log")
    assert time.value == 0.5


# ---- values for functions that draw


def test_values_are_read_by_attribute_and_by_name() -> None:
    values = ControlValues({"time": 0.5, "Time of day": 7, "values": 1})
    assert values.time == 0.5
    assert values["Time of day"] == 7
    assert values["values"] == 1
    assert dict(values) == {"time": 0.5, "Time of day": 7, "values": 1}
    assert copy.deepcopy(values) == values
    with pytest.raises(AttributeError, match="no control 'tme'; the script has 'time'"):
        _ = values.tme
    with pytest.raises(KeyError, match="the script has 'time', 'Time of day'"):
        _ = values["tme"]
    with pytest.raises(AttributeError, match="cannot be set by a function that draws"):
        values.time = 1.0
    with pytest.raises(AttributeError, match=r"splatview.controls.slider\('time', "):
        _ = ControlValues({}).time


def test_values_are_those_of_one_moment() -> None:
    time = controls.slider("time", 0.0, 1.0)
    values = script_controls.registry.values()
    assert script_controls.registry.values() is values, "nothing has changed"
    time.value = 0.5
    assert values.time == 0.0
    assert script_controls.registry.values().time == 0.5


def test_many_names_are_shortened() -> None:
    values = ControlValues({f"c{index}": 0 for index in range(10_000)})
    with pytest.raises(AttributeError, match="9980 more") as caught:
        _ = values.other
    assert len(str(caught.value)) < 400
