"""Arrays of other libraries in GPU memory arrive exactly. The libraries run in a trainer of their own."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from support.programs import Programs
from support.reading import next_frame, stream_of, values
from support.trainers import Trainer

from splatview.adapters.images import picture_at
from splatview_ipc.cuda import driver
from splatview_ipc.subscriber.subscriber import Subscriber

pytestmark = pytest.mark.cuda


@pytest.fixture
def trainer(programs: Programs) -> Trainer:
    return Trainer(
        programs, XLA_PYTHON_CLIENT_PREALLOCATE="false", SPLATVIEW_STRICT="1"
    )


def newest(subscriber: Subscriber, name: str, version: int = 0) -> np.ndarray:
    """Return the image of a version newer than this, as a viewer sees it."""
    with next_frame(subscriber, stream_of(subscriber, name), version) as frame:
        image = values(frame)["image"]
        assert frame.intact()
        return image


def needs(library: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(library) is None, reason=f"needs {library}"
    )


@pytest.mark.parametrize(
    ("library", "dtypes"),
    [
        pytest.param("cupy", ("uint8", "float16", "float32"), marks=needs("cupy")),
        pytest.param(
            "jax.numpy", ("uint8", "float16", "bfloat16", "float32"), marks=needs("jax")
        ),
    ],
)
def test_a_picture_of_another_library(
    trainer: Trainer, subscriber: Subscriber, library: str, dtypes: tuple[str, ...]
) -> None:
    expected = (np.arange(37 * 53 * 3) % 100).reshape(37, 53, 3).astype(np.float32)
    for dtype in dtypes:
        trainer.do(
            f"""
import {library} as numbers
image = (numbers.arange(37 * 53 * 3) % 100).reshape(37, 53, 3).astype(numbers.{dtype})
splatview.publish(image, "{dtype}")
""",
            timeout=300,
        )
        assert np.array_equal(newest(subscriber, dtype), expected), dtype
        trainer.do(f'splatview.publish(image[::2, ::3], "{dtype}")')
        assert np.array_equal(newest(subscriber, dtype, 1), expected[::2, ::3]), dtype


def test_an_array_with_an_interface_alone(
    trainer: Trainer, subscriber: Subscriber
) -> None:
    trainer.do("""
from types import SimpleNamespace
image = torch.full((37, 53, 4), 7, dtype=torch.uint8, device="cuda")
splatview.publish(SimpleNamespace(__cuda_array_interface__=image.__cuda_array_interface__, keep=image), "image")
""")
    assert (newest(subscriber, "image") == 7).all()


def test_gpu_memory_that_is_not_torchs() -> None:
    values = torch.rand(20, 30, 3, device="cuda")
    size = values.numel() * 4
    with driver.context(0):
        address = int(driver.call_for_handle("cuMemAlloc", size))
        try:
            driver.call("cuMemcpyDtoD", address, values.data_ptr(), size)
            picture = picture_at(address, 30, 20, 3)
            assert torch.equal(picture, values)
            with pytest.raises(ValueError, match="allocation"):
                picture_at(address, 3000, 2000, 3)
        finally:
            driver.call("cuMemFree", address)
    assert torch.equal(picture, values), "a copy"
    torch.cuda.synchronize()
