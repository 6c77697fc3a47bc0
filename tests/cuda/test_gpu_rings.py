"""Rings that the GPU fills, both sides in one process: exact, in the order of streams, out of the way of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.transports import reader_of
from support.wait import PATIENCE, all_retired

from splatview_ipc.transports import pinned_host
from splatview_ipc.transports.device_ring import DeviceRingWriter
from splatview_ipc.transports.pinned_host import PinnedHostWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.programs import Programs

    from splatview_ipc.control.frame import Frame
    from splatview_ipc.transports import Reader

pytestmark = pytest.mark.cuda

MB = 1 << 20
META = {"layout": "HWC"}
WRITERS = {"device-ring": DeviceRingWriter, "host": PinnedHostWriter}
LONG = 700_000_000
"""GPU clocks: a third of a second or more."""


class Ring:
    """Both sides of a transport whose slots hold 9 MB."""

    def __init__(self, name: str):
        self.name = name
        self.writer: Any = WRITERS[name](0, 9 * MB, 4)
        self.reader: Reader = reader_of(name, self.writer.ref)

    def write(self, image: torch.Tensor, version: int, **meta: Any) -> bool:
        return self.writer.write("image", {"image": image}, {**META, **meta}, version)

    def newest(self, after: int = 0) -> Frame:
        """The newest frame, once all that the GPU was given has ended."""
        torch.cuda.synchronize()
        frame = self.reader.read(after)
        assert frame is not None
        return frame

    def close(self) -> None:
        self.reader.close()
        self.writer.close()


@pytest.fixture(params=WRITERS)
def ring(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ring]:
    monkeypatch.setattr(pinned_host, "SHARE", 1e9)  # copies are not spaced
    torch.zeros(1, device="cuda")
    made = Ring(request.param)
    yield made
    made.close()
    torch.cuda.synchronize()
    assert all_retired()


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
def test_types_views_and_metadata_arrive_exactly(ring: Ring, dtype: str) -> None:
    base = (torch.rand(60, 70, 4, device="cuda") * 200).to(getattr(torch, dtype))
    images = [base, base[::2, 1:, :3], base.permute(2, 0, 1)[:3], base[:, :, :1].expand(60, 70, 3), base.flip(0)]
    for version, image in enumerate(images, 1):
        layout = "CHW" if image.shape[0] == 3 else "HWC"
        assert ring.write(image, version, layout=layout, step=version)
        with ring.newest(version - 1) as frame:
            t = frame.tensors["image"]
            assert (frame.version, frame.meta) == (version, {"layout": layout, "step": version})
            assert (t.dtype, frame.on_gpu) == (dtype, ring.name == "device-ring")
            assert (t.to_float32() == image.float().cpu().numpy()).all()
            assert frame.intact()
    assert ring.writer.note == ""


def test_a_frame_comes_behind_the_work_of_its_own_stream(ring: Ring) -> None:
    """`write` does not wait for it, and other streams do not either."""
    assert ring.write(torch.zeros(100, 100, 3, device="cuda"), 1)  # kernels are loaded when they are first used
    ring.newest().close()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        image = torch.zeros(100, 100, 3, device="cuda")
        torch.cuda._sleep(LONG)
        image.fill_(0.5)
        assert ring.write(image, 2)
    assert not side.query(), "publishing does not wait for the GPU"
    assert ring.reader.read(1) is None, "the frame is not there before the work in front of it has ended"
    if ring.name == "host":
        assert not ring.write(image, 3), "one copy is under way at a time"
    torch.cuda.current_stream().synchronize()  # another stream: nothing to wait for
    with ring.newest(1) as frame:
        assert (frame.tensors["image"].to_float32() == 0.5).all()


def test_a_capture_is_left_alone(ring: Ring) -> None:
    x = torch.ones(8, 8, 3, device="cuda")
    y = x * 2
    assert ring.write(y, 1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    others = []
    with torch.cuda.graph(graph):
        y = x * 2
        assert not ring.write(y, 2)
        others.append(WRITERS[ring.name](0, MB, 3))  # a viewer comes just now
        z = y + 1
    others.pop().close()
    x.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((z == 11).all())
    with ring.newest() as frame:
        assert frame.version == 1
    assert ring.write(z, 3)
    with ring.newest(1) as frame:
        assert (frame.tensors["image"].to_float32() == 11).all()


ENDS = ("", "atexit.register(end)", "end()", "torch.cuda.synchronize()")


def test_a_process_that_ends_in_the_midst_of_it_ends_well(programs: Programs) -> None:
    started = [programs.code(f"""
import atexit, time, torch
from splatview_ipc.transports.device_ring import DeviceRingWriter
from splatview_ipc.transports.pinned_host import PinnedHostWriter
tensors = {{"image": torch.zeros(1000, 1000, 4, dtype=torch.uint8, device="cuda")}}
a = torch.rand(4096, 4096, device="cuda")
b = a @ a
torch.cuda.synchronize()
writers = [DeviceRingWriter(0, 4 << 20, 3), PinnedHostWriter(0, 4 << 20, 3)]
def end():
    for writer in writers:
        writer.close()
for writer in writers:
    while not writer.write("image", tensors, {{"layout": "HWC"}}, 1):
        time.sleep(1e-3)
torch.cuda.synchronize()
for _ in range(50):
    torch.mm(a, a, out=b)
time.sleep(0.1)
for writer in writers:
    writer.write("image", tensors, {{"layout": "HWC"}}, 2)
{end}
""") for end in ENDS]
    for end, child in zip(ENDS, started, strict=True):
        out, err = child.communicate(timeout=PATIENCE)
        assert (child.returncode, out, err) == (0, "", ""), end
