"""Publishing CUDA tensors: the way that suits them, what is prepared for values like the last one, versions that no
viewer asks for. Memory of the CPU stands in for the GPU's; `tests/cuda` has the real thing."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest
import torch
from support.gpu_on_cpu import Machine, Run, installed, moved, picture, running, scene

from splatview.ipc.preference import Preference

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return installed(monkeypatch)


@pytest.fixture
def images(machine: Machine) -> Iterator[Run]:
    with running("image", "device-ring") as run:
        yield run


@pytest.fixture
def scenes(machine: Machine) -> Iterator[Run]:
    with running("gaussians", "in-place") as run:
        yield run


# ---- which way suits best


def places(text: str) -> list[int]:
    """"..x." : stays, stays, moves, stays."""
    found, place = [], 0
    for letter in text:
        place += letter == "x"
        found.append(place)
    return found


@pytest.mark.parametrize(("kind", "text", "first"), [
    ("gaussians", "x", "in-place"),
    ("gaussians", "xx.xx.xx.xx.", "in-place"),
    ("gaussians", "xxx", "device-ring"),
    ("gaussians", "x..........xxx", "device-ring"),
    ("gaussians", "xxxxxx..", "device-ring"),
    ("gaussians", "xxxxxx...", "in-place"),
    ("image", "x", "device-ring"),
    ("image", "x..", "device-ring"),
    ("image", "x...", "in-place"),
    ("image", "x..x..x..x", "device-ring"),
    ("image", "x...xx.xx", "in-place"),
    ("image", "x...xxx", "device-ring"),
])
def test_what_the_tensors_show(kind: str, text: str, first: str) -> None:
    preference = Preference(kind)
    for place in places(text):
        before = preference.ways()
        assert preference.saw(place) == (preference.ways() != before)
    assert preference.ways()[0] == first
    assert preference.ways()[-1] == "host"


@pytest.mark.parametrize(("wishes", "ways"), [
    ((True, False), ("device-ring", "host")),
    ((False, False), ("in-place", "host")),
    ((None, True), ("in-place", "device-ring", "host")),
])
def test_what_the_caller_says(wishes: tuple[bool | None, bool], ways: tuple[str, ...]) -> None:
    for kind in ("image", "gaussians"):
        preference = Preference(kind)
        preference.wishes = wishes
        for place in places("x....xxxxxx......"):
            assert not preference.saw(place)
            assert preference.ways() == ways


# ---- values like the last one


def test_new_pictures_that_look_like_the_last_go_the_short_way(images: Run, machine: Machine) -> None:
    for version in range(1, 20):
        value = picture(8, 9, 4)
        images.publish(value)
        assert torch.equal(images.picture(version, {"layout": "HWC"}), value)
    assert machine.copied == [(7, 8 * 9 * 4)] * 18
    assert images.described == 1
    assert not images.faults
    assert images.board.counters()["copies"] == 19


OTHERS = {
    "strides": lambda: picture(9, 8, 4).transpose(0, 1),
    "a part": lambda: picture(16, 18, 4)[::2, ::2],
    "a dimension that is repeated": lambda: picture(8, 9, 1).expand(8, 9, 4),
    "gradients": lambda: picture(8, 9, 4).float().div(255).requires_grad_(),
    "shape": lambda: picture(9, 8, 4),
    "more bytes": lambda: picture(40, 50, 4),
    "channels": lambda: picture(8, 9, 3),
    "dtype": lambda: picture(8, 9, 4, dtype=torch.float16),
    "somewhere in its memory": lambda: picture(300).narrow(0, 5, 288).view(8, 9, 4),
}


@pytest.mark.parametrize(("way", "device"), [("device-ring", "cuda:0"), ("ring", "cpu")])
def test_pictures_that_look_different_among_those_that_look_alike(machine: Machine, way: str, device: str) -> None:
    with running("image", way, device) as run:
        version = 0
        for what, make in OTHERS.items():
            for value in (picture(8, 9, 4), picture(8, 9, 4), make(), make(), make()):
                version += 1
                run.publish(value)
                assert torch.equal(run.picture(version, {"layout": "HWC"}), value.detach()), what
        assert not run.faults


def test_the_stream_and_the_device_of_the_moment(images: Run, machine: Machine) -> None:
    for stream in (7, 7, 8, 0, 0, 7):
        machine.stream = stream
        images.publish(picture(8, 9, 4))
    assert [stream for stream, _ in machine.copied] == [7, 8, 0, 0, 7]
    machine.stream, machine.device = 0, 1
    value = picture(8, 9, 4)
    images.publish(value)
    assert torch.equal(images.picture(7, {"layout": "HWC"}), value)
    assert not images.faults


def test_a_copy_that_is_refused_is_a_fault_and_another_way_is_offered(images: Run, machine: Machine) -> None:
    for _ in range(3):
        images.publish(picture(8, 9, 4))
    machine.refuses = {"cuMemcpyDtoDAsync"}
    images.publish(picture(8, 9, 4))
    assert "cuMemcpyDtoDAsync: refused" in str(images.faults.pop())
    assert "device-ring" not in images.ways
    assert images.writer is None


def test_a_scene_that_stays_costs_one_record(scenes: Run, machine: Machine) -> None:
    it = scene()
    for step in range(10):
        scenes.publish(it, step=step)
    assert len(machine.recorded) == 10
    machine.stream = 0
    scenes.publish(it)
    assert machine.recorded[-1] == 0


@pytest.mark.parametrize("what", ["data", "another parameter", "densified", "densified behind data"])
def test_a_scene_that_lies_elsewhere_is_a_new_generation(scenes: Run, what: str) -> None:
    it = scene()
    for _ in range(3):
        scenes.publish(it)
    before = scenes.generation
    it = moved(it, what)
    for step in range(3):
        scenes.publish(it, step=step)
        assert scenes.generation == before + 1
        shapes = {t.name: t.shape for t in scenes.writer.ref.tensors}
        assert shapes["shN"] == tuple(it["shN"].shape)
    assert not scenes.faults


def test_nothing_is_kept_of_what_was_shared_when_no_viewer_is_left(scenes: Run) -> None:
    it = scene()
    for _ in range(3):
        scenes.publish(it)
    before, old = scenes.generation, weakref.ref(it["means"])
    scenes.stream.release("in-place")
    it = scene()
    for _ in range(3):
        scenes.publish(it)
    gc.collect()
    assert old() is None
    scenes.stream.open("in-place")
    scenes.publish(it)
    assert scenes.generation == before + 1
    assert not scenes.faults


# ---- versions that no viewer asks for


def unasked(run: Run) -> dict[str, torch.nn.Parameter]:
    """A scene of which the steps 0 to 2 were marked, and of more no viewer asks."""
    it = scene()
    for step in range(3):
        run.publish(it, step=step)
    run.ask(False)
    return it


def test_versions_that_no_viewer_asks_for_are_only_counted(scenes: Run, machine: Machine) -> None:
    it = unasked(scenes)
    for step in range(3, 20):
        scenes.publish(it, step=step)
        assert scenes.stream.version == step + 1
    assert len(machine.recorded) == 3
    assert scenes.marked() == (3, 2)
    assert not scenes.stream.behind(), "the helper thread has nothing to do either"
    scenes.ask(True)
    assert scenes.stream.behind()
    scenes.publish(it, step=20)
    assert (len(machine.recorded), scenes.marked()) == (4, (21, 20))
    assert not scenes.stream.behind()


def test_the_last_version_is_marked_when_the_process_ends(scenes: Run) -> None:
    it = unasked(scenes)
    scenes.publish(it, step=3)
    scenes.stream.finish()
    assert scenes.marked() == (4, 3)
    scenes.stream.finish()
    assert scenes.board.counters()["copies"] == 4, "once"
