"""The distributions: built, checked as an index does, installed into an environment with nothing else, and used. They
take one name, `splatview`: a script keeps its own `ipc.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from support.programs import ROOT

import splatview

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.programs import Programs

SCRIPT = """
import subprocess, sys, torch, splatview
from splatview.demo.datasets import PHOTOS
assert {"34.webp", "points.ply", "transforms.json"} <= {path.name for path in PHOTOS.iterdir()}
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
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A source distribution and a wheel built in the checkout, and a wheel built from the source distribution."""
    sdist = pytest.importorskip("hatchling.builders.sdist", reason="needs hatchling: pip install 'splatview[test]'")
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="needs hatchling: pip install 'splatview[test]'")
    folder = tmp_path_factory.mktemp("dist")
    (source,) = sdist.SdistBuilder(str(ROOT)).build(directory=str(folder))
    with tarfile.open(source) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4, and demanded by 3.12
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    made = {"sdist": Path(source)}
    for name, root in (("wheel", ROOT), ("wheel of the sdist", unpacked)):
        (built,) = wheel.WheelBuilder(str(root)).build(directory=str(folder / name), versions=["standard"])
        made[name] = Path(built)
    return made


def test_distributions_pass_the_index_checks(dist: Mapping[str, Path]) -> None:
    """Twine renders the README and checks the metadata."""
    pytest.importorskip("twine", reason="needs twine: pip install 'splatview[test]'")
    files = dist["sdist"], dist["wheel"]
    assert [f.name for f in files] == [f"splatview-{splatview.__version__}{end}" for end in
                                       (".tar.gz", "-py3-none-any.whl")]
    assert _run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=files[0].parent).count("PASSED") == 2


@pytest.fixture(scope="module")
def environment(dist: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but the wheel and what it brings. Only modules that are imported are compiled: all of
    them take as long as everything else together."""
    folder = tmp_path_factory.mktemp("environment")
    asked = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder / "index",
                            "hatchling"], capture_output=True, text=True)
    if asked.returncode:
        pytest.skip(f"no package index: {asked.stderr.strip().splitlines()[-1]}")
    _run(sys.executable, "-m", "venv", folder, cwd=folder)
    _pip(folder, "install", "--no-compile", "-c", ROOT / ".ci" / "constraints.txt", dist["wheel"])
    return folder


def _pip(environment: Path, *args: str | Path) -> str:
    return _run(environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check", *args, cwd=environment)


def test_wheel_works_in_an_empty_environment(environment: Path, tmp_path: Path) -> None:
    _pip(environment, "check")
    _shots(environment, tmp_path / "project")


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


# -- names ------------------------------------------------------------------------------------------------------------

OWN = ("ipc", "viewer_app", "tests", "benchmarks")
KEEPS = """
import os, subprocess, sys, torch
import ipc, viewer_app, tests, benchmarks
import splatview
from splatview_ipc.control import limits
assert [m.MINE for m in (ipc, viewer_app, tests, benchmarks)] == ["ipc", "viewer_app", "tests", "benchmarks"]
assert os.path.dirname(splatview.__file__) == sys.argv[1], splatview.__file__
splatview.publish(torch.full((20, 30, 3), 200, dtype=torch.uint8), "image")
done = subprocess.run([sys.executable, "-m", "splatview", "shot", "out.png"], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
assert splatview.grab("image", timeout=60).float().mean() == 200
assert [sys.modules[name].MINE for name in ("ipc", "viewer_app", "tests", "benchmarks")] == [
    "ipc", "viewer_app", "tests", "benchmarks"]
"""


def _sources() -> set[str]:
    """Return the files that an installation has to hold, relative to its root."""
    held = set()
    for folder, installed in (("splatview", "splatview"), ("ipc/splatview_ipc", "splatview_ipc"),
                              ("viewer_app/splatview_viewer", "splatview_viewer")):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                held.add(f"{installed}/{path.relative_to(ROOT / folder)}")
    return held


@pytest.mark.parametrize("name", ["wheel", "wheel of the sdist"])
def test_wheel_holds_every_file_below_splatview(dist: Mapping[str, Path], name: str) -> None:
    assert dist[name].name == f"splatview-{splatview.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(dist[name]) as archive:
        names = [n for n in archive.namelist() if ".dist-info/" not in n]
    assert len(names) == len(set(names))
    assert set(names) == _sources()
    assert "splatview/py.typed" in names


@pytest.mark.parametrize("how", ["wheel", "editable"])
def test_script_keeps_its_own_modules(dist: Mapping[str, Path], how: str, tmp_path: Path,
                                      programs: Programs) -> None:
    """A script with modules of the names that splatview's folders have publishes, grabs and is shown."""
    env, root = {}, ROOT
    if how in dist:
        root = tmp_path / "site"
        with zipfile.ZipFile(dist[how]) as archive:
            archive.extractall(root)
    if how != "editable":
        env["PYTHONPATH"] = str(root)
    folder = programs.folder = tmp_path / "project"
    folder.mkdir()
    for name in OWN[:1]:
        (folder / f"{name}.py").write_text(f"MINE = {name!r}\n")
    for name in OWN[1:]:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"MINE = {name!r}\n")
    (folder / "train.py").write_text(KEEPS)
    program = programs.python("train.py", str(root / "splatview"), **env)
    _, said = program.communicate()
    assert program.returncode == 0, said
    with Image.open(folder / "out.png") as picture:
        assert picture.convert("RGB").getpixel((picture.width // 2, picture.height // 2)) == (200, 200, 200)
