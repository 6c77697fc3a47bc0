"""One conformance suite over every way of sharing: what writers and readers of frames must do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
import torch
from support.wait import turns

from splatview_ipc.control import messages
from splatview_ipc.control.errors import SharingError
from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.control.messages import RingRef, SegmentRef
from splatview_ipc.subscriber.source import OwnSource
from splatview_ipc.transports import CPU_WAYS, GPU_WAYS, WAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from splatview_ipc import Frame
    from splatview_ipc.transports.base import FrameReader, FrameWriter

META = {"color": "sh", "activated": False, "step": 3}
SHAPES = {"means": (3,), "quats": (4,), "scales": (3,), "opacities": (), "sh0": (3,), "shN": (15, 3)}
COPYING = ("ring", "device-ring", "host")
"""Ways whose frames stay what they were when they were published."""


def _cases(names: Any) -> list[object]:
    return [pytest.param(name, marks=[pytest.mark.cuda] if name in GPU_WAYS else []) for name in names]


class Pair:
    """Both sides of one way, made for scenes of up to 1000 Gaussians, in one process."""

    def __init__(self, way: str):
        self.way = way
        self.copies = way in COPYING
        self.slots_read: list[int] = []
        self.avoid = b""
        self._memory: Any = None
        if way == "in-place":  # a process cannot open an IPC handle of its own, but it can open a descriptor
            from splatview_ipc.cuda.memory import Allocation

            self._memory = Allocation(4 << 20, 0)
        self.writer: FrameWriter = WAYS[way].writer(self.scene(1000, 0), 1.0, lambda: self.avoid)
        while not self.writer.populate():
            pass
        self.make_reader: Callable[[], FrameReader] = lambda: WAYS[way].reader(
            self.writer.ref, OwnSource(), self.slots_read.append)
        self.reader = self.make_reader()

    def scene(self, n: int, value: float) -> dict[str, torch.Tensor]:
        """A scene all of whose numbers are one; in place, always in the same memory."""
        if self._memory is None:
            device = "cpu" if self.way in CPU_WAYS else "cuda"
            return {name: torch.full((n, *shape), float(value), device=device) for name, shape in SHAPES.items()}
        return {name: self._memory.tensor("float32", (n, *shape), i << 19).fill_(value)
                for i, (name, shape) in enumerate(SHAPES.items())}

    def write(self, n: int, version: int, wanted: bool | None = None) -> None:
        """Until the way takes it: those that fill slots on the GPU may be busy, or rest."""
        still_wanted = None if wanted is None else lambda: wanted
        for _ in turns(f"version {version} is taken"):
            scene = self.scene(n, version)
            if self.writer.write("gaussians", scene, META, version, still_wanted):
                assert wanted is not False
                break
            if wanted is False:
                return
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def read(self, after: int = 0) -> Frame:
        """The newest frame; it has to come."""
        for _ in turns(f"a frame after {after}"):
            self.reader.follow(self.writer.ref)
            frame = self.reader.read(after)
            if frame is not None:
                return frame
        raise AssertionError

    def close(self) -> None:
        self.reader.close()
        self.writer.close()
        if self._memory is not None:
            self._memory.close()


@pytest.fixture(params=_cases(WAYS))
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    p = Pair(request.param)
    yield p
    p.close()


@pytest.fixture(params=_cases(COPYING))
def copying(request: pytest.FixtureRequest) -> Iterator[Pair]:
    p = Pair(request.param)
    yield p
    p.close()


def test_no_way_was_missed() -> None:
    assert sorted(get_args(messages.Way)) == sorted(WAYS), "what messages may name and what can be opened"
    assert sorted(CPU_WAYS + GPU_WAYS) == sorted(WAYS)
    assert {*COPYING, "in-place"} == set(WAYS)


def test_nothing_to_read_at_first(pair: Pair) -> None:
    assert pair.reader.read() is None


def test_the_newest_frame_arrives_whole(pair: Pair) -> None:
    for version, n in enumerate([5, 1000, 0, 17, 999], 1):
        pair.write(n, version)
        with pair.read(version - 1) as frame:
            assert (frame.kind, frame.version, frame.meta) == ("gaussians", version, META)
            assert frame.time_ns > 0
            assert frame.on_gpu == (pair.way in ("in-place", "device-ring"))
            for name, tensor in frame.tensors.items():
                assert tensor.shape == (n, *SHAPES[name])
                values = tensor.to_float32()
                assert values.shape == tensor.shape
                assert (values == version).all()
            assert frame.intact()


def test_only_what_is_newer_is_read(pair: Pair) -> None:
    pair.write(5, 4)
    pair.read(after=3).close()
    assert pair.reader.read(after=4) is None


def test_an_unwanted_frame_is_not_shown(copying: Pair) -> None:
    copying.write(5, 1)
    copying.write(5, 2, wanted=False)
    frame = copying.read()
    assert frame.version == 1
    assert frame.intact()


def test_it_says_what_fits(copying: Pair) -> None:
    assert copying.writer.fits(copying.scene(1000, 0))
    assert copying.writer.fits(copying.scene(0, 0))
    assert not copying.writer.fits(copying.scene(5000, 0))
    copying.write(5, 1)
    with pytest.raises(SharingError):
        copying.write(5000, 2)  # as soon as the way takes anything again


def test_an_overwritten_frame_is_known(copying: Pair) -> None:
    copying.write(5, 1)
    frame = copying.read()
    for version in range(2, 12):
        copying.write(5, version)
    assert not frame.intact()
    assert copying.reader.torn == 1


def test_a_leased_frame_stays(copying: Pair) -> None:
    copying.write(5, 1)
    frame = copying.read()
    copying.avoid = bytes([copying.slots_read[-1] + 1])
    for version in range(2, 12):
        copying.write(5, version)
    assert frame.intact()
    assert (frame.tensors["means"].to_float32() == 1).all()
    frame.close()
    assert copying.slots_read[-1] == -1


def test_readers_are_blind_to_each_other(pair: Pair) -> None:
    others = [pair.make_reader() for _ in range(5)]
    pair.write(5, 1)
    for reader in (*others, pair.reader):
        reader.follow(pair.writer.ref)
        frame = reader.read()
        assert frame is not None
        assert np.all(frame.tensors["sh0"].to_float32() == 1)
        frame.close()
    for reader in others:
        reader.close()
        reader.close()
    pair.write(5, 2)
    assert pair.read(after=1).version == 2


def test_what_was_announced_is_not_trusted(pair: Pair) -> None:
    ref = pair.writer.ref.segment if isinstance(pair.writer.ref, RingRef) else pair.writer.ref.control
    for forged in (SegmentRef(ref.fd, ref.size * 2, ref.token), SegmentRef(ref.fd, ref.size, "x"),
                   SegmentRef(0, ref.size, ref.token), SegmentRef(2**30, ref.size, ref.token)):
        with pytest.raises(SharingError):
            WAYS["ring"].reader(RingRef(forged), OwnSource(), lambda slot: None)
    for way in WAYS:
        if way not in (pair.way, *({"ring", "host"} if pair.way in ("ring", "host") else ())):
            with pytest.raises(SharingError):
                WAYS[way].reader(pair.writer.ref, OwnSource(), lambda slot: None)


def test_a_frame_outlives_both_sides(pair: Pair) -> None:
    pair.write(5, 1)
    tensor = pair.read().tensors["means"]
    view = tensor.array if isinstance(tensor, RemoteTensor) else tensor.torch()
    pair.writer.close()
    pair.reader.close()
    assert (view == 1).all()
