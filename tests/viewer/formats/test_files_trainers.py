"""Files of trainers with scales, filters and names of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import scene_files as w

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import checkpoint, open_file, silent
from splatview_viewer.formats.checkpoint import read_checkpoint, read_tensors
from splatview_viewer.formats.common import Fields
from splatview_viewer.formats.mip_filter import apply_filter
from splatview_viewer.formats.sandbox import File

N = 20
T = w.truth(N, degree=1)


def tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))


def read(path: Path, value: Any) -> Fields:
    """Save a value and read it in this process."""
    torch.save(value, path / "a.pt")
    return read_tensors([path / "a.pt"], silent)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def named(prefix: str, **replaced: np.ndarray) -> dict[str, torch.Tensor]:
    """Return a state dict with gsplat's names."""
    arrays = {**vars(T), **replaced}
    return {f"{prefix}{name}": tensor(a) for name, a in arrays.items()}


# -- two scales, and filters -----------------------------------------------------------


def test_ply_with_two_scales_holds_flat_gaussians(tmp_path: Path) -> None:
    columns = w.ply_columns(T)
    del columns["scale_2"]
    scene = open_file(w.write_ply(tmp_path / "a.ply", columns))
    np.testing.assert_array_equal(scene.scales[:, :2], T.scales[:, :2])
    assert np.isneginf(scene.scales[:, 2].numpy()).all()
    columns["scale_3"] = columns.pop("scale_1")
    with pytest.raises(FileError, match="scale_1, scale_2 missing"):
        open_file(w.write_ply(tmp_path / "b.ply", columns))


@pytest.mark.parametrize(
    ("name", "scales"), [("filter_3D", 3), ("filter_3d", 2), ("filter_3D", 1)]
)
def test_filter_of_a_ply_changes_scales_and_opacities(
    name: str, scales: int, tmp_path: Path
) -> None:
    sizes = np.linspace(0, 0.3, N).astype(np.float32)
    columns = w.ply_columns(T)
    for i in range(scales, 3):
        del columns[f"scale_{i}"]
    scene = open_file(w.write_ply(tmp_path / "a.ply", {**columns, name: sizes}))
    # A single scale counts for all three axes.
    drawn = T.scales[:, :scales] if scales > 1 else T.scales[:, [0, 0, 0]]
    unfiltered = np.exp(drawn.astype(np.float64))
    filtered = np.hypot(unfiltered, sizes[:, None])
    scales_read = np.exp(scene.scales.numpy())
    np.testing.assert_allclose(scales_read[:, : filtered.shape[1]], filtered, rtol=1e-5)
    assert not scales_read[:, filtered.shape[1] :].any()
    np.testing.assert_allclose(
        sigmoid(scene.opacities.numpy()),
        sigmoid(T.opacities) * (unfiltered / filtered).prod(1),
        rtol=1e-5,
    )


def test_filter_keeps_values_that_exp_and_sigmoid_would_lose() -> None:
    scales = np.array([[-60.0, -60, -60], [3, 3, 3], [-np.inf, 0, 0], [0, 0, 0]])
    logits = np.array([2.0, 40.0, 0.0, -200.0])
    new_scales, new_logits = apply_filter(scales, logits, np.array([0, 1e-9, 0, 1]))
    np.testing.assert_allclose(new_scales[:3], scales[:3])
    np.testing.assert_allclose(new_logits[:3], logits[:3], rtol=1e-6)
    np.testing.assert_allclose(new_scales[3], np.log(2) / 2)
    np.testing.assert_allclose(new_logits[3], -200 - 1.5 * np.log(2))
    assert apply_filter(np.zeros((0, 3)), np.zeros(0), np.zeros(0))[0].shape == (0, 3)


def test_checkpoints_with_filters_and_two_scales_are_read(tmp_path: Path) -> None:
    sizes = np.full((N, 1), 0.1, np.float32)
    value = {"splats": named("", filter_3D=sizes, scales=T.scales[:, :2])}
    got = read(tmp_path, value)
    expected, opacities = apply_filter(T.scales[:, :2], T.opacities, sizes[:, 0])
    np.testing.assert_array_equal(got.scales[:, :2], expected)
    np.testing.assert_array_equal(got.opacities, opacities)
    assert np.isneginf(got.scales[:, 2]).all()
    with pytest.raises(FileError, match=r"a filter_3D of \(19, 1\) do not fit"):
        read(tmp_path, {"splats": named("", filter_3D=sizes[1:])})


def test_arrays_of_wrong_shapes_are_refused(tmp_path: Path) -> None:
    sizes = np.full(N, 0.1, np.float32)
    for replaced, message in (
        ({"means": T.means[0, 0]}, r"means has shape \(1,\); \(N, 3\) is needed"),
        ({"opacities": T.quats, "filter_3D": sizes}, "do not fit together"),
        ({"scales": T.quats, "filter_3D": sizes}, "do not fit together"),
        ({"quats": T.means}, r"quats has shape \(20, 3\)"),
    ):
        arrays = {name: np.array(a) for name, a in replaced.items()}
        with pytest.raises(FileError, match=message):
            read(tmp_path, {"splats": named("", **arrays)})
    integers = np.ones((N, 2), np.int64)
    got = read(tmp_path, {"splats": named("", scales=integers)})
    assert got.scales[:, :2].max() == 1
    assert np.isneginf(got.scales[:, 2]).all()


# -- names -----------------------------------------------------------------------------


def lightning() -> dict[str, Any]:
    prefix = "gaussian_model.gaussians."
    names = {"means": "means", "shs_rest": "shN", "scales": "scales"}
    names |= {"rotations": "quats", "opacities": "opacities"}
    return {
        "epoch": 3,
        "state_dict": {
            "gaussian_model._active_sh_degree": torch.tensor(1, dtype=torch.uint8),
            **{prefix + k: tensor(getattr(T, v)) for k, v in names.items()},
            prefix + "shs_dc": tensor(T.sh0[:, None]),
        },
    }


def grut() -> dict[str, Any]:
    return {
        "positions": tensor(T.means),
        "rotation": tensor(T.quats),
        "scale": tensor(T.scales),
        "density": tensor(T.opacities[:, None]),
        "features_albedo": tensor(T.sh0),
        "features_specular": tensor(T.shN.reshape(N, 9)),
        "n_active_features": 1,
        "background": {},
        "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}},
    }


def fvdb() -> dict[str, Any]:
    splats = named("", sh0=T.sh0[:, None])
    splats["log_scales"] = splats.pop("scales")
    splats["logit_opacities"] = splats.pop("opacities")
    return {"version": "1", "step": 3, "splats": splats, "config": {"sh_degree": 1}}


def hustvl() -> tuple[Any, ...]:
    capture = (
        1,
        tensor(T.means),
        {"deformation_net.grid.aabb": torch.zeros(2, 3)},
        torch.ones(N, dtype=torch.bool),
        tensor(T.sh0[:, None]),
        tensor(T.shN),
        tensor(T.scales),
        tensor(T.quats),
        tensor(T.opacities[:, None]),
        torch.zeros(N),
        torch.zeros(N, 1),
        {"state": {}},
        5.0,
    )
    return capture, 14_000


@pytest.mark.parametrize(
    "value",
    [
        lightning(),
        grut(),
        fvdb(),
        hustvl(),
        {"model": named("module.splats.")},
        named("module._model.gauss_params."),
        {"a": {"b": {"splats": named("")}}},
        (named(""), 30_000),
    ],
    ids=["lightning", "3dgrut", "fvdb", "4dgs", "ddp", "pipeline", "deep", "pair"],
)
def test_checkpoints_of_other_trainers_are_read(value: Any, tmp_path: Path) -> None:
    got = read(tmp_path, value)
    w.assert_same(got, T, w.EXACT)
    assert got.scene_facts.sh_degree == 1


@pytest.mark.parametrize("degree", [0, 1])
def test_checkpoint_keeps_the_degree_in_use(degree: int, tmp_path: Path) -> None:
    value = lightning()
    key = "gaussian_model._active_sh_degree"
    value["state_dict"][key] = torch.tensor(degree, dtype=torch.uint8)
    assert read(tmp_path, value).scene_facts.sh_degree == degree
    fields = read(tmp_path, {**grut(), "n_active_features": degree})
    assert fields.scene_facts.sh_degree == degree


def foreign(name: str) -> Any:
    """Return a class that no module has by the time its object is read."""
    module, _, last = name.rpartition(".")

    def init(self: Any) -> None:
        self.values = {"lr": 0.1}

    return type(last, (), {"__module__": module, "__init__": init})


def test_settings_of_trainers_beside_the_tensors_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    from types import ModuleType

    kinds = [foreign(f"someones.settings.Kind{i}") for i in range(5)]
    module = ModuleType("someones.settings")
    for kind in kinds:
        setattr(module, kind.__name__, kind)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "someones", ModuleType("someones"))
        patched.setitem(sys.modules, "someones.settings", module)
        value = {"config": [kind() for kind in kinds], "splats": named("")}
        torch.save(value, tmp_path / "a.pt")
    w.assert_same(read_tensors([tmp_path / "a.pt"], silent), T, w.EXACT)


# -- splatfacto ------------------------------------------------------------------------


def test_splatfacto_without_harmonics_is_read_as_logits(tmp_path: Path) -> None:
    rgb = np.clip(w.SH_C0 * T.sh0 + 0.5, 0.01, 0.99)
    arrays = {
        "means": T.means,
        "scales": T.scales,
        "quats": T.quats,
        "opacities": T.opacities[:, None],
        "features_dc": np.log(rgb / (1 - rgb)),
        "features_rest": np.zeros((N, 0, 3), np.float32),
    }
    pipeline = {f"_model.gauss_params.{k}": tensor(v) for k, v in arrays.items()}
    got = read(tmp_path, {"step": 10, "pipeline": pipeline})
    np.testing.assert_allclose(w.SH_C0 * got.sh0 + 0.5, rgb, atol=1e-6)
    # inria's model of degree 0 has coefficients.
    inria = {**arrays, "features_dc": T.sh0[:, None]}
    got = read(tmp_path, {k: tensor(v) for k, v in inria.items()})
    np.testing.assert_array_equal(got.sh0, T.sh0)


def run_here(
    function: Callable[..., Any], paths: Sequence[Path], *_: Any, **options: Any
) -> Any:
    """Stand for `sandbox.run`: the process that it starts imports torch first."""
    files = [File(path, path.name) for path in paths]
    return function(files, options["progress"])


@pytest.mark.parametrize(
    ("config", "text", "antialiased"),
    [
        (
            "config.yml",
            "!!python/object:x.C\npipeline:\n    rasterize_mode: antialiased\n",
            True,
        ),
        ("cfg.yml", "antialiased: true\nsh_degree: 3\n", True),
        ("config.yml", "    rasterize_mode: classic\n# antialiased: true\n", False),
    ],
)
def test_settings_beside_a_checkpoint_decide_antialiasing(
    config: str,
    text: str,
    antialiased: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpoint, "run", run_here)
    folder = tmp_path / "nerfstudio_models"
    folder.mkdir()
    torch.save(named(""), folder / "step-000029999.ckpt")
    (tmp_path / config).write_text(text)
    fields = read_checkpoint(folder / "step-000029999.ckpt", silent)
    assert fields.scene_facts.antialiased is antialiased


# -- SplaTAM's arrays ------------------------------------------------------------------


def splatam() -> dict[str, np.ndarray]:
    return {
        "means3D": T.means,
        "unnorm_rotations": T.quats,
        "log_scales": T.scales[:, :1],
        "logit_opacities": T.opacities[:, None],
        "rgb_colors": w.SH_C0 * T.sh0 + 0.5,
        "cam_trans": np.zeros((1, 3, 9), np.float32),
        "org_width": np.array(640),
        "keyframe_time_indices": np.array([1, 2]),
    }


@pytest.mark.parametrize("color", ["shs", "colors", "colors of degree 0"])
def test_arguments_of_a_rasteriser_are_activated(color: str, tmp_path: Path) -> None:
    if color == "colors of degree 0":
        colors = np.clip(0.5 + w.SH_C0 * T.sh0, 0, 1)
    else:
        colors = np.concatenate([T.sh0[:, None], T.shN], 1)
    value = {
        "means": T.means,
        "quats": T.quats,
        "scales": np.exp(T.scales),
        "opacities": sigmoid(T.opacities).astype(np.float32),
        color.partition(" ")[0]: colors,
    }
    fields = read(tmp_path, {key: tensor(a) for key, a in value.items()})
    np.testing.assert_allclose(fields.scales, T.scales, rtol=1e-5)
    np.testing.assert_allclose(fields.opacities, T.opacities, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(fields.sh0, T.sh0, atol=1e-5)
    # Logarithms and logits under the same names stay what they are.
    raw = {**value, "scales": T.scales, "opacities": T.opacities}
    fields = read(tmp_path, {key: tensor(a) for key, a in raw.items()})
    np.testing.assert_array_equal(fields.scales, T.scales)
    np.testing.assert_array_equal(fields.opacities, T.opacities)


@pytest.mark.parametrize("degree", [1, torch.tensor(1), np.int64(1)])
def test_captures_with_a_tensor_as_degree_are_read(degree: Any, tmp_path: Path) -> None:
    arrays = (T.means, T.sh0[:, None], T.shN, T.scales, T.quats, T.opacities[:, None])
    capture = (degree, *map(tensor, arrays), torch.zeros(N), {}, 1.0)
    fields = read(tmp_path, (capture, 7))
    # It is sent to another process.
    assert type(fields.scene_facts.sh_degree) is int
    np.testing.assert_array_equal(fields.means, T.means)
    np.testing.assert_array_equal(fields.quats, T.quats)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_of_splatam_are_read(save: Any, tmp_path: Path) -> None:
    wide = splatam()
    wide["unnorm_rotations"] = np.asfortranarray(T.quats.astype(np.float64))
    save(tmp_path / "params.npz", **wide)
    scene = open_file(tmp_path / "params.npz")
    np.testing.assert_array_equal(scene.means, T.means)
    np.testing.assert_array_equal(scene.quats, T.quats)
    np.testing.assert_array_equal(scene.scales, T.scales[:, [0, 0, 0]])
    np.testing.assert_allclose(scene.sh0, T.sh0, atol=1e-6)
    assert scene.sh_degree == 0


def test_damaged_arrays_are_refused(tmp_path: Path) -> None:
    def npy(shape: str, descr: str = "<f4", body: bytes = bytes(40)) -> bytes:
        text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n"
        return (
            b"\x93NUMPY\x01\x00"
            + len(text).to_bytes(2, "little")
            + text.encode()
            + body
        )

    for entry, message in (
        (npy("(99999999999999, 3)"), "takes 1,199,999,999,999,988 bytes"),
        (npy("(1, 3)", "|O"), "holds object, not numbers"),
        (npy("(3,)")[:20], "is damaged"),
        (b"", "is damaged"),
        (npy("(3, 3)"), "no Gaussians in it"),
    ):
        w.write_zip(tmp_path / "a.npz", {"means3D.npy": entry, "x.npy": b""})
        with pytest.raises(FileError, match=message):
            open_file(tmp_path / "a.npz")
