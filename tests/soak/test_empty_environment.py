"""The distributions: built, checked as an index does, installed into an environment with nothing else, and used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.programs import ROOT
from support.wait import PATIENCE

import splatview

pytestmark = pytest.mark.exhaustive
SCRIPT = """
import subprocess, sys, torch, splatview
picture = torch.zeros(40, 60, 3, dtype=torch.uint8)
picture[:, :30, 0] = 200
picture[:, 30:, 2] = 100
splatview.publish(picture, "halves")
turned = torch.zeros(4)
turned[0] = 1
splatview.publish({"means": torch.zeros(1, 3), "quats": turned[None], "scales": torch.full((1, 3), 4.0),
                   "opacities": torch.full((1,), 12.0), "colors": torch.tensor([[0.0, 1.0, 0.0]])}, "scene")
for stream in ("halves", "scene"):
    subprocess.run([sys.argv[1], "shot", f"{stream}.png", "--stream", stream], check=True)
print(splatview.__version__, splatview.__file__)
"""


def _run(*command: str | Path, cwd: Path) -> str:
    """Run a program without this process's Python settings and return its output; a failure shows all of it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=kept, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=5 * PATIENCE)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel and a source distribution, built as for an upload: hatchling comes from the index."""
    folder = tmp_path_factory.mktemp("dist")
    asked = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder / "index",
                            "hatchling"], capture_output=True, text=True)
    if asked.returncode:
        pytest.skip(f"no package index: {asked.stderr.strip().splitlines()[-1]}")
    pytest.importorskip("build", reason="needs build: pip install 'splatview[test]'")
    _run(sys.executable, "-m", "build", "--outdir", folder / "built", ROOT, cwd=folder)
    return folder / "built"


def test_distributions_pass_the_index_checks(dist: Path) -> None:
    """Twine renders the README and checks the metadata."""
    pytest.importorskip("twine", reason="needs twine: pip install 'splatview[test]'")
    version = splatview.__version__
    files = sorted(dist.iterdir())
    assert [f.name for f in files] == [f"splatview-{version}-py3-none-any.whl", f"splatview-{version}.tar.gz"]
    assert _run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=dist).count("PASSED") == 2


def test_distributions_work_in_an_empty_environment(dist: Path, tmp_path: Path) -> None:
    """The wheel brings all it needs; the source distribution then replaces it and needs nothing more. Only modules that
    are imported are compiled: all of them take as long as everything else together."""
    environment = tmp_path / "environment"
    _run(sys.executable, "-m", "venv", environment, cwd=tmp_path)
    pip = (environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    for pattern in ("*.whl", "*.tar.gz"):
        (file,) = dist.glob(pattern)
        installed = _run(*pip, "install", "--no-compile", "-c", ROOT / ".ci" / "constraints.txt", file, cwd=tmp_path)
        if pattern == "*.tar.gz":
            assert f"Successfully installed splatview-{splatview.__version__}\n" in installed
        _run(*pip, "check", cwd=tmp_path)
        _shots(environment, tmp_path / pattern.replace("*.", ""))
        _run(*pip, "uninstall", "--yes", "splatview", cwd=tmp_path)


def _shots(environment: Path, folder: Path) -> None:
    """Publish from a script in `folder`, and check the pictures that `splatview shot` writes there."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    program = environment / "bin" / "splatview"
    said = _run(environment / "bin" / "python", "train.py", program, cwd=folder).splitlines()[-1]
    version, file = said.split(maxsplit=1)
    assert version == splatview.__version__ and Path(file).is_relative_to(environment)
    assert _run(program, "--version", cwd=folder) == f"splatview {version}\n"
    with Image.open(folder / "halves.png") as image:
        picture = image.convert("RGB")
    assert picture.size == (60, 40)
    assert (picture.getpixel((5, 20)), picture.getpixel((55, 20))) == ((200, 0, 0), (0, 0, 100))
    with Image.open(folder / "scene.png") as image:
        scene = np.asarray(image.convert("RGB"))
    red, green, blue = scene[scene.shape[0] // 2, scene.shape[1] // 2].tolist()
    assert green > 200 and max(red, blue) < 20, (red, green, blue)
    assert scene[..., 1].mean() > 20 + scene[..., [0, 2]].mean()
