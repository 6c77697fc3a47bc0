"""The ring in GPU memory, both sides in one process: exact, in the order of streams, out of the way of graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.wait import PATIENCE

from splatview_ipc.control.frame import DeviceTensor
from splatview_ipc.cuda import retiring
from splatview_ipc.subscriber.source import OwnSource
from splatview_ipc.transports.device_ring import DeviceRingReader, DeviceRingWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.programs import Programs

pytestmark = pytest.mark.cuda

MB = 1 << 20
META = {"layout": "HWC"}


@pytest.fixture
def own() -> Iterator[tuple[DeviceRingWriter, DeviceRingReader]]:
    writer = DeviceRingWriter(0, 9 * MB)
    reader = DeviceRingReader.make(writer.ref, OwnSource(), lambda slot: None)
    yield writer, reader
    reader.close()
    writer.close()
    assert retiring.settle(PATIENCE)


def newest(reader: DeviceRingReader, after: int = 0) -> Any:
    torch.cuda.synchronize()
    frame = reader.read(after)
    assert frame is not None
    return frame


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
def test_types_views_and_meta_arrive(own: tuple[DeviceRingWriter, DeviceRingReader], dtype: str) -> None:
    writer, reader = own
    base = (torch.rand(60, 70, 4, device="cuda") * 200).to(getattr(torch, dtype))
    images = [base, base[::2, 1:, :3], base.permute(2, 0, 1)[:3], base[:, :, :1].expand(60, 70, 3), base.flip(0)]
    for version, image in enumerate(images, 1):
        layout = "CHW" if image.shape[0] == 3 else "HWC"
        assert writer.write("image", {"image": image}, {"layout": layout, "step": version}, version)
        with newest(reader, version - 1) as frame:
            t = frame.tensors["image"].torch()
            assert (frame.version, frame.meta) == (version, {"layout": layout, "step": version})
            assert t.dtype == image.dtype
            assert torch.equal(t, image)
            assert (frame.tensors["image"].to_float32() == image.float().cpu().numpy()).all()
            assert frame.intact()


def test_work_is_ordered_on_the_stream_that_is_current(own: tuple[DeviceRingWriter, DeviceRingReader]) -> None:
    writer, reader = own
    a = torch.rand(8192, 8192, device="cuda")
    b = a @ a
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        image = torch.zeros(100, 100, 3, device="cuda")
        for _ in range(20):
            torch.mm(a, a, out=b)
        image.fill_(0.5)
        assert writer.write("image", {"image": image}, META, 1)
    assert not side.query(), "publishing does not wait for the GPU"
    assert reader.read() is None, "the frame is not there before the work in front of it has ended"
    torch.cuda.current_stream().synchronize()  # another stream: nothing to wait for
    with newest(reader) as frame:
        assert bool((frame.tensors["image"].torch() == 0.5).all())


def test_a_late_copy_is_waited_for_and_may_be_unwanted(own: tuple[DeviceRingWriter, DeviceRingReader]) -> None:
    writer, reader = own
    a = torch.rand(8192, 8192, device="cuda")
    for _ in range(10):
        a = a @ a
    image = torch.full((10, 10, 3), 0.25, device="cuda")
    assert writer.write("image", {"image": image}, META, 1, lambda: True)
    frame = reader.read()
    assert frame is not None, "with `still_wanted` the copy has ended when write returns"
    frame.close()
    assert not writer.write("image", {"image": image}, META, 2, lambda: False)
    torch.cuda.synchronize()
    assert reader.read(1) is None


def test_a_capture_is_left_alone(own: tuple[DeviceRingWriter, DeviceRingReader]) -> None:
    writer, reader = own
    x = torch.ones(8, 8, 3, device="cuda")
    y = x * 2
    assert writer.write("image", {"image": y}, META, 1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    others = []
    with torch.cuda.graph(graph):
        y = x * 2
        assert not writer.write("image", {"image": y}, META, 2)
        others.append(DeviceRingWriter(0, MB))  # a viewer comes just now
        z = y + 1
    others.pop().close()
    x.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    assert bool((z == 11).all())
    with newest(reader) as frame:
        assert frame.version == 1
    assert writer.write("image", {"image": z}, META, 3)
    with newest(reader, 1) as frame:
        assert bool((frame.tensors["image"].torch() == 11).all())


ENDS = ("", "atexit.register(end)", "end()", "torch.cuda.synchronize()")


def test_a_process_that_ends_in_the_midst_of_it_ends_well(programs: Programs) -> None:
    started = [programs.code(f"""
import atexit, time, torch
from splatview_ipc.transports.device_ring import DeviceRingWriter
from splatview_ipc.transports.pinned_host import HostWriter
tensors = {{"image": torch.zeros(1000, 1000, 4, dtype=torch.uint8, device="cuda")}}
a = torch.rand(4096, 4096, device="cuda")
b = a @ a
torch.cuda.synchronize()
writers = [DeviceRingWriter(0, 4 << 20), HostWriter(0, 4 << 20)]
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


@pytest.mark.skipif("not torch.cuda.is_available() or torch.cuda.device_count() < 2", reason="needs two GPUs")
def test_a_ring_on_another_gpu_than_the_current_one() -> None:
    image = torch.full((100, 100, 3), 7, dtype=torch.uint8, device="cuda:1")
    writer = DeviceRingWriter.make({"image": image}, 1.0, bytes)
    reader = DeviceRingReader.make(writer.ref, OwnSource(), lambda slot: None)
    assert torch.cuda.current_device() == 0
    for version in range(1, 6):
        image.fill_(version)
        assert writer.write("image", {"image": image}, META, version)
        torch.cuda.synchronize(1)
        frame = reader.read(version - 1)
        assert frame is not None, "`done` was written on the GPU that copied"
        with frame:
            t = frame.tensors["image"]
            assert isinstance(t, DeviceTensor)
            assert t.torch().device == torch.device("cuda", 1)
            assert torch.equal(t.torch(), image)
    reader.close()
    writer.close()
    assert retiring.settle(PATIENCE)
