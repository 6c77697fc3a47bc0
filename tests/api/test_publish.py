"""`publish`: every form of value that it takes, and how a run begins and ends."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.frames import host_array, poses
from support.reading import next_frame, stream_of

import splatview
from splatview.adapters import recognise
from splatview.api import session as publishing
from splatview_ipc.kinds import check_frame
from splatview_ipc.subscriber.subscriber import Subscriber

N = 5


def unpacked(
    value: Any, layout: str | None = None, **meta: Any
) -> tuple[str, dict[str, torch.Tensor], dict[str, Any]]:
    """Return the kind, fields and metadata that a viewer gets, by the steps of `publish`.

    The receiver's own check is applied.
    """
    form = recognise(value, layout=layout)
    match = form.match(value, meta)
    assert match is not None
    tensors, full = match
    fields = form.frame(tensors)
    described = {k: (str(t.dtype)[6:], tuple(t.shape)) for k, t in fields.items()}
    check_frame(form.kind, described, full)
    return form.kind, fields, full


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


# ---- Images


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((4, 6), "HW"),
        ((4, 6, 1), "HWC"),
        ((4, 6, 3), "HWC"),
        ((4, 6, 4), "HWC"),
        ((1, 4, 6), "CHW"),
        ((3, 4, 6), "CHW"),
        ((4, 5, 6), "CHW"),
        ((3, 4, 3), "HWC"),
        ((1, 1), "HW"),
        ((1, 1, 1), "HWC"),
        ((1, 7, 3), "HWC"),
    ],
)
def test_publish_recognises_image_layouts_and_dtypes(
    shape: tuple[int, ...], layout: str
) -> None:
    dtypes = (
        torch.uint8,
        torch.uint16,
        torch.float16,
        torch.bfloat16,
        torch.float32,
    )
    for dtype in dtypes:
        image = (rand(*shape) * 50).abs().to(dtype)
        kind, fields, meta = unpacked(image)
        assert (kind, meta["layout"]) == ("image", layout)
        assert torch.equal(fields["image"], image)


# ---- Gaussians


def gsplat_parameters(n: int = N, degree: int = 3) -> dict[str, torch.Tensor]:
    return {
        "means": rand(n, 3),
        "quats": rand(n, 4),
        "scales": rand(n, 3),
        "opacities": rand(n),
        "sh0": rand(n, 1, 3),
        "shN": rand(n, (degree + 1) ** 2 - 1, 3),
    }


SHAPES = {
    name: value
    for name, value in gsplat_parameters().items()
    if not name.startswith("sh")
}


def inria_model(n: int = N) -> SimpleNamespace:
    return SimpleNamespace(
        _xyz=rand(n, 3),
        _features_dc=rand(n, 1, 3),
        _features_rest=rand(n, 15, 3),
        _scaling=rand(n, 3),
        _rotation=rand(n, 4),
        _opacity=rand(n, 1),
        active_sh_degree=1,
    )


def nerfstudio(n: int = N) -> dict[str, torch.Tensor]:
    return {
        "means": rand(n, 3),
        "quats": rand(n, 4),
        "scales": rand(n, 3),
        "opacities": rand(n, 1),
        "features_dc": rand(n, 3),
        "features_rest": rand(n, 8, 3),
    }


def as_parameter_dict(values: dict[str, torch.Tensor]) -> torch.nn.ParameterDict:
    return torch.nn.ParameterDict({k: torch.nn.Parameter(v) for k, v in values.items()})


def torchwindow(n: int = N, k: int = 4) -> tuple[torch.Tensor, ...]:
    return (
        torch.tensor([1.0, 0.5, 0.0]),
        rand(n, 3),
        rand(n, k, 3),
        rand(n),
        rand(n, 3),
        rand(n, 4),
    )


@pytest.mark.parametrize(
    ("value", "activated", "color", "degree", "stored"),
    [
        (gsplat_parameters(degree=4), False, "sh", 4, 24),
        (SHAPES | {"sh0": rand(N, 1, 3)}, False, "sh", 0, 0),
        (
            SHAPES | {"features": rand(N, 32), "colors": rand(N, 3)},
            False,
            "rgb_logit",
            0,
            0,
        ),
        (SHAPES | {"colors": rand(N, 3)}, True, "rgb", 0, 0),
        (SHAPES | {"colors": rand(N, 9, 3)}, True, "sh", 2, 8),
        (inria_model(), False, "sh", 1, 15),
        (
            SimpleNamespace(gauss_params=as_parameter_dict(nerfstudio())),
            False,
            "sh",
            2,
            8,
        ),
        (
            {
                "xyz": rand(N, 3),
                "f_dc": rand(N, 1, 3),
                "f_rest": rand(N, 15, 3),
                "opacity": rand(N, 1),
                "scaling": rand(N, 3),
                "rotation": rand(N, 4),
            },
            False,
            "sh",
            3,
            15,
        ),
        (
            {
                "means3D": rand(N, 3),
                "shs": rand(N, 16, 3),
                "opacities": rand(N, 1),
                "scales": rand(N, 3),
                "rotations": rand(N, 4),
            },
            True,
            "sh",
            3,
            15,
        ),
        (
            {
                "means3D": rand(N, 3),
                "rgb_colors": rand(N, 3),
                "unnorm_rotations": rand(N, 4),
                "logit_opacities": rand(N, 1),
                "log_scales": rand(N, 1),
                "cam_trans": rand(1, 3, 9),
            },
            False,
            "rgb",
            0,
            0,
        ),
        (torchwindow(k=4), True, "sh", 1, 3),
        (gsplat_parameters(n=0), False, "sh", 3, 15),
    ],
)
def test_publish_recognises_each_form_of_gaussians(
    value: Any, activated: bool, color: str, degree: int, stored: int
) -> None:
    kind, fields, meta = unpacked(value)
    assert kind == "gaussians"
    assert meta["activated"] == activated
    assert meta["color"] == color
    assert meta["sh_degree"] == degree
    assert not any(t.requires_grad for t in fields.values())
    # The tuple of torchwindow has a background, too.
    if isinstance(value, tuple):
        return
    n = len(fields["means"])
    shapes: dict[str, tuple[int, ...]] = {
        "means": (n, 3),
        "quats": (n, 4),
        "scales": (n, 3),
        "opacities": (n,),
    }
    if color == "sh":
        shapes["sh0"] = (n, 3)
    else:
        shapes["rgb"] = (n, 3)
    if stored:
        shapes["shN"] = (n, stored, 3)
    assert {name: tuple(t.shape) for name, t in fields.items()} == shapes


def test_each_field_comes_from_the_right_tensor() -> None:
    model = inria_model()
    _, fields, _ = unpacked(model)
    for field, source in {
        "means": model._xyz,
        "quats": model._rotation,
        "scales": model._scaling,
        "opacities": model._opacity[:, 0],
        "sh0": model._features_dc[:, 0],
        "shN": model._features_rest,
    }.items():
        assert torch.equal(fields[field], source)
        assert fields[field].data_ptr() == source.data_ptr(), "no copy is made"
    background, means, shs, opacity, scales, rotations = torchwindow()
    _, fields, _ = unpacked((background, means, shs, opacity, scales, rotations))
    for field, source in {
        "means": means,
        "quats": rotations,
        "scales": scales,
        "opacities": opacity,
        "sh0": shs[:, 0],
        "shN": shs[:, 1:],
        "background": background,
    }.items():
        assert torch.equal(fields[field], source)


def test_active_degree_follows_the_model() -> None:
    model = inria_model()
    layout = recognise(model)
    for degree in (0, 1, 2, 3):
        model.active_sh_degree = degree
        published = layout.match(model, {})
        assert published is not None
        assert published[1]["sh_degree"] == degree
    _, _, meta = unpacked(gsplat_parameters(), sh_degree=1)
    assert meta["sh_degree"] == 1
    _, _, meta = unpacked(gsplat_parameters(degree=0), sh_degree=3)
    assert meta["sh_degree"] == 0, "no more than is stored"


def test_densification_replaces_tensors_and_n(arrived: Callable[..., Any]) -> None:
    parameters = as_parameter_dict(gsplat_parameters(10))
    for n in (10, 25, 7):
        for name, value in gsplat_parameters(n).items():
            if n > len(parameters[name]):
                parameters[name] = torch.nn.Parameter(value)
            parameters[name].data = parameters[name].data[:n]
        splatview.publish(parameters)
        expected = parameters["shN"].detach().numpy()
        assert np.array_equal(arrived("gaussians")["shN"], expected)


# ---- Around the trainer


def test_unusable_runtime_folder_stops_no_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for path in (f"/tmp/{'x' * 60}", str(file)):
        monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", path)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "splatview"):
            for _ in range(3):
                splatview.publish(torch.zeros(4, 4))
        assert len(caplog.records) == 1
        assert path in caplog.text
        splatview.close()
    monkeypatch.setenv("SPLATVIEW_STRICT", "1")
    with pytest.raises(Exception, match=str(file)):
        splatview.publish(torch.zeros(4, 4))


def test_publishing_works_again_after_close(
    arrived: Callable[..., Any], runtime_dir: Path
) -> None:
    splatview.publish(torch.zeros(4, 4))
    for _ in range(2):
        splatview.close()
    assert list(runtime_dir.iterdir()) == []
    splatview.publish(torch.ones(4, 4))
    assert (arrived("image")["image"] == 1).all()


def test_disabled_publish_starts_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_DISABLE", "1")
    splatview.publish(torch.zeros(4, 4))
    assert publishing.started_publisher() is None


# ---- arrays of other libraries


PICTURE = np.arange(4 * 5 * 3, dtype=np.float32).reshape(4, 5, 3) / 60


class ByDlpack:
    """Stands for an array of a library that has the DLPack protocol alone."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


class ByArrayInterface:
    """Stands for an array of a library that has NumPy's interface alone."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.__array_interface__ = array.__array_interface__


def pillow_image_in_color(array: np.ndarray) -> Image.Image:
    return Image.fromarray((array * 255).astype(np.uint8)).convert("RGBA")


@pytest.mark.parametrize(
    "array",
    [
        PICTURE,
        PICTURE.astype(">f4"),
        PICTURE[:, ::-1],
        read_only(PICTURE)[::-1],
        np.asfortranarray(PICTURE)[1:, ::2],
        ByArrayInterface(PICTURE),
        ByDlpack(torch.from_numpy(PICTURE)),
        ByDlpack(torch.from_numpy(PICTURE).permute(2, 0, 1)),
        Image.fromarray(PICTURE[..., 0]),
        pillow_image_in_color(PICTURE),
    ],
)
def test_arrays_of_other_libraries_arrive_unchanged(
    array: Any, arrived: Callable[..., Any]
) -> None:
    if isinstance(array, ByDlpack):
        expected = array.tensor.numpy()
    else:
        expected = np.asarray(array)
    options: dict[str, Any] = {}
    if expected.shape[0] == 3:
        options["layout"] = "CHW"
    for _ in range(2):
        splatview.publish(array, "array", **options)
    got = arrived("array")["image"]
    is_scaled = expected.dtype == np.uint8 and got.max() <= 1
    if is_scaled:
        got = got * 255
    assert np.array_equal(got, expected.astype(np.float32))


# -- cameras ---------------------------------------------------------------------------


def has_meta(frame: Any, name: str, value: object) -> bool:
    return frame.meta[name] == value


def test_viewer_reads_published_cameras(subscriber: Subscriber) -> None:
    views, Ks = poses(5)
    splatview.publish_cameras(views, Ks[0], 40, [30, 31, 32, 33, 34])
    stream = stream_of(subscriber, "cameras")
    assert (stream.kind, stream.info.over, stream.shape) == ("cameras", "", (5,))
    with next_frame(subscriber, stream) as frame:
        assert frame.meta == {"photos": 0}
        viewmats = host_array(frame.tensors["viewmats"])
        np.testing.assert_array_equal(viewmats, views.numpy())
        np.testing.assert_array_equal(host_array(frame.tensors["Ks"]), Ks.numpy())
        sizes = [[40, 30 + i] for i in range(5)]
        np.testing.assert_array_equal(host_array(frame.tensors["sizes"]), sizes)
    moved = views.clone()
    moved[:, 0, 3] += 1
    splatview.publish_cameras(moved.double().numpy(), Ks.tolist(), 40, 30)
    with next_frame(subscriber, stream, after=1) as frame:
        assert frame.tensors["viewmats"].dtype == "float64"
        viewmats = host_array(frame.tensors["viewmats"])
        np.testing.assert_array_equal(viewmats, moved.numpy())


def test_current_camera_is_published_without_the_poses(subscriber: Subscriber) -> None:
    views, Ks = poses(9)
    splatview.publish_cameras(views, Ks, 40, 30, current=3)
    stream = stream_of(subscriber, "cameras current")
    assert stream.info.over == "cameras"
    with next_frame(subscriber, stream) as frame:
        assert host_array(frame.tensors["current"]).tolist() == [3]
    poses_stream = stream_of(subscriber, "cameras")
    splatview.publish_cameras(current=np.int64(7))

    def shows_camera_7(frame: Any) -> bool:
        return host_array(frame.tensors["current"]).tolist() == [7]

    with next_frame(subscriber, stream, fits=shows_camera_7):
        pass
    assert poses_stream.version == 1, "the poses were not published again for that"


@pytest.mark.parametrize("kind", ["uint8", "float32", "float16", "channels first"])
def test_photographs_arrive_when_a_viewer_requests_them(
    subscriber: Subscriber, kind: str
) -> None:
    g = torch.Generator().manual_seed(3)
    photos = torch.randint(0, 256, (4, 30, 40, 3), dtype=torch.uint8, generator=g)
    images = {
        "uint8": photos,
        "float32": photos / 255,
        "float16": (photos / 255).half(),
        "channels first": photos.permute(0, 3, 1, 2),
    }[kind]
    splatview.publish_cameras(*poses(4), 40, 30, images)
    with next_frame(subscriber, stream_of(subscriber, "cameras")) as frame:
        assert frame.meta == {"photos": 1}
        assert "paths" not in frame.tensors
    stream = stream_of(subscriber, "cameras photos")
    assert stream.version == 0, "no viewer has asked for them"
    tolerance = int(kind == "float16")
    for camera in (2, 0):
        stream.request_photos(camera)
        shows_camera = partial(has_meta, name="camera", value=camera)
        with next_frame(subscriber, stream, fits=shows_camera) as frame:
            assert frame.meta == {"camera": camera, "side": 0, "photos": 1}
            photo = host_array(frame.tensors["photos"])[0].astype(int)
            assert np.abs(photo - photos[camera].numpy()).max() <= tolerance


def test_small_photographs_are_means_over_areas(subscriber: Subscriber) -> None:
    photos = torch.zeros(3, 32, 48, 3, dtype=torch.uint8)
    photos[0, :16] = 200  # the upper half
    photos[2, :, 24:] = torch.tensor([10, 20, 30], dtype=torch.uint8)
    splatview.publish_cameras(
        *poses(4), 48, 32, [photos[0], None, photos[2].numpy(), torch.full((8, 8), 0.5)]
    )
    stream = stream_of(subscriber, "cameras photos")
    stream.request_photos(1)
    with next_frame(subscriber, stream) as frame:
        assert frame.tensors["photos"].shape == (1, 0, 0, 3)
    stream.request_photos(0, 2)
    is_small = partial(has_meta, name="side", value=2)
    with next_frame(subscriber, stream, fits=is_small) as frame:
        small = host_array(frame.tensors["photos"])
        assert small.shape == (4, 2, 2, 3)
        assert not small[1].any()
        assert np.abs(small[3].astype(int) - 128).max() <= 1
        assert small[0, :, :, 0].tolist() == [[200, 200], [0, 0]]
        assert small[2, 0].tolist() == [[0, 0, 0], [10, 20, 30]]


def test_photograph_paths_are_published_and_not_read(subscriber: Subscriber) -> None:
    splatview.publish_cameras(
        *poses(3), 40, 30, ["nowhere/Ä.jpg", None, Path("/b.png")]
    )
    with next_frame(subscriber, stream_of(subscriber, "cameras")) as frame:
        texts = bytes(host_array(frame.tensors["paths"])).decode().split("\0")
        assert texts == [f"{os.getcwd()}/nowhere/Ä.jpg", "", "/b.png", ""]
        assert frame.meta == {"photos": 0}
    assert [s.name for s in subscriber.streams] == ["cameras"]


def test_fault_is_logged_once_whatever_numbers_it_names(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPLATVIEW_STRICT", raising=False)
    with caplog.at_level(logging.WARNING, "splatview"):
        for size in (4096, 8192, 12288):
            publishing.fault(
                OSError(f"a disk of this test has no room for {size} bytes")
            )
    assert len(caplog.records) == 1
    assert "4096 bytes" in caplog.text
