"""What publishing prepares for values like the last one, and what makes it think again. Memory of the CPU plays the
GPU's here, so that this runs anywhere; `tests/cuda/test_prepared.py` asks the same of a GPU."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.gpu_on_cpu import Machine, Run, installed, moved, picture, running, scene

from splatview.ipc.cuda import retiring
from splatview.ipc.ways.device_ring import DeviceRingWriter
from splatview.ipc.ways.in_place import InPlaceWriter
from splatview.ipc.ways.ring import RingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return installed(monkeypatch)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What went the short way."""
    calls: list[str] = []
    for writer in (DeviceRingWriter, InPlaceWriter, RingWriter):
        def again(self: Any, published: Any, *rest: Any, before: Any = writer.again) -> bool:
            calls.extend(["again"] * bool(published))  # without: it is `write` that calls it
            return before(self, published, *rest)

        monkeypatch.setattr(writer, "again", again)
    return calls


@pytest.fixture
def images(machine: Machine, counted: list[str]) -> Iterator[Run]:
    with running("image", "device-ring") as run:
        yield run


@pytest.fixture
def scenes(machine: Machine, counted: list[str]) -> Iterator[Run]:
    with running("gaussians", "in-place") as run:
        yield run


def test_new_pictures_that_look_like_the_last_go_the_short_way(
        images: Run, machine: Machine, counted: list[str]) -> None:
    for version in range(1, 20):
        value = picture(8, 9, 4)
        images.publish(value)
        assert torch.equal(images.picture(version, {"layout": "HWC"}), value)
    assert len(counted) == 18
    assert machine.copied == [(7, 8 * 9 * 4)] * 18
    assert images.described == 1
    assert not images.faults
    assert images.board.counters()["copies"] == 19


OTHERS: dict[str, tuple[Any, bool]] = {
    "strides": (lambda: picture(9, 8, 4).transpose(0, 1), False),
    "a part": (lambda: picture(16, 18, 4)[::2, ::2], False),
    "a dimension that is repeated": (lambda: picture(8, 9, 1).expand(8, 9, 4), False),
    "gradients": (lambda: picture(8, 9, 4).float().div(255).requires_grad_(), False),
    "shape": (lambda: picture(9, 8, 4), False),
    "more bytes": (lambda: picture(40, 50, 4), False),
    "channels": (lambda: picture(8, 9, 3), False),
    "dtype": (lambda: picture(8, 9, 4, dtype=torch.float16), False),
    "somewhere in its memory": (lambda: picture(300).narrow(0, 5, 288).view(8, 9, 4), True),
    "the same again": (lambda: picture(8, 9, 4), True),
}


@pytest.mark.parametrize("what", OTHERS)
def test_pictures_that_look_different_among_those_that_look_alike(
        images: Run, counted: list[str], what: str) -> None:
    make, short = OTHERS[what]
    values = [picture(8, 9, 4), picture(8, 9, 4), make(), make(), make(), picture(8, 9, 4), picture(8, 9, 4)]
    for version, value in enumerate(values, 1):
        before = len(counted)
        images.publish(value)
        assert torch.equal(images.picture(version, {"layout": "HWC"}), value.detach())
        if version == 3:
            assert (len(counted) > before) == short
    assert counted, "the last, at least"
    assert not images.faults


@pytest.mark.parametrize("what", OTHERS)
def test_pictures_of_the_cpu(counted: list[str], what: str) -> None:
    make, short = OTHERS[what]
    run = Run("image", "ring", "cpu")
    values = [picture(8, 9, 4), picture(8, 9, 4), make(), make(), make(), picture(8, 9, 4), picture(8, 9, 4)]
    for version, value in enumerate(values, 1):
        before = len(counted)
        run.publish(value, step=version)
        (copied,) = run.writer._slot_targets[run.writer._last]
        assert torch.equal(copied, value.detach())
        assert not copied.requires_grad
        if version == 3:
            assert (len(counted) > before) == short
        elif version in (2, 4, 5, 7):
            assert len(counted) > before
    assert not run.faults
    run.stream.close()
    run.board.close()


def test_the_same_bytes_read_in_another_layout(images: Run) -> None:
    value = picture(3, 9, 3)
    for version in (1, 2):
        images.publish(value.clone())
        images.picture(version, {"layout": "HWC"})
    images.form, images.options = None, {"layout": "CHW"}
    images.publish(value.clone())
    assert torch.equal(images.picture(3, {"layout": "CHW"}), value)
    images.publish(value.clone())
    assert torch.equal(images.picture(4, {"layout": "CHW"}), value)


def test_metadata_that_change_and_stay(images: Run) -> None:
    version = 0
    for meta in ({"step": 1}, {"step": 1}, {"step": 2}, {}, {}, {"step": 2, "note": "x" * 1000}, {"loss": 0.5}):
        version += 1
        images.publish(picture(8, 9, 4), **meta)
        images.picture(version, {**meta, "layout": "HWC"})


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


def test_what_the_gpu_is_still_at_is_left_alone(images: Run, machine: Machine) -> None:
    for _ in range(3):
        images.publish(picture(8, 9, 4))
    kept = images.picture(3, {"layout": "HWC"})
    machine.behind = True
    for _ in range(9):
        images.publish(picture(8, 9, 4))
    assert images.stream.late, "no slot was free any more"
    assert torch.equal(images.picture(3, {"layout": "HWC"}), kept)
    assert not images.faults
    machine.behind = False
    for slot in range(4):
        images.writer.set_done(slot, images.writer._words[images.writer._bases[slot]])
    value = picture(8, 9, 4)
    images.publish(value)
    assert torch.equal(images.picture(13, {"layout": "HWC"}), value)


def test_slots_that_a_viewer_leases_are_avoided(images: Run) -> None:
    images.publish(picture(8, 9, 4))
    leases = images.board._leases
    used = set()
    leases[3] = 2  # slot 1
    for _ in range(12):
        images.publish(picture(8, 9, 4))
        used.add(images.writer._last)
    assert used == {0, 2, 3}


def test_a_copy_that_is_refused_is_a_fault_and_its_slot_is_free_again(images: Run, machine: Machine) -> None:
    for _ in range(3):
        images.publish(picture(8, 9, 4))
    writer, words = images.writer, images.writer._words
    machine.refuses = {"cuMemcpyDtoDAsync"}
    images.publish(picture(8, 9, 4))
    assert "cuMemcpyDtoDAsync: refused" in str(images.faults.pop())
    assert "device-ring" not in images.stream._offered.ways, "there is another way"
    assert images.stream._outlets["device-ring"].writer is None
    assert retiring.settle(), "no slot counts as busy for ever"
    with pytest.raises(ValueError, match="released"):
        words[0]
    assert writer._plans == []


def test_nothing_is_queued_while_a_graph_is_captured(images: Run, machine: Machine) -> None:
    for _ in range(3):
        images.publish(picture(8, 9, 4))
    machine.capturing = True
    images.publish(picture(8, 9, 4))
    assert len(machine.copied) == 2
    assert images.board.counters()["skipped"] == 1
    images.picture(3, {"layout": "HWC"})


def test_a_scene_that_stays_costs_one_record(scenes: Run, machine: Machine, counted: list[str]) -> None:
    it = scene()
    for step in range(10):
        scenes.publish(it, step=step)
    assert scenes.writer.generation == scenes.writer.ref.generation
    assert len(machine.recorded) == 10
    assert len(counted) == 9
    machine.stream = 0
    scenes.publish(it)
    assert machine.recorded[-1] == 0


@pytest.mark.parametrize("what", ["data", "another parameter", "densified", "densified behind data"])
def test_a_scene_that_lies_elsewhere_is_a_new_generation(scenes: Run, what: str) -> None:
    it = scene()
    for _ in range(3):
        scenes.publish(it)
    before = scenes.writer.generation
    it = moved(it, what)
    for step in range(3):
        scenes.publish(it, step=step)
        assert scenes.writer.generation == before + 1
        shapes = {t.name: t.shape for t in scenes.writer.ref.tensors}
        assert shapes["shN"] == tuple(it["shN"].shape)
    assert not scenes.faults


def test_names_that_change_over_the_same_tensors_are_a_new_generation(scenes: Run) -> None:
    it = scene()
    means, quats = it["means"], it["quats"]
    activated = {"means": means, "quats": quats, "scales": it["scales"], "opacities": it["opacities"],
                 "colors": it["sh0"][:, 0]}
    for _ in range(3):
        scenes.publish(activated)
    before = scenes.writer.generation
    scenes.form = None
    other = {"means": means, "quats": quats, "scales": it["scales"], "opacities": it["opacities"],
             "sh0": it["sh0"][:, 0]}
    scenes.publish(other)
    assert scenes.writer.generation == before + 1
    assert {t.name for t in scenes.writer.ref.tensors} >= {"sh0"}


def test_nothing_is_kept_of_what_was_shared_when_nobody_looks_any_more(scenes: Run) -> None:
    it = scene()
    for _ in range(3):
        scenes.publish(it)
    before, old = scenes.writer.generation, weakref.ref(it["means"])
    scenes.stream.release("in-place")
    it = scene()
    for _ in range(3):
        scenes.publish(it)
    gc.collect()
    assert old() is None
    scenes.stream.open("in-place")
    scenes.publish(it)
    assert scenes.writer.generation == before + 1
    assert not scenes.faults


def test_a_scene_copied_part_by_part(machine: Machine, counted: list[str]) -> None:
    run = Run("gaussians", "device-ring")
    for _ in range(6):
        it = scene()
        run.publish(it)
        frame, _ = run.form.unpack((run.form.collect(it), {}))
        got = run.writer._slot_targets[run.writer._last]
        for target, source in zip(got, frame.values(), strict=True):
            assert torch.equal(target, source)
    assert len(counted) == 5
    tied = scene(5)
    tied["scales"] = tied["means"]  # one tensor in two roles, and then no more
    run.publish(tied)
    run.publish(tied)
    run.publish(scene(5))
    it = scene(5)
    run.publish(it)
    got = dict(zip((h.name for h in run.writer._tensor_headers), run.writer._slot_targets[run.writer._last],
                   strict=True))
    assert torch.equal(got["means"], it["means"])
    assert torch.equal(got["scales"], it["scales"])
    assert not run.faults
    run.stream.close()
    run.board.close()
    assert retiring.settle()
