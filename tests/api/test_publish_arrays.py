"""Arrays of other libraries: what `publish` makes of them, and what it says where it cannot."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

import splatview
from splatview.adapt.arrays import as_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

PICTURE = np.arange(4 * 5 * 3, dtype=np.float32).reshape(4, 5, 3) / 60


class ByDlpack:
    """An array of some library that has the protocol alone."""

    def __init__(self, tensor: torch.Tensor, device: tuple[int, int] = (1, 0)):
        self.tensor = tensor
        self.device = device

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def in_a_record(array: np.ndarray) -> np.ndarray:
    """Strides that are no multiple of the elements' size."""
    records = np.zeros(array.shape, [("flag", "u1"), ("value", array.dtype)])
    records["value"] = array
    return records["value"]


@pytest.mark.parametrize("make", [
    lambda a: a, in_a_record, lambda a: a.astype(">f4"), lambda a: a[:, ::-1], lambda a: read_only(a)[::-1],
    lambda a: np.asfortranarray(a)[1:, ::2], lambda a: np.ma.masked_greater(a, 0.5),
    lambda a: SimpleNamespace(__array_interface__=a.__array_interface__, keep=a),
    lambda a: ByDlpack(torch.from_numpy(a)), lambda a: ByDlpack(torch.from_numpy(a).permute(2, 0, 1)),
    lambda a: Image.fromarray(a[..., 0]),
    lambda a: Image.fromarray((a * 255).astype(np.uint8)).convert("RGBA"),
])
def test_an_array_arrives_as_it_is(make: Callable[[np.ndarray], Any], arrived: Callable[..., Any]) -> None:
    given = make(PICTURE.copy())
    expected = (given.filled(0) if isinstance(given, np.ma.MaskedArray) else
                given.tensor.numpy() if isinstance(given, ByDlpack) else np.asarray(given))
    layout: dict[str, Any] = {"layout": "CHW"} if expected.shape[0] == 3 else {}
    for _ in range(3):  # the first recognises it, the later ones are like it
        splatview.publish(given, "array", **layout)
    got = arrived("array")["image"]
    scale = 255 if expected.dtype == np.uint8 and got.max() <= 1 else 1
    assert np.array_equal(got * scale, expected.astype(np.float32))


def test_read_only_memory_is_not_copied() -> None:
    for array in (read_only(PICTURE), np.broadcast_to(PICTURE[:1], PICTURE.shape)):
        assert as_tensor(array, "x").data_ptr() == array.ctypes.data
        assert not array.flags.writeable


def gaussians(n: int, convert: Callable[[np.ndarray], Any] = lambda a: a) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    shapes = {"means": (n, 3), "quats": (n, 4), "scales": (n, 3), "opacities": (n,), "sh0": (n, 1, 3), "shN": (n, 3, 3)}
    return {name: convert(rng.random(shape, np.float32)) for name, shape in shapes.items()}


@pytest.mark.parametrize("convert", [lambda a: a, read_only, lambda a: ByDlpack(torch.from_numpy(a)),
                                     lambda a: a.astype(np.float16)])
def test_gaussians_of_arrays(convert: Callable[[np.ndarray], Any], arrived: Callable[..., Any]) -> None:
    for n in (5, 5, 9, 2):  # as trainers add and remove them
        splatview.publish(gaussians(n, convert), "scene")
        got = arrived("scene")
        for name, expected in gaussians(n).items():
            assert np.allclose(got[name], expected.reshape(got[name].shape), rtol=0, atol=1e-3)


def test_arrays_of_a_scene_that_are_written_into_replaced_or_reshaped(arrived: Callable[..., Any]) -> None:
    swapped = gaussians(4, lambda a: a.astype(">f4"))  # which are copied for torch
    native = gaussians(4)
    for scene in (swapped, native):
        for value in range(3):
            for array in scene.values():
                array[:] = value
            splatview.publish(scene, "scene")
            got = arrived("scene")
            assert {float(v) for t in got.values() for v in t.flat} == {float(value)}
    native["means"] = native["means"] + 5
    splatview.publish(native, "scene")
    assert (arrived("scene")["means"] == 7).all()
    native["opacities"] = native["opacities"].reshape(4, 1)
    splatview.publish(native, "scene")
    assert arrived("scene")["opacities"].shape == (4,)
    native["means"] = native["means"][:3]
    with pytest.raises(ValueError, match=r"quats has shape \(4, 4\).*N = 3"):
        splatview.publish(native, "scene")


class Strided:
    """A library that hands out whatever strides it has."""

    def __init__(self, array: np.ndarray, strides: tuple[int, ...] | None = None, versioned: bool = False):
        self.array, self.strides, self.versioned = array, strides, versioned

    def __dlpack__(self, stream: Any = None, **options: Any) -> Any:
        capsule = self.array.__dlpack__(max_version=(1, 0)) if self.versioned else self.array.__dlpack__()
        if self.strides is not None:
            get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
                ("PyCapsule_GetPointer", ctypes.pythonapi))
            # Behind data, device, dimensions, type and shape; before them, in the newer one, 32 bytes.
            at = get(capsule, b"dltensor_versioned" if self.versioned else b"dltensor")
            held = ctypes.POINTER(ctypes.c_int64).from_address(at + 32 + 32 * self.versioned)
            for i, stride in enumerate(self.strides):
                held[i] = stride
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class StridedWithInterface(Strided):
    @property
    def __array_interface__(self) -> Any:
        return self.array.__array_interface__


@pytest.mark.parametrize("versioned", [False, True])
def test_strides_that_torch_cannot_hold_do_not_end_the_process(versioned: bool) -> None:
    """By DLPack torch ends it over those."""
    picture = np.arange(60, dtype=np.float32).reshape(4, 5, 3)
    for turned in (picture[:, ::-2], picture[::-1], picture[..., ::-1]):
        again = as_tensor(StridedWithInterface(turned, versioned=versioned), "x")
        assert np.array_equal(again.numpy(), turned)
        with pytest.raises(TypeError, match=r"strides.*contiguous|contiguous.*strides"):
            splatview.publish(Strided(turned, versioned=versioned))
    for strides in ((15, 2**62 - 6, 1), (15, 2**63 - 6, 1), (15, 1 << 61, 1), (-15, 3, 1)):
        with pytest.raises(TypeError, match=r"strides.*contiguous|contiguous.*strides"):
            splatview.publish(Strided(picture, strides, versioned))
    assert as_tensor(Strided(picture, versioned=versioned), "x").data_ptr() == picture.ctypes.data, "no copy"


@pytest.mark.skipif(torch.cuda.is_available(), reason="for torch without a GPU")
def test_gpu_memory_where_torch_has_none() -> None:
    interface = {"shape": (4, 4), "typestr": "<f4", "data": (1 << 30, False), "version": 3}
    for value in (SimpleNamespace(__cuda_array_interface__=interface), ByDlpack(torch.zeros(4, 4), (2, 0))):
        with pytest.raises(ValueError, match="sees no GPU"):
            splatview.publish(value)
