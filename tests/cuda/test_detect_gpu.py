"""Detectors beside a GPU: pictures that lie there, results that come from there, networks that run there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest
import torch
from support.wait import PATIENCE

import splatview
from splatview.camera.inference import picture

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_a_picture_on_the_gpu(dtype: torch.dtype, layout: str) -> None:
    pixels = torch.randint(0, 2, (20, 30, 3), generator=torch.Generator().manual_seed(0)).byte() * 255
    value = pixels.cuda() if dtype == torch.uint8 else (pixels.cuda() / 255).to(dtype)
    value = value if layout == "HWC" else value.permute(2, 0, 1).contiguous()
    with splatview.frames("picture", timeout=PATIENCE) as frames:
        splatview.publish(value, "picture", layout=layout)
        got = picture(next(frames))
        np.testing.assert_array_equal(got, pixels.numpy())
        assert got.flags.c_contiguous


def results(count: int) -> Any:
    with splatview.frames("camera overlay", timeout=PATIENCE) as overlays:
        for overlay in overlays:
            yield {name: tensor.cpu().numpy() for name, tensor in overlay.tensors.items()}, dict(overlay.meta)
            count -= 1
            if not count:
                return


@pytest.mark.parametrize("provider", ["cuda", ""])
def test_a_network_on_the_gpu(tmp_path: Path, provider: Literal["cuda", ""]) -> None:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from support.detect_models import bright

    from splatview.camera.detectors import InferenceSettings, open_detector

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime knows no GPU: pip install onnxruntime-gpu")
    detector = open_detector(InferenceSettings(detect=bright(tmp_path / "bright.onnx", 128, 96), provider=provider))
    assert detector.by == "bright on CUDA"
    for x in range(0, 112, 16):
        image = np.zeros((96, 128, 3), np.uint8)
        image[40:56, x:x + 16] = 255
        found = detector.detect(image)
        np.testing.assert_allclose(found["boxes"], [[x, 40, x + 16, 56]], atol=1e-3)
        np.testing.assert_allclose(found["scores"], [0.9], atol=1e-3)
