"""Lists what each function refuses, and one phrase of what it says: the one table of the
wording of these mistakes.
"""

from __future__ import annotations

import math
import sys
import warnings
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.frames import poses

import splatview
from splatview.api import session as publishing
from splatview_ipc.kinds.cameras import CAMERA_LIMITS

VIEWS, KS = poses(3)
EYES = torch.eye(4).repeat(3, 1, 1)
BOXES = np.zeros((2, 4))
RUNS = {"size": [4, 4], "counts": [16]}
# `__init__` would import torch's compiler, in each process that collects the tests.
ADAM = object.__new__(torch.optim.Adam)


def gaussians(**change: Any) -> dict[str, Any]:
    """Return five Gaussians in gsplat's form, some parts of which are replaced."""
    shapes = {
        "means": (3,),
        "quats": (4,),
        "scales": (3,),
        "opacities": (),
        "sh0": (1, 3),
        "shN": (15, 3),
    }
    return {name: torch.zeros(5, *shape) for name, shape in shapes.items()} | change


def publish(value: Any, name: Any = None, **options: Any) -> None:
    splatview.publish(value, name, **options)


def cameras(**change: Any) -> None:
    splatview.publish_cameras(
        **{"viewmats": VIEWS, "Ks": KS, "width": 40, "height": 30} | change
    )


def annotate(**arguments: Any) -> None:
    splatview.annotate(arguments.pop("name", "camera"), **arguments)


def log(name: str, value: Any, step: Any = 0) -> None:
    splatview.log(step, **{name: value})


def set_image(**arguments: Any) -> None:
    splatview.Window(64, 64).set_image(**arguments)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # nested tensors are a prototype
    NESTED = torch.nested.nested_tensor([torch.zeros(3, 3), torch.zeros(2, 3)])
MISTAKES: dict[Any, list[tuple[dict[str, Any], str]]] = {
    publish: [
        ({"value": torch.zeros(5, 5, 2)}, "(5, 5, 2)"),
        ({"value": torch.zeros(4, 4, dtype=torch.int64)}, "int64"),
        ({"value": torch.zeros(4, 4, device="meta")}, "cpu, cuda"),
        ({"value": torch.zeros(4, 4).to_sparse()}, "to_dense"),
        ({"value": NESTED}, "unbind()"),
        ({"value": gaussians(means=NESTED)}, "means is a nested tensor"),
        ({"value": torch.zeros(4, 4, dtype=torch.complex64)}, "complex64"),
        ({"value": torch.nn.UninitializedParameter()}, "first input"),
        ({"value": None}, "publish None"),
        ({"value": 7}, "an int"),
        ({"value": 0.5}, "splatview.log"),
        ({"value": "scene.ply"}, "splatview serve FILE"),
        ({"value": [1, 2, 3]}, "a list of 3 that begins with an int"),
        ({"value": [torch.zeros(4, 4)] * 2}, "publish each under a name of its own"),
        ({"value": ADAM}, "an Adam"),
        ({"value": {"left": torch.zeros(4, 4)}}, 'publish(value["left"]'),
        ({"value": torch.tensor(0.5)}, "splatview.log"),
        ({"value": torch.zeros(7)}, ".reshape(H, W)"),
        (
            {"value": torch.zeros(4, 4, 3), "kind": torch.zeros(90, 90)},
            "kind is tensor",
        ),
        ({"value": torch.zeros(4, 4), "layout": torch.zeros(9)}, "layout is tensor"),
        ({"value": torch.zeros(4, 4), "meta": torch.zeros(9)}, "meta is a Tensor"),
        ({"value": np.zeros((4, 4), object)}, "object_"),
        ({"value": Image.new("P", (4, 4))}, "convert"),
        ({"value": {"means": torch.zeros(5, 3)}}, "no quats"),
        ({"value": gaussians(means=torch.zeros(5, 4))}, "means has shape (5, 4)"),
        ({"value": gaussians(shN=torch.zeros(5, 4, 3))}, "0|3|8|15"),
        (
            {"value": gaussians(means=torch.zeros(5, 3, dtype=torch.int32))},
            "means is int32",
        ),
        ({"value": gaussians(), "kind": "image"}, "dict"),
        ({"value": gaussians(), "activated": "yes"}, "'yes'"),
        ({"value": gaussians(), "sh_degree": 5}, "sh_degree is 5"),
        ({"value": torch.zeros(4, 4), "kind": "picture"}, "'picture'"),
        ({"value": torch.zeros(4, 4), "copy": False}, "copy=False"),
        ({"value": torch.zeros(4, 4, 3), "layout": "XY"}, "'XY'"),
        ({"value": torch.zeros(4, 4), "meta": {"step": 2**64}}, "64 bits"),
        ({"value": torch.zeros(4, 4), "meta": {"step": -(2**63)}}, "64 bits"),
        ({"value": torch.zeros(4, 4), "meta": {"note": "x" * 2000}}, "1024"),
        ({"value": torch.zeros(4, 4), "meta": ["step"]}, "meta is a list"),
        ({"value": torch.zeros(4, 4), "meta": {"a b": 1}}, "'a b'"),
        ({"value": torch.zeros(4, 4), "meta": {"layout": "BGR"}}, "layout="),
        ({"value": torch.zeros(4, 4), "meta": {"color": "sh"}}, "'color'"),
        ({"value": gaussians(), "antialiased": "yes"}, "antialiased is 'yes'"),
        ({"value": gaussians(), "activated": np.zeros(2)}, "a pair of them"),
        (
            {
                "value": torch.zeros(4, 4),
                "meta": {f"t{i}": "\u6d41" * 1024 for i in range(24)},
            },
            "73728 bytes",
        ),
        (
            {"value": torch.zeros(4, 4), "meta": {f"t{i}": i for i in range(25)}},
            "at most 24 entries",
        ),
        ({"value": torch.zeros(4, 4), "name": "a//b"}, "has nothing between"),
        ({"value": torch.zeros(4, 4), "name": "/a"}, "such as 'train/loss'"),
        ({"value": torch.zeros(4, 4), "name": "../a"}, "has '..' between"),
        ({"value": torch.zeros(4, 4), "copy": torch.zeros(2)}, "copy is"),
        ({"value": torch.zeros(4, 4), "live": torch.zeros(2)}, "live is"),
        ({"value": gaussians(), "shard": 2}, "shard"),
        ({"value": gaussians(), "shard": (True, 2)}, "shard"),
        ({"value": gaussians(), "shard": (2, 2)}, "shard"),
        ({"value": torch.zeros(4, 4), "shard": (0, 2)}, "leave shard out"),
        ({"value": torch.zeros(4, 4), "name": "x" * 10_000}, "10000 characters"),
    ],
    cameras: [
        ({"viewmats": torch.eye(3)}, "viewmats is float32 of shape (1, 3, 3)"),
        ({"viewmats": torch.full((3, 4, 4), torch.nan)}, "viewmats[0] is not finite"),
        ({"viewmats": EYES * torch.tensor([1.0, 1, -1, 1])}, "no rotation"),
        ({"viewmats": VIEWS.transpose(1, 2)}, "transposed"),
        ({"viewmats": None}, "Ks without viewmats"),
        ({"Ks": KS[:2]}, "Ks is float32 of shape (2, 3, 3)"),
        ({"width": CAMERA_LIMITS["side"] + 1}, "expected 1 to"),
        ({"images": ["a\0b", None, None]}, "control characters"),
        ({"images": [torch.zeros(30, 40, dtype=torch.uint16)] * 3}, "/ 65535"),
        ({"current": 3}, "current is 3"),
        ({"layout": "XY"}, "'XY'"),
    ],
    splatview.publish_memory: [
        ({"hz": 0}, "hz is 0"),
        ({"max_entries": 1.5}, "max_entries is a float"),
        ({"device": "tpu"}, "device is 'tpu'"),
    ],
    annotate: [
        ({"boxes": np.zeros((2, 5))}, "boxes[:, :4]"),
        ({"boxes": NESTED}, "boxes is a nested tensor"),
        ({"boxes": np.zeros((10_001, 4))}, "10001 boxes"),
        ({"boxes": BOXES, "labels": ["a"]}, "labels are 1, not 2"),
        ({"boxes": BOXES, "labels": ["a", "b\0"]}, "no zero character"),
        (
            {"boxes": BOXES, "labels": [1, 2], "names": {0: "a", 10_000: "b"}},
            "names has the classes 0 to 10000",
        ),
        ({"points": np.zeros((1001, 100, 2))}, "100100 points"),
        (
            {"points": np.zeros((2, 3, 2)), "skeleton": [(0, 3)]},
            "skeleton names point 3",
        ),
        ({"size": (0, 5)}, "width of size is 0"),
        ({"version": 2**63}, "expected 0 to"),
        ({"run": "../x"}, "not a run's id"),
        ({"color": "red"}, "'color'"),
        ({"lables": ["a"]}, "did you mean 'labels'"),
        (
            {"boxes": BOXES, "masks": np.zeros((5, 4, 4))},
            "masks is uint8 of shape (5, 4, 4)",
        ),
        (
            {"boxes": BOXES, "masks": torch.zeros(1).expand(2, 20_000, 20_000)},
            "800000000 bytes of masks",
        ),
        ({"boxes": BOXES, "masks": [[10, 6]] * 2}, "size=(width, height)"),
        ({"boxes": BOXES[:1], "masks": RUNS | {"counts": [10, 5]}}, "sum up to 15"),
        ({"boxes": BOXES[:1], "masks": RUNS | {"counts": "PPPPPPPP0"}}, "pycocotools"),
    ],
    log: [
        ({"name": "a", "value": 1.0, "step": "one"}, "step is a str"),
        ({"name": "a", "value": "much"}, "a is a str"),
        ({"name": "a", "value": torch.zeros(2)}, "shape (2,)"),
        ({"name": "a", "value": 10**400}, "too large"),
        ({"name": "a\nb", "value": 1.0}, "printable"),
        ({"name": "a/", "value": 1.0}, "log: the name 'a/' has nothing between"),
        ({"name": "x" * 101, "value": 1.0}, "101 characters; expected 1 to 100"),
        ({"name": "a/./b", "value": 1.0}, "has '.' between"),
        ({"name": "stpe", "value": 3, "step": None}, "did you mean step"),
    ],
    splatview.wait_while_paused: [
        ({"timeout": "soon"}, "timeout is a str"),
        ({"timeout": math.nan}, "timeout is nan"),
    ],
    splatview.frames: [
        ({"name": "a//b"}, "'a//b'"),
        ({"name": "it", "run": ""}, "run is ''"),
        ({"name": "it", "run": torch.zeros(90, 90)}, "run is tensor"),
        ({"name": "it", "timeout": True}, "timeout is a bool"),
        ({"name": "it", "in_place": "yes"}, "in_place is 'yes'"),
    ],
    splatview.grab: [
        ({"name": "a//b"}, "has nothing between its slashes"),
        ({"size": (100, 50.5)}, "height is a float"),
        ({"size": torch.zeros(90, 90)}, "size tensor"),
        ({"background": (0, 0)}, "background (0, 0) is not"),
        ({"timeout": math.inf}, "timeout is inf"),
        ({"camera": "no such file"}, "neither a JSON object nor a readable file"),
        ({"camera": {"viewmat": torch.zeros(1000, 1000)}}, "takes one matrix"),
    ],
    splatview.show: [
        ({"width": '100%"><script>'}, "width"),
        ({"height": "1px; position: fixed"}, "height"),
        ({"run": ""}, "splatview status"),
        ({"port": -1}, "port is -1"),
        ({"timeout": math.nan}, "timeout is nan"),
    ],
    splatview.Window: [
        ({"width": "500", "height": 400}, "width is a str"),
        ({"width": 0, "height": 400}, "expected 16 to 16384"),
        ({"width": 500, "height": 400, "title": "a\nb"}, "printable"),
    ],
    set_image: [
        ({"image": 3, "height": 3, "data_ptr": 1.0}, "data_ptr is a float"),
        ({"image": 0, "height": 3, "data_ptr": 64}, "width is 0"),
        ({"image": 3, "height": 3, "data_ptr": 64, "channels": 2}, "channels is 2"),
        ({"image": 3, "height": 3}, "width, height and data_ptr"),
    ],
}


@pytest.mark.parametrize("function", MISTAKES)
def test_mistakes_are_named_and_start_nothing(function: Any) -> None:
    for arguments, phrase in MISTAKES[function]:
        with pytest.raises((TypeError, ValueError)) as caught:
            function(**arguments)
        assert phrase in str(caught.value)
        assert len(str(caught.value)) < 500
    if function is not log:
        assert publishing.started_publisher() is None


def test_mistakes_after_a_good_call_are_named() -> None:
    splatview.publish(torch.zeros(4, 4))
    splatview.publish(gaussians())
    with pytest.raises(ValueError, match=r"\(4,\)"):
        publish(torch.zeros(4), "image")
    with pytest.raises(ValueError, match="not gaussians"):
        publish(gaussians(), "image")
    with pytest.raises(ValueError, match="shows image"):
        cameras(name="image")
    with pytest.raises(ValueError, match="only over pictures"):
        annotate(name="gaussians", boxes=BOXES)
    with pytest.raises(ValueError, match="shows image"):
        splatview.publish_memory("image")
    with pytest.raises(ValueError, match=r"means has shape \(5, 4\)"):
        splatview.publish(gaussians(means=torch.zeros(5, 4)))
    for value in (NESTED, gaussians(means=NESTED)):
        with pytest.raises(TypeError, match=r"nested tensor.*unbind"):
            splatview.publish(value)


MISSPELT = {
    "copy": {"cpoy": False, "copyy": True, "cop": None, "Copy": np.True_},
    "live": {"lvie": True, "liv": True, "LIVE": True},
    "kind": {"knid": "image", "kindd": "image"},
    "name": {"nmae": "camera", "nam": "camera"},
    "shard": {"shrad": (0, 2), "shards": [0, 2]},
    "layout": {"layot": "BGR", "lay_out": "HWC"},
    "activated": {"activate": True, "actviated": False},
    "sh_degree": {"shdegree": 2, "sh_degre": 2},
    "antialiased": {"anti_aliased": True, "antialiasing": True},
    "meta": {"metas": {"step": 1}, "metadata": {"step": 1}, "note": {"a": 1}},
}
METADATA = [
    "step",
    "loss",
    "note",
    "epoch",
    "camera",
    "time",
    "lr",
    "psnr",
    "frames",
    "size",
    "shape",
    "points",
    "count",
    "title",
    "caption",
    "label",
    "labels",
    "index",
    "views",
    "view_id",
    "image",
    "stage",
    "mode",
    "level",
    "lives",
    "line",
    "like",
    "alive",
    "copies",
    "degree",
    "degrees",
    "active",
    "seed",
    "rank",
    "share",
    "start",
    "sharp",
    "card",
    "layer",
    "weight",
    "speed",
    "scale",
    "opacity",
    "exposure",
    "gain",
    "find",
    "same",
    "date",
    "run",
    "steps",
]


@pytest.mark.parametrize("option", MISSPELT)
def test_misspelt_option_is_named_and_never_metadata(option: str) -> None:
    for misspelt, value in MISSPELT[option].items():
        with pytest.raises(TypeError, match=f"{misspelt!r}: did you mean {option}="):
            splatview.publish(torch.zeros(4, 4), **{misspelt: value})
    assert publishing.started_publisher() is None


def test_loose_metadata_is_deprecated_once_for_each_line() -> None:
    picture = torch.zeros(4, 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            splatview.publish(picture, "it", step=step, loss=0.5)
            splatview.publish(picture, "it", note="other line")
            splatview.publish(picture, "it", meta={"step": step})
    messages = [str(warning.message) for warning in caught]
    assert [warning.filename for warning in caught] == [__file__] * 2
    assert 'meta={"step": ...}' in messages[0]
    assert 'meta={"note": ...}' in messages[1]
    with pytest.warns(DeprecationWarning, match="meta="):
        splatview.publish(picture, "it", step=3, meta={"loss": 0.5})


def test_warning_turned_into_an_error_is_raised_at_the_call() -> None:
    with pytest.raises(DeprecationWarning, match="meta="):
        splatview.publish(torch.zeros(4, 4), step=1)


@pytest.mark.filterwarnings("ignore:publish")
def test_metadata_of_any_other_name_is_accepted() -> None:
    for name in METADATA:
        for value in (3, 0.5, (1.0, 2.0), "text"):
            publish(torch.zeros(4, 4), **{name: value})
            publish(torch.zeros(4, 4), meta={name: value})
    splatview.publish(torch.zeros(4, 4), alive=True, active=False, line=True, like=True)
    splatview.log(steps=200, reward=1.0)
    splatview.log(3, stepp=1.0)


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("lightning", "lightning"),
        ("transformers", "transformers"),
        ("nerfstudio", "nerfstudio"),
    ],
)
def test_integration_names_the_package_that_is_absent(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        package,
        "pytorch_lightning",
        "lightning.pytorch",
        "nerfstudio.engine.callbacks",
    ):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"splatview.integrations.{module}", raising=False)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        import_module(f"splatview.integrations.{module}")
