"""Tensors that stay where they are: versions that no viewer asks for are only counted, until one does. Memory of the
CPU plays the GPU's here."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
from support.gpu_on_cpu import Machine, Run, installed, moved, picture, running, scene

import splatview.adapt
from splatview.ipc.cuda import retiring
from splatview.ipc.messages import MetaValue, decode_version_header
from splatview.ipc.tally import LOOK
from splatview.ipc.ways.layout import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return installed(monkeypatch)


@pytest.fixture
def scenes(machine: Machine) -> Iterator[Run]:
    with running("gaussians", "in-place") as run:
        yield run


def unasked(run: Run) -> dict[str, torch.nn.Parameter]:
    """A scene of which the steps 0 to 2 were marked, and of more no viewer asks."""
    it = scene()
    for step in range(3):
        run.publish(it, step=step)
    run.ask(False)
    return it


def stand_in_for_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what the helper thread does on the GPU, behind the trainer's own."""
    monkeypatch.setattr("splatview.ipc.cuda.late.behind", lambda index, stream: contextlib.nullcontext())


def board_version(run: Run) -> int:
    return run.board.words[run.board.version_word(0)]


def newest(run: Run) -> tuple[int, MetaValue]:
    """The version that was marked last, and its step."""
    words, base = run.writer._words, run.writer._bases[run.writer._last]
    return words[base + VERSION], decode_version_header(run.writer._header).meta["step"]


def test_versions_that_nobody_asks_for_are_only_counted(scenes: Run, machine: Machine) -> None:
    it = unasked(scenes)
    for step in range(3, 20):
        scenes.publish(it, step=step)
        assert (scenes.stream.version, board_version(scenes)) == (step + 1, step + 1)
    assert len(machine.recorded) == 3
    assert scenes.stream._outlets["in-place"].version == 3
    assert not scenes.stream.behind(), "the helper thread has nothing to do either"
    scenes.ask(True)
    assert scenes.stream.behind()
    scenes.publish(it, step=20)
    assert (len(machine.recorded), newest(scenes)) == (4, (21, 20))
    assert not scenes.stream.behind()
    scenes.ask(False)
    for step in range(21, 80):
        scenes.publish(it, step=step)
    assert newest(scenes) == (21, 20)


def test_what_was_published_before_somebody_asked_is_marked_by_the_helper_thread(
        scenes: Run, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_streams(monkeypatch)
    it = unasked(scenes)
    scenes.publish(it, step=3)
    scenes.stream.catch_up()
    assert newest(scenes) == (3, 2)
    scenes.ask(True)
    scenes.stream.catch_up()
    assert newest(scenes) == (4, 3)
    assert len(machine.recorded) == 4


@pytest.mark.parametrize("what", ["another parameter", "densified"])
def test_what_lies_elsewhere_by_then_too(scenes: Run, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    stand_in_for_streams(monkeypatch)
    it = unasked(scenes)
    before, old = scenes.writer.generation, weakref.ref(it["shN"])
    it = moved(it, what)
    scenes.publish(it, step=3)
    assert scenes.writer.generation == before, "nobody has looked at it"
    scenes.ask(True)
    monkeypatch.setattr("splatview.adapt.recognise", on_cuda(splatview.adapt.recognise))
    scenes.stream.catch_up()
    assert scenes.writer.generation == before + 1
    scenes.stream.tend(scenes.writer.generation)
    gc.collect()
    assert old() is None, "what has been replaced is let go, though no publish follows"
    assert newest(scenes) == (4, 3)
    assert {t.name: t.shape for t in scenes.writer.ref.tensors}["means"] == tuple(it["means"].shape)
    assert scenes.stream.info is not None
    assert scenes.stream.info.shape == tuple(it["means"].shape)
    scenes.publish(it, step=4)
    assert newest(scenes) == (5, 4)
    assert scenes.writer.generation == before + 1
    assert not scenes.faults


def test_what_is_no_scene_by_then_is_a_fault(scenes: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_streams(monkeypatch)
    it = unasked(scenes)
    scenes.publish({"means": it["means"]}, step=3)
    scenes.ask(True)
    with pytest.raises(TypeError, match="quats"):
        scenes.stream.catch_up()
    scenes.publish(it, step=4)
    assert newest(scenes) == (5, 4)


def on_cuda(recognise: Any) -> Any:
    def seeming(*args: Any) -> Any:
        form = recognise(*args)
        form.device = "cuda:0"
        return form

    return seeming


def test_the_last_version_is_marked_when_the_process_ends(scenes: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in_for_streams(monkeypatch)
    it = unasked(scenes)
    scenes.publish(it, step=3)
    scenes.stream.finish()
    assert newest(scenes) == (4, 3)
    scenes.stream.finish()
    assert scenes.board.counters()["copies"] == 4, "once"


@pytest.mark.parametrize("what", ["data", "another parameter", "densified", "densified behind data"])
def test_a_scene_that_moved_is_shared_though_nobody_asks(scenes: Run, what: str) -> None:
    """So that the memory where it lay before can be given back."""
    it = unasked(scenes)
    before = scenes.writer.generation
    it = moved(it, what)
    for step in range(3, LOOK + 1):
        scenes.publish(it, step=step)
    assert scenes.writer.generation == before + 1
    assert scenes.stream._outlets["in-place"].version == LOOK + 1


@pytest.mark.parametrize("what", ["data", "another parameter", "densified"])
def test_what_was_replaced_while_nobody_asks_is_noticed_by_the_helper_thread(
        scenes: Run, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A viewer that was stopped never asks, and nothing may follow."""
    stand_in_for_streams(monkeypatch)
    monkeypatch.setattr("splatview.adapt.recognise", on_cuda(splatview.adapt.recognise))
    it = unasked(scenes)
    before, stream = scenes.writer.generation, scenes.stream
    scenes.publish(it, step=3)
    stream._tended = -1e9
    stream.tend(0)
    assert (stream.late, stream.behind()) == (False, False), "nothing was replaced"
    assert stream.due() == stream._tended + 3, "and it is not looked at all the time"
    it = moved(it, what)
    scenes.publish(it, step=4)
    stream.tend(0)
    assert not stream.late, "not yet"
    stream._tended -= 4
    stream.tend(0)
    assert (stream.late, stream.behind()) == (True, True)
    stream.catch_up()
    assert scenes.writer.generation == before + 1
    assert newest(scenes) == (5, 4)


def test_a_picture_that_stays_costs_nothing_while_nobody_asks(machine: Machine) -> None:
    run = Run("image", "in-place")
    image = picture(8, 9, 4)
    for step in range(5):
        run.publish(image, step=step)
    run.ask(False)
    run.publish(image, step=5)
    assert len(machine.recorded) == 5
    assert (run.stream.version, newest(run)) == (6, (5, 4))
    for step in range(6, LOOK + 1):
        run.publish(image.clone(), step=step)
    assert newest(run) == (LOOK + 1, LOOK), "another one is noticed"
    run.stream.close()
    run.board.close()
    assert retiring.settle()


def test_a_second_viewer_that_takes_copies_gets_every_version(scenes: Run, machine: Machine) -> None:
    it = unasked(scenes)
    scenes.stream.open("device-ring")
    for step in range(3, 6):
        scenes.publish(it, step=step)
        assert scenes.stream._outlets["device-ring"].version == step + 1
    scenes.stream.release("device-ring")
    recorded = len(machine.recorded)
    for step in range(6, 9):
        scenes.publish(it, step=step)
    assert len(machine.recorded) <= recorded + 1
    assert not scenes.faults
    assert retiring.settle()
