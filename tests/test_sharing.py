"""One conformance suite over every way of sharing: what writers and readers of frames must do."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, get_args, get_type_hints

import numpy as np
import pytest
import torch

from ipc.errors import SharingError
from ipc.messages import SegmentRef, StreamInfo
from ipc.sharing import WAYS, way_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipc.sharing import FrameReader, FrameWriter

GPU_ONLY = {"host"}
META = {"color": "sh", "activated": False, "step": 3}


def _cases() -> list[object]:
    return [pytest.param(name, marks=[pytest.mark.cuda] if name in GPU_ONLY else []) for name in WAYS]


def scene(n: int, value: float, device: str) -> dict[str, torch.Tensor]:
    shapes = {"means": (n, 3), "quats": (n, 4), "scales": (n, 3), "opacities": (n,), "sh0": (n, 3), "shN": (n, 15, 3)}
    return {name: torch.full(shape, float(value), device=device) for name, shape in shapes.items()}


class Pair:
    """Both sides of one way, made for scenes of up to 1000 Gaussians."""

    def __init__(self, way: str):
        self.device = "cuda" if way in GPU_ONLY else "cpu"
        self.slots_read: list[int] = []
        self.avoid = b""
        self.writer: FrameWriter = WAYS[way].writer(scene(1000, 0, self.device), 1.0, lambda: self.avoid)
        self.make_reader: Callable[[], FrameReader] = lambda: WAYS[way].reader(
            self.writer.ref, os.getpid(), self.slots_read.append)
        self.reader = self.make_reader()

    def write(self, n: int, version: int) -> None:
        assert self.writer.write("gaussians", scene(n, version, self.device), META, version)


@pytest.fixture(params=_cases())
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    p = Pair(request.param)
    yield p
    p.reader.close()
    p.writer.close()


def test_no_way_was_missed() -> None:
    announced = get_args(get_type_hints(StreamInfo)["sharing"])
    assert sorted(announced) == sorted(WAYS), "what messages may name and what can be opened"
    assert {way_for("cpu"), way_for("cuda:0"), way_for("cuda:3")} <= set(WAYS)


def test_nothing_to_read_at_first(pair: Pair) -> None:
    assert pair.reader.read() is None


def test_the_newest_frame_arrives_whole(pair: Pair) -> None:
    for version, n in enumerate([5, 1000, 0, 17, 999], 1):
        pair.write(n, version)
        frame = pair.reader.read()
        assert frame is not None
        with frame:
            assert (frame.kind, frame.version, frame.meta) == ("gaussians", version, META)
            assert frame.time_ns > 0
            for tensor in frame.tensors.values():
                assert len(tensor.array) == n
                assert (tensor.array == version).all()
                assert not tensor.array.flags.writeable or n == 0
            assert frame.intact()


def test_only_what_is_newer_is_read(pair: Pair) -> None:
    pair.write(5, 4)
    assert pair.reader.read(after=4) is None
    assert pair.reader.read(after=3) is not None


def test_an_unwanted_frame_is_not_shown(pair: Pair) -> None:
    pair.write(5, 1)
    assert not pair.writer.write("gaussians", scene(5, 9, pair.device), META, 2, still_wanted=lambda: False)
    frame = pair.reader.read()
    assert frame is not None
    assert frame.version == 1
    assert frame.intact()


def test_it_says_what_fits(pair: Pair) -> None:
    assert pair.writer.fits(scene(1000, 0, pair.device))
    assert pair.writer.fits(scene(0, 0, pair.device))
    assert not pair.writer.fits(scene(5000, 0, pair.device))
    with pytest.raises(SharingError):
        pair.writer.write("gaussians", scene(5000, 0, pair.device), META, 1)


def test_an_overwritten_frame_is_known(pair: Pair) -> None:
    pair.write(5, 1)
    frame = pair.reader.read()
    assert frame is not None
    for version in range(2, 40):
        pair.write(5, version)
    assert not frame.intact()
    assert pair.reader.torn == 1


def test_a_leased_frame_stays(pair: Pair) -> None:
    pair.write(5, 1)
    frame = pair.reader.read()
    assert frame is not None
    pair.avoid = bytes([pair.slots_read[-1] + 1])
    for version in range(2, 40):
        pair.write(5, version)
    assert frame.intact()
    assert (frame.tensors["means"].array == 1).all()
    frame.close()
    assert pair.slots_read[-1] == -1


def test_readers_are_blind_to_each_other(pair: Pair) -> None:
    others = [pair.make_reader() for _ in range(5)]
    pair.write(5, 1)
    for reader in (*others, pair.reader):
        frame = reader.read()
        assert frame is not None
        assert np.all(frame.tensors["sh0"].array == 1)
        frame.close()
    for reader in others:
        reader.close()
        reader.close()
    pair.write(5, 2)
    assert pair.reader.read(after=1) is not None


def test_what_was_announced_is_not_trusted(pair: Pair) -> None:
    ref = pair.writer.ref
    for forged in (SegmentRef(ref.fd, ref.size * 2, ref.token), SegmentRef(ref.fd, ref.size, "x"),
                   SegmentRef(1, ref.size, ref.token), SegmentRef(2**30, ref.size, ref.token)):
        with pytest.raises(SharingError):
            WAYS["ring"].reader(forged, os.getpid(), lambda slot: None)


def test_a_frame_outlives_both_sides(pair: Pair) -> None:
    pair.write(5, 1)
    frame = pair.reader.read()
    assert frame is not None
    array = frame.tensors["means"].array
    pair.writer.close()
    pair.reader.close()
    assert (array == 1).all()
