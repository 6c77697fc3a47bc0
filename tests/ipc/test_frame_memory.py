"""Memory of frames, which are copies of their reader: what is written stays there, other libraries see it by DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.trainers import Trainer
from support.wait import PATIENCE

import splatview
from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs


@pytest.fixture(scope="module")
def program(lasting: Programs) -> Trainer:
    trainer = Trainer(lasting)
    trainer.do("import ctypes, numpy as np")
    return trainer


@pytest.fixture
def reader(program: Trainer, runtime_dir: Path) -> Trainer:
    """A program that reads, and sees the runs of this test."""
    program.do(f"os.environ['SPLATVIEW_RUNTIME_DIR'] = {str(runtime_dir)!r}")
    return program


WRITES = {
    "tensor": "frame.tensor[0] = 1",
    "torch_out": "torch.add(frame.tensor, 1, out=frame.tensor)",
    "tensors": "frame.tensors['image'].zero_()",
    "numpy": "frame.numpy()[:2] = 1",
    "asarray": "np.asarray(frame)[...] = 1",
    "buffer": "memoryview(frame.numpy()).cast('B')[0] = 1",
    "opencv": "import cv2; cv2.rectangle(frame.numpy(), (2, 2), (9, 5), (1, 1, 1), -1)",
    "torch_dlpack": "torch.from_dlpack(frame)[0] = 1",
    "pointer": "ctypes.memset(frame.tensor.data_ptr(), 1, 5)",
}
WRITER = """
with splatview.frames("it", timeout=30) as frames:
    frame = frames.latest()
    assert frame.tensor.min() == frame.tensor.max() == 7
    {write}
    assert not (frame.tensor == 7).all()
    assert np.shares_memory(frame.numpy(), frame.tensor.numpy())
    frame = frames.latest()
    assert frame.version == 1
    assert frame.tensor.min() == frame.tensor.max() == 7, "the frame is handed out again as it was published"
"""


def test_frame_write_stays_in_its_process(reader: Trainer, wait_until: Callable[..., Any]) -> None:
    image = torch.full((40, 60, 3), 7, dtype=torch.uint8)
    splatview.publish(image, "it")
    with splatview.frames("it", timeout=PATIENCE) as frames, Subscriber() as viewer:
        before = next(frames)
        wait_until(lambda: (viewer.poll(), viewer.streams)[-1])
        viewer.streams[0].open()
        seen = wait_until(lambda: (viewer.poll(), viewer.streams[0].read())[-1])
        for how, write in WRITES.items():
            reader.do(WRITER.format(write=write))
            for pixels in (before.numpy(), seen.tensors["image"].array, image.numpy()):
                assert (pixels == 7).all(), how
        assert (frames.latest().numpy() == 7).all()
        assert not seen.tensors["image"].array.flags.writeable, "viewers only read"
        seen.close()


# ---- DLPack


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_other_libraries_see_the_same_memory(dtype: torch.dtype) -> None:
    image = torch.arange(60, dtype=torch.float32).reshape(6, 10).to(dtype)
    splatview.publish(image, "it")
    with splatview.frames("it", timeout=PATIENCE) as frames:
        frame = next(frames)
        assert frame.__dlpack_device__() == (1, 0)
        tensor = torch.from_dlpack(frame)
        assert torch.equal(tensor, image) and tensor.data_ptr() == frame.tensor.data_ptr()
        if dtype == torch.float32:  # NumPy has no bfloat16
            assert np.from_dlpack(frame).ctypes.data == frame.numpy().ctypes.data == tensor.data_ptr()
