"""Trainers of others, as small models of the same shapes, publish what they train."""

from __future__ import annotations

import sys
from enum import Enum
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import host_array, poses
from support.reading import next_frame, stream_of

from splatview_ipc.subscriber.subscriber import Subscriber

COUNT = 3
"""Training cameras."""


class CallbackLocation(Enum):
    AFTER_TRAIN_ITERATION = 1


class NerfstudioCameras:
    """As nerfstudio's: camera to world, OpenGL's axes."""

    def __init__(self) -> None:
        views, self._intrinsics = poses(COUNT)
        axes = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0]))
        self.camera_to_worlds = (views.inverse() @ axes)[:, :3]
        self.width = torch.full((COUNT, 1), 40)
        self.height = torch.full((COUNT, 1), 30)
        self.distortion_params = torch.tensor([[0.0], [0.1], [0.0]])

    def get_intrinsics_matrices(self) -> torch.Tensor:
        return self._intrinsics


class Datamanager:
    """As nerfstudio's for whole images."""

    def __init__(self, cache_images: str) -> None:
        self.config = SimpleNamespace(cache_images=cache_images)
        filenames = [f"{i}.png" for i in range(COUNT)]
        self.train_dataset = SimpleNamespace(
            cameras=NerfstudioCameras(), image_filenames=filenames
        )

    @property
    def cached_train(self) -> list[dict[str, torch.Tensor]]:
        assert self.config.cache_images != "disk"
        return [{"image": torch.full((30, 40, 3), i / 10)} for i in range(COUNT)]

    def next_train(self, step: int) -> tuple[Any, dict[str, Any]]:
        return SimpleNamespace(metadata={"cam_idx": step % COUNT}), {}


class NerfstudioTrainer:
    """As nerfstudio's after its method `setup`, with splatfacto's parameters."""

    def __init__(self, cache_images: str = "gpu") -> None:
        shapes = {"means": 3, "quats": 4, "scales": 3, "features_dc": 3, "opacities": 1}
        parameters = {name: torch.zeros(6, size) for name, size in shapes.items()}
        parameters["features_rest"] = torch.zeros(6, 15, 3)
        model = SimpleNamespace(
            gauss_params=torch.nn.ParameterDict(parameters),
            config=SimpleNamespace(sh_degree_interval=1000, rasterize_mode="classic"),
            step=2500,
        )
        datamanager = Datamanager(cache_images)
        self.pipeline = SimpleNamespace(model=model, datamanager=datamanager)
        self.local_rank = 0
        self.callbacks: list[Any] = []

    def train_iteration(self, step: int) -> Any:
        self.pipeline.datamanager.next_train(step)
        loss = torch.tensor(0.25, requires_grad=True)
        return loss, {"main_loss": loss}, {"psnr": torch.tensor(20.0)}


def make_callback(locations: list[Any], function: Any, **_: Any) -> Any:
    assert locations == [CallbackLocation.AFTER_TRAIN_ITERATION]
    return function


@pytest.fixture
def nerfstudio(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import the integration beside stand-ins for nerfstudio's modules."""
    modules = {
        "nerfstudio": {},
        "nerfstudio.engine": {},
        "nerfstudio.engine.callbacks": {
            "TrainingCallback": make_callback,
            "TrainingCallbackLocation": CallbackLocation,
        },
        "nerfstudio.engine.trainer": {"Trainer": NerfstudioTrainer},
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    name = "splatview.integrations.nerfstudio"
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield import_module(name)
    sys.modules.pop(name, None)


def test_splatfacto_is_shown_with_cameras_and_losses(
    nerfstudio: Any, subscriber: Subscriber
) -> None:
    trainer = NerfstudioTrainer()
    nerfstudio.show(trainer)
    trainer.train_iteration(7)
    for callback in trainer.callbacks:
        callback(step=7)
    with next_frame(subscriber, stream_of(subscriber, "gaussians")) as frame:
        assert (frame.meta["step"], frame.meta["sh_degree"]) == (7, 2)
    with next_frame(subscriber, stream_of(subscriber, "cameras")) as frame:
        viewmats = host_array(frame.tensors["viewmats"])
        np.testing.assert_allclose(viewmats, poses(COUNT)[0].numpy(), atol=1e-6)
    with next_frame(subscriber, stream_of(subscriber, "cameras current")) as frame:
        assert host_array(frame.tensors["current"]).tolist() == [1]
    photos = stream_of(subscriber, "cameras photos")
    photos.request_photos(2)
    with next_frame(subscriber, photos) as frame:
        assert set(host_array(frame.tensors["photos"]).ravel().tolist()) == {51}
    with next_frame(subscriber, stream_of(subscriber, "scalars")) as frame:
        names = host_array(frame.tensors["names"]).tobytes().decode().split("\0")
        assert {"loss", "main_loss", "psnr"} <= set(names)


def test_files_of_photographs_that_nerfstudio_straightens_are_left_out(
    nerfstudio: Any, subscriber: Subscriber
) -> None:
    nerfstudio.show(NerfstudioTrainer("disk"))
    with next_frame(subscriber, stream_of(subscriber, "cameras")) as frame:
        paths = host_array(frame.tensors["paths"]).tobytes().decode().split("\0")
        assert [path.rpartition("/")[2] for path in paths[:3]] == ["0.png", "", "2.png"]
