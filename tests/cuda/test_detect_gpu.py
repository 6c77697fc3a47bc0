"""Detectors whose networks run on a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest

from splatview.camera.detectors import InferenceSettings, open_detector

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("provider", ["cuda", ""])
def test_a_network_on_the_gpu(tmp_path: Path, provider: Literal["cuda", ""]) -> None:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from support.detect_models import bright

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
