"""The names that splatview takes, however it is installed: `splatview` alone. A script keeps its own `ipc.py`."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from support.programs import ROOT
from support.wait import PATIENCE

import splatview

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.programs import Programs

pytestmark = pytest.mark.exhaustive  # packaging: wheels are built
OWN = ("ipc", "viewer_app", "tests", "benchmarks")
SCRIPT = """
import os, subprocess, sys, torch
import ipc, viewer_app, tests, benchmarks
import splatview
from splatview.ipc import limits
assert [m.MINE for m in (ipc, viewer_app, tests, benchmarks)] == ["ipc", "viewer_app", "tests", "benchmarks"]
assert os.path.dirname(splatview.__file__) == sys.argv[1], splatview.__file__
splatview.publish(torch.full((20, 30, 3), 200, dtype=torch.uint8), "image")
done = subprocess.run([sys.executable, "-m", "splatview", "shot", "out.png"], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
assert splatview.grab("image", timeout=240).float().mean() == 200
assert [sys.modules[name].MINE for name in ("ipc", "viewer_app", "tests", "benchmarks")] == [
    "ipc", "viewer_app", "tests", "benchmarks"]
"""


def _sources() -> set[str]:
    """Return the files that an installation has to hold, relative to its root."""
    held = set()
    for folder, installed in (("splatview", "splatview"), ("ipc", "splatview/ipc"),
                              ("viewer_app", "splatview/viewer_app")):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                held.add(f"{installed}/{path.relative_to(ROOT / folder)}")
    return held


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A wheel built in the checkout, and one built from the source distribution."""
    sdist = pytest.importorskip("hatchling.builders.sdist", reason="needs hatchling: pip install 'splatview[test]'")
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="needs hatchling: pip install 'splatview[test]'")
    folder = tmp_path_factory.mktemp("dist")
    (source,) = sdist.SdistBuilder(str(ROOT)).build(directory=str(folder))
    with tarfile.open(source) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4, and demanded by 3.12
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    made = {}
    for name, root in (("wheel", ROOT), ("wheel of the sdist", unpacked)):
        (built,) = wheel.WheelBuilder(str(root)).build(directory=str(folder / name), versions=["standard"])
        made[name] = Path(built)
    return made


@pytest.mark.parametrize("name", ["wheel", "wheel of the sdist"])
def test_wheel_holds_every_file_below_splatview(wheels: Mapping[str, Path], name: str) -> None:
    with zipfile.ZipFile(wheels[name]) as archive:
        names = [n for n in archive.namelist() if ".dist-info/" not in n]
    assert len(names) == len(set(names))
    assert set(names) == _sources()
    assert "splatview/py.typed" in names  # covers the subpackages ipc and viewer_app too


@pytest.mark.parametrize("name", ["wheel", "wheel of the sdist"])
def test_wheel_has_the_version_of_the_code(wheels: Mapping[str, Path], name: str) -> None:
    assert wheels[name].name == f"splatview-{splatview.__version__}-py3-none-any.whl"


@pytest.mark.parametrize("how", ["wheel", "checkout", "wheel of the sdist", "editable"])
def test_script_keeps_its_own_modules(wheels: Mapping[str, Path], how: str, tmp_path: Path,
                                      programs: Programs) -> None:
    """A script with modules of the names that splatview's folders have publishes, grabs and is shown."""
    env, root = {}, ROOT
    if how in wheels:
        root = tmp_path / "site"
        with zipfile.ZipFile(wheels[how]) as archive:
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
    (folder / "train.py").write_text(SCRIPT)
    program = programs.python("train.py", str(root / "splatview"), **env)
    _, said = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, said
    with Image.open(folder / "out.png") as picture:
        assert picture.convert("RGB").getpixel((picture.width // 2, picture.height // 2)) == (200, 200, 200)
