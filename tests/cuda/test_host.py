"""The way through the host: exact, asynchronous, spaced, and given back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.wait import PATIENCE

from splatview_ipc.control.frame import RemoteTensor
from splatview_ipc.cuda import retiring
from splatview_ipc.subscriber.source import OwnSource
from splatview_ipc.transports import pinned_host as host_module
from splatview_ipc.transports.cpu_ring import RingReader
from splatview_ipc.transports.pinned_host import HostWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cuda

MB = 1 << 20
META = {"layout": "HWC"}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HostWriter, RingReader]]:
    """A way whose copies are not spaced."""
    monkeypatch.setattr(host_module, "SHARE", 1e9)
    writer, reader = made(9 * MB)
    assert writer._ready.wait(PATIENCE)
    yield writer, reader
    reader.close()
    writer.close()
    assert retiring.settle(PATIENCE)


def made(capacity: int) -> tuple[HostWriter, RingReader]:
    writer = HostWriter(0, capacity)
    return writer, RingReader.make(writer.ref, OwnSource(), lambda slot: None)


def busy(seconds: float = 0.3) -> None:
    """Give the GPU something to do for about so long, without waiting."""
    torch.cuda._sleep(int(seconds * 1.5e9))


def newest(reader: RingReader, after: int = 0) -> Any:
    torch.cuda.synchronize()
    frame = reader.read(after)
    assert frame is not None
    return frame


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
def test_types_and_views_arrive_exactly(host: tuple[HostWriter, RingReader], dtype: str) -> None:
    writer, reader = host
    base = (torch.rand(60, 70, 4, device="cuda") * 200).to(getattr(torch, dtype))
    images = [base, base[::2, 1:, :3], base.permute(2, 0, 1)[:3], base[:, :, :1].expand(60, 70, 3), base.flip(0)]
    for version, image in enumerate(images, 1):
        layout = "CHW" if image.shape[0] == 3 else "HWC"
        assert writer.write("image", {"image": image}, {"layout": layout}, version)
        with newest(reader, version - 1) as frame:
            t = frame.tensors["image"]
            assert isinstance(t, RemoteTensor)
            assert t.dtype == dtype
            assert np.array_equal(t.to_float32(), image.float().cpu().numpy())
            assert frame.intact()
    assert writer.note == ""


def test_gaussians_of_one_version_arrive_together(host: tuple[HostWriter, RingReader]) -> None:
    writer, reader = host
    n = 10_000
    scene = {"means": torch.zeros(n, 3, device="cuda"), "quats": torch.zeros(n, 4, device="cuda"),
             "scales": torch.zeros(n, 3, device="cuda"), "opacities": torch.zeros(n, device="cuda"),
             "rgb": torch.zeros(n, 3, device="cuda")}
    for version in range(1, 30):
        for t in scene.values():
            t.fill_(version)
        assert writer.write("gaussians", scene, {"color": "rgb", "activated": True}, version)
        with newest(reader, version - 1) as frame:
            assert {float(v) for t in frame.tensors.values() for v in (t.array.min(), t.array.max())} == {version}


def test_the_call_returns_before_the_copy_and_the_frame_comes_after_it(host: tuple[HostWriter, RingReader]) -> None:
    writer, reader = host
    image = torch.zeros(1000, 1000, 4, dtype=torch.uint8, device="cuda")
    assert writer.write("image", {"image": image}, META, 1)
    with newest(reader) as frame:
        assert writer._slot_targets[0][0].is_pinned()
        assert int(frame.tensors["image"].array.max()) == 0
    busy(0.5)
    image.fill_(9)
    assert writer.write("image", {"image": image}, META, 2)
    assert reader.read(1) is None, "not there yet: the GPU has not come to it"
    assert not writer.write("image", {"image": image}, META, 3), "one copy is under way at a time"
    with newest(reader, 1) as frame:
        assert frame.version == 2
        assert (frame.tensors["image"].array == 9).all()


def test_copies_are_ordered_on_the_stream_that_is_current(host: tuple[HostWriter, RingReader]) -> None:
    writer, reader = host
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        image = torch.zeros(500, 500, 3, device="cuda")
        busy()
        image.fill_(0.5)
        assert writer.write("image", {"image": image}, META, 1)
    assert reader.read() is None
    with newest(reader) as frame:
        assert (frame.tensors["image"].array == 0.5).all()


def test_a_capture_is_left_alone(host: tuple[HostWriter, RingReader]) -> None:
    writer, reader = host
    x = torch.ones(8, 8, 3, device="cuda")
    y = x * 2
    assert writer.write("image", {"image": y}, META, 1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    others = []
    with torch.cuda.graph(graph):
        y = x * 2
        assert not writer.write("image", {"image": y}, META, 2)
        others.append(HostWriter(0, MB))
        assert others[0]._ready.wait(PATIENCE)
        z = y + 1
    others.pop().close()
    x.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((z == 11).all())
    with newest(reader) as frame:
        assert frame.version == 1
