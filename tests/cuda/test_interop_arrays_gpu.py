"""Arrays of other libraries in GPU memory: they arrive exact, in the order of the library's own streams.

The libraries run in a trainer of their own. Each test holds the GPU up where an order that nobody keeps would show.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.trainers import Trainer, next_frame, stream_of, values

from splatview_ipc import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

pytestmark = pytest.mark.cuda

_HOLD = """
def hold_up(milliseconds=30):
    "Keep torch's current stream busy."
    torch.cuda._sleep(int(milliseconds * 1.5e6))
"""


def needs(library: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(library) is None, reason=f"needs {library}")


@pytest.fixture
def trainer(programs: Programs) -> Trainer:
    made = Trainer(programs, XLA_PYTHON_CLIENT_PREALLOCATE="false", SPLATVIEW_STRICT="1")
    made.do(_HOLD)
    return made


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    torch.zeros(1, device="cuda")
    with Subscriber() as s:
        yield s


class Reader:
    """What a viewer sees of a stream, version by version."""

    def __init__(self, subscriber: Subscriber, wait_until: Callable[..., Any], name: str):
        self.subscriber = subscriber
        self.stream = stream_of(subscriber, wait_until, name)
        self.version = 0

    def next(self) -> dict[str, np.ndarray]:
        """The tensors of a version newer than the last."""
        while True:
            with next_frame(self.subscriber, self.stream, self.version) as frame:
                found = values(frame)
                if frame.intact():
                    self.version = frame.version
                    return found


CUPY = "import cupy as cp"


@needs("cupy")
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_a_picture_of_cupy(trainer: Trainer, subscriber: Subscriber, wait_until: Callable[..., Any],
                           dtype: str) -> None:
    trainer.do(f"""
{CUPY}
image = (cp.arange(37 * 53 * 3) % 100).reshape(37, 53, 3).astype(cp.{dtype})
splatview.publish(image, "image")
""")
    expected = (np.arange(37 * 53 * 3) % 100).reshape(37, 53, 3).astype(np.float32)
    reader = Reader(subscriber, wait_until, "image")
    assert np.array_equal(reader.next()["image"], expected)
    trainer.do('splatview.publish(image[:, ::-2], "image")')
    assert np.array_equal(reader.next()["image"], expected[:, ::-2])
    trainer.do('splatview.publish((image + 0)[::-1, 1:, ::-1], "image")')
    assert np.array_equal(reader.next()["image"], expected[::-1, 1:, ::-1])
    trainer.do('splatview.publish(image[::2, ::3], "image")')
    assert np.array_equal(reader.next()["image"], expected[::2, ::3])


@needs("cupy")
def test_gaussians_of_cupy_are_shared_where_they_lie(
        trainer: Trainer, subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
    trainer.do(f"""
{CUPY}
scene = {{name: cp.zeros((1000, *shape), cp.float32) for name, shape in SHAPES.items()}}
splatview.publish(scene, "scene")
""")
    reader = Reader(subscriber, wait_until, "scene")
    reader.next()
    for i in range(1, 6):
        trainer.do(f"""
for array in scene.values():
    array.fill({i})
splatview.publish(scene, "scene", step={i})
cp.cuda.Device().synchronize()
""")
        assert {float(v) for t in reader.next().values() for v in (t.min(), t.max())} == {float(i)}
    assert reader.stream.sharing in ("in-place", "device-ring")


INTERFACE = """
class Interface:
    "An array of a library that works on a stream of its own, and has no DLPack."
    def __init__(self, tensor, stream, read_only=False):
        self.tensor = tensor
        self.__cuda_array_interface__ = {**tensor.__cuda_array_interface__, "stream": stream, "version": 3}
        self.__cuda_array_interface__["data"] = (tensor.data_ptr(), read_only)
"""


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("own", [True, False])
def test_the_stream_that_an_interface_names(trainer: Trainer, subscriber: Subscriber, wait_until: Callable[..., Any],
                                            own: bool, read_only: bool) -> None:
    """The library's work before the call is waited for on the GPU, and its work after it waits."""
    trainer.do(INTERFACE + f"""
side = torch.cuda.Stream() if {own} else torch.cuda.default_stream()
mine = torch.cuda.default_stream() if {own} else torch.cuda.Stream()
image = torch.zeros(1080, 1920, 4, dtype=torch.uint8, device="cuda")
array = Interface(image, side.cuda_stream or 1, {read_only})
torch.cuda.synchronize()
def turn(i):
    with torch.cuda.stream(side):
        hold_up()
        image.fill_(i)
    with torch.cuda.stream(mine):
        hold_up(5)
        splatview.publish(array, "image", copy=True)
    with torch.cuda.stream(side):
        image.fill_(255)
splatview.publish(array, "image", copy=True)
""")
    reader = Reader(subscriber, wait_until, "image")
    reader.next()
    for i in range(1, 9):
        trainer.do(f"turn({i})")
        image = reader.next()["image"]
        assert image.min() == image.max() == i


JAX = "import jax, jax.numpy as jnp"


@needs("jax")
@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
def test_a_picture_of_jax(trainer: Trainer, subscriber: Subscriber, wait_until: Callable[..., Any],
                          dtype: str) -> None:
    trainer.do(f"""
{JAX}
image = (jnp.arange(37 * 53 * 3) % 100).reshape(37, 53, 3).astype(jnp.{dtype})
splatview.publish(image, "image")
answer = str(image.devices())
""", timeout=300)
    expected = (np.arange(37 * 53 * 3) % 100).reshape(37, 53, 3).astype(np.float32)
    reader = Reader(subscriber, wait_until, "image")
    assert np.array_equal(reader.next()["image"], expected)
    trainer.do('splatview.publish(image.transpose(2, 0, 1)[:, ::2], "image")')
    assert np.array_equal(reader.next()["image"], expected.transpose(2, 0, 1)[:, ::2])
