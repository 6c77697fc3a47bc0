"""Checkpoints of all trainers are read, and nothing in them is run.

Most tests read them in this process, which saves the start of a program with torch.
"""

from __future__ import annotations

import os
import tarfile
import zipfile
from argparse import Namespace
from collections import OrderedDict, defaultdict

import numpy as np
import pytest
import torch
from support import scene_files as w

from splatview_viewer.core.errors import FileError
from splatview_viewer.formats import checkpoint, open_file, sandbox, silent
from splatview_viewer.formats.checkpoint import read_tensors

FIELDS = ("means", "quats", "scales", "opacities", "sh0", "shN")
T = w.truth(20, degree=1)


@pytest.fixture(autouse=True)
def no_huge_allocation():
    with w.little_memory():
        yield


def read(path):
    """Read one file in this process."""
    return read_tensors([path], silent)


@pytest.mark.programs
def test_ranks_of_the_latest_step_are_joined_into_one_scene(tmp_path, monkeypatch):
    """The files may be overwritten once they are read."""
    t = w.truth(90)
    (tmp_path / "ckpts").mkdir()
    for step, scene in ((6999, w.truth(50, seed=4)), (29999, t)):
        for rank in range(3):
            share = w.Truth(*(getattr(scene, f)[rank::3] for f in FIELDS))
            path = tmp_path / "ckpts" / f"ckpt_{step}_rank{rank}.pt"
            w.write_checkpoint(path, share, "gsplat")
    s = open_file(tmp_path / "ckpts")
    first = tmp_path / "ckpts" / "ckpt_29999_rank0.pt"
    os.truncate(first, 0)
    np.testing.assert_array_equal(
        s.means, np.concatenate([t.means[r::3] for r in range(3)])
    )
    assert s.notes == ("3 ranks of ckpt_29999 put together",)
    first.unlink()
    monkeypatch.setattr(checkpoint, "run", w.read_in_process)
    s = open_file(tmp_path / "ckpts" / "ckpt_29999_rank1.pt")
    assert len(s) == 60
    assert "rank 0 of ckpt_29999 is missing" in s.notes[1]


def test_splatam_checkpoints_are_read(tmp_path):
    t = w.truth(10, degree=0)
    names = {
        "means3D": t.means,
        "unnorm_rotations": t.quats,
        "log_scales": t.scales[:, :1],
        "logit_opacities": t.opacities[:, None],
        "rgb_colors": w.SH_C0 * t.sh0 + 0.5,
        "cam_trans": t.means[:1],
    }
    torch.save(
        {"params": {k: torch.from_numpy(v) for k, v in names.items()}},
        tmp_path / "params.pt",
    )
    t.scales[:] = t.scales[:, :1]
    w.assert_same(read(tmp_path / "params.pt"), t, w.EXACT)


def test_harmless_objects_beside_the_tensors_are_skipped(tmp_path):
    """Checkpoints hold numbers of schedules, arguments and paths of a run as objects."""
    t = w.truth(7)
    objects = {
        "lr": [np.float64(0.1), np.float32(2), np.int64(3), np.bool_(True)],
        "box": np.eye(4),
        "path": tmp_path,
        "args": Namespace(sh_degree=3),
        "seen": defaultdict(list, {"a": [1]}),
        "device": torch.device("cuda:1"),
        "order": OrderedDict(a=np.arange(3)),
        "shape": torch.Size([2]),
        "names": {"x"},
        "type": torch.float16,
    }
    splats = {name: torch.from_numpy(getattr(t, name)) for name in FIELDS}
    torch.save({**objects, "splats": splats, "after": objects}, tmp_path / "a.pt")
    w.assert_same(read(tmp_path / "a.pt"), t, w.EXACT)


class _Evil:
    def __reduce__(self):
        return os.mkdir, ("evil-was-here",)


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        (
            2,
            r"refuses the Python object '(posix|os)\.mkdir' in it: .* Save a state "
            r"dict, .*, or export a \.ply\.",
        ),
        (
            4,
            r"refuses it: damaged, or not only tensors .* Save a state dict, .*, or "
            r"export a \.ply\.",
        ),
    ],
)
def test_pickles_with_code_are_refused_and_not_run(
    protocol, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    torch.save({"splats": [_Evil()]}, "a.pt", pickle_protocol=protocol)
    with pytest.raises(FileError, match=message) as caught:
        read(tmp_path / "a.pt")
    assert not (tmp_path / "evil-was-here").exists()
    assert "weights_only=False" not in str(caught.value)
    assert "\033" not in str(caught.value)


@pytest.mark.programs
def test_checkpoint_of_endless_values_raises_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "CPU_BASE", 0)
    w.write_zip(tmp_path / "a.pt", {"a/data.pkl": w.ENDLESS, "a/version": b"3\n"})
    with pytest.raises(
        FileError, match=r"a\.pt: reading it took more of the processor's time"
    ):
        open_file(tmp_path / "a.pt")


def test_values_that_refer_to_each_other_endlessly_are_refused(tmp_path):
    tower: list = []
    for _ in range(60):
        tower = [tower, tower]
    circle: dict = {}
    circle["state"] = [circle]
    shared = {f"key {i}": i for i in range(1100)}
    for value, message in (
        (tower, "named again and again"),
        ({str(i): shared for i in range(1100)}, "named again and again"),
        (circle, "holds itself"),
    ):
        torch.save({"splats": value}, tmp_path / "a.pt")
        with pytest.raises(FileError, match=message):
            read(tmp_path / "a.pt")


@pytest.mark.parametrize(
    "name",
    [
        "builtins eval",
        "torch load",
        "torch.hub load",
        "numpy load",
        "builtins getattr",
        "_pickle loads",
        "torch.serialization load",
        "torch.hub load it",
        "torch._utils _import_dotted_name",
    ],
)
def test_names_that_lead_to_code_are_refused(name, tmp_path):
    """Calls are refused openly and within the stand-ins for harmless objects.

    They are written as protocol 2 does.
    """
    module, _, attribute = name.partition(" ")
    called = (
        b"c" + module.encode() + b"\n" + attribute.encode() + b"\n(X\x01\x00\x00\x00xtR"
    )
    for text in (
        called,
        b"cnumpy\ndtype\n(" + called + b"tR",
        b"cnumpy\ndtype\n)R" + called + b"b",
    ):
        w.write_zip(
            tmp_path / "a.pt",
            {"a/data.pkl": b"\x80\x02" + text + b".", "a/version": b"3\n"},
        )
        with pytest.raises(
            FileError, match=f"refuses the Python object '[a-z_.]*{attribute}' in it"
        ):
            read(tmp_path / "a.pt")


def test_archives_with_programs_never_reach_torch(tmp_path, monkeypatch):
    """TorchScript and tar files got past weights_only before torch 2.6
    (CVE-2025-32434).
    """
    monkeypatch.setattr(torch, "load", None)
    for name in ("a/constants.pkl", "b/c/constants.pkl"):
        w.write_zip(
            tmp_path / "a.pt",
            {"a/data.pkl": b"\x80\x02}.", name: b"\x80\x02).", "a/code/a.py": b""},
        )
        with pytest.raises(FileError, match="TorchScript archive, which is a program"):
            read(tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as compressed:
        compressed.writestr("x/data.pkl", bytes(1 << 20))
    with pytest.raises(FileError, match=r"'x/data\.pkl' is compressed"):
        read(tmp_path / "a.pt")
    with tarfile.open(tmp_path / "a.pt", "w") as archive:
        archive.addfile(tarfile.TarInfo("storages"))
    with pytest.raises(FileError, match="not a zip file of torch"):
        read(tmp_path / "a.pt")
    torch.save(
        {"means": torch.zeros(3)},
        tmp_path / "a.pt",
        _use_new_zipfile_serialization=False,
    )
    with pytest.raises(
        FileError, match=r"not a zip file of torch\.save .*torch older than 1\.6"
    ):
        read(tmp_path / "a.pt")


def test_negated_views_are_read(tmp_path):
    """Imaginary parts of a conjugate are negated views.

    torch saves their memory as it is, with a mark that they are negated.
    """
    splats = {k: torch.from_numpy(v) for k, v in vars(T).items()}
    negated = torch.complex(torch.zeros(20, 3), splats["means"]).conj().imag
    torch.save({"splats": splats | {"means": negated}}, tmp_path / "a.pt")
    np.testing.assert_array_equal(read(tmp_path / "a.pt").means, -T.means)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_checkpoints_of_other_values_are_refused(tmp_path):
    splats = {k: torch.from_numpy(v) for k, v in vars(T).items()}
    cases = [
        (
            {"epoch": 3, "model": {"conv.weight": torch.zeros(3)}},
            r"no Gaussians in it.*epoch, model, conv.weight",
        ),
        (torch.zeros(3), "it holds a tensor, not a mapping"),
        (
            {"splats": splats | {"quats": torch.zeros(20, 3)}},
            r"quats has shape \(20, 3\); \(20, 4\) is needed",
        ),
        (
            {"splats": splats | {"means": torch.zeros(20, 3, dtype=torch.complex64)}},
            "'means' is torch.complex64",
        ),
        (
            {"splats": splats | {"means": torch.zeros(20, 3).to_sparse()}},
            "torch.sparse_coo; a dense tensor",
        ),
        (
            {
                "splats": splats
                | {"means": torch.nested.nested_tensor([torch.zeros(3)] * 20)}
            },
            "'means' is a nested tensor; a dense tensor",
        ),
        (
            {"splats": splats | {"means": torch.zeros(20, 3, device="meta")}},
            "'means' is torch.float32.* dense tensor",
        ),
        (
            {"splats": splats | {"shN": torch.zeros(20, 23, 3)}},
            r"shN has shape \(20, 23, 3\); expected",
        ),
        (
            {"splats": splats | {"means": torch.zeros(1).expand(10**9, 3)}},
            "claims more than the 4 bytes",
        ),
    ]
    for value, message in cases:
        torch.save(value, tmp_path / "a.pt")
        with pytest.raises(FileError, match=message):
            read(tmp_path / "a.pt")
