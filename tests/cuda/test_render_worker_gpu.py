"""A render worker draws the trainer's CUDA tensors where they are."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from support.programs import ROOT
from support.reading import stream_of, values
from support.wait import clock, wait_until

import splatview
from splatview.api import script_controls
from splatview.api.session import started_publisher
from splatview.rendering.camera import RenderCamera
from splatview.rendering.function import draw_picture
from splatview_ipc.control.messages import Draw, DrawnCamera
from splatview_ipc.subscriber.subscriber import Subscriber

pytestmark = pytest.mark.cuda

VIEWER = "ab" * 16
EYE = (1.0, 0, 0, 0, 0, 1.0, 0, 0, 0, 0, 1.0, 2.5, 0, 0, 0, 1.0)
CAMERA = DrawnCamera(1920, 1080, EYE, (1500.0, 0, 960, 0, 1500, 540, 0, 0, 1))
PICTURES = 20


def test_a_moved_scene_is_as_the_trainers_own_function_draws_it(
    subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    deformation: Any = importlib.import_module("functions.deformation")
    torch.manual_seed(0)
    scene = deformation.Scene(20_000).cuda()
    splatview.controls.slider("time", 0.0, 1.0, value=0.25)

    def publish() -> None:
        splatview.publish(
            scene,
            "scene",
            render="functions.deformation:picture",
            module="functions.deformation:Scene",
        )

    publish()
    stream_of(subscriber, "scene")
    pictures = stream_of(subscriber, "scene/pictures")
    rows = []
    for number in range(1, PICTURES + 1):
        with torch.no_grad():
            scene.gaussians["means"].mul_(0.99)
        publish()
        torch.cuda.synchronize()
        draw = Draw(pictures.info.index, VIEWER, number, CAMERA)
        started_at = clock()
        pictures.request_picture(draw)

        def answer(number: int = number) -> Any:
            subscriber.poll()
            frame = pictures.read()
            if frame is None or frame.meta["request"] != number:
                return None
            with frame:
                return frame.meta, values(frame)

        meta, arrays = wait_until(answer, "a picture")
        whole_ms = 1e3 * (clock() - started_at)
        assert "trouble" not in meta, meta
        rows.append((whole_ms, meta["ms"]))
        assert 0 < meta["gpu_ms"] <= meta["ms"]
        arguments = scene, RenderCamera.of(draw, "cuda")
        own = draw_picture(
            deformation.picture, arguments, script_controls.registry.values()
        )
        difference = np.abs(arrays["color"] - own.color.cpu().float().numpy())
        assert difference.max() <= 1
    assert pictures.sharing == "device-ring", pictures.fallback
    publisher = started_publisher()
    assert publisher is not None
    info = publisher.streams["scene/tensors"].info
    assert info is not None
    assert info.transports[0] == "in-place", info.reasons
    whole_ms, function_ms = np.median(np.array(rows[5:]), axis=0)
    print(f"function {function_ms:.2f} ms; request to picture read {whole_ms:.2f} ms")
    print(f"beside the function {whole_ms - function_ms:.2f} ms")
