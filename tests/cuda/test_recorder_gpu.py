"""Recording scenes that lie on a GPU: packed there, copied without anybody waiting for it, and shown again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.renderer_cases import Chance, random_scene

import splatview_viewer.recording.packed as packing
from splatview_viewer.recording.packed import layout, pack
from splatview_viewer.scene.scene import FIELDS, GaussianScene

pytestmark = pytest.mark.cuda


def both(n: int) -> tuple[GaussianScene, GaussianScene]:
    host = random_scene(5, Chance(n=n))
    return host, replace(host, **{name: torch.from_numpy(np.array(getattr(host, name))).cuda() for name in FIELDS})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_gpu_packs_as_the_host_does(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(packing, "_CHUNK_GPU", 3000)  # several rounds, the last one short
    _, device = both(10_000)
    device = replace(device, **{name: getattr(device, name).to(dtype) for name in FIELDS})
    wanted = pack(device.to_host()).arrays
    made = pack(device, (0.5, 0.25, 1.0), torch.cuda.Stream())
    assert made.background == (0.5, 0.25, 1.0)
    assert made.gpu_ms > 0
    for name, (shape, kind) in layout(10_000, device.shN.shape[1], device.activated).items():
        array = made.arrays[name]
        assert (array.shape, array.dtype) == (shape, kind)
        if kind.kind == "f":
            np.testing.assert_allclose(array, wanted[name], rtol=2e-3, atol=1e-6)
        else:
            assert np.abs(array.astype(int) - wanted[name].astype(int)).max(initial=0) <= 1
