"""The distributions: built, checked as an index does, and used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from PIL import Image
from support.programs import ROOT, Programs

import splatview

SCRIPT = """
import os, subprocess, sys, torch
import ipc, viewer_app, tests, benchmarks
import splatview
from splatview_ipc.control import limits
from splatview.demo.datasets import PHOTOS
assert {"34.webp", "points.ply", "transforms.json"} <= {path.name for path in PHOTOS.iterdir()}
assert os.path.dirname(splatview.__file__) == sys.argv[1], splatview.__file__
splatview.publish(torch.full((20, 30, 3), 200, dtype=torch.uint8), "image")
done = subprocess.run([sys.executable, "-m", "splatview", "shot", "out.png"], capture_output=True, text=True)
assert done.returncode == 0, done.stderr
assert splatview.grab("image", timeout=60).float().mean() == 200
assert [sys.modules[name].MINE for name in ("ipc", "viewer_app", "tests", "benchmarks")] == [
    "ipc", "viewer_app", "tests", "benchmarks"]
"""
"""In a project with modules of the names that splatview's folders have. Argument: the
folder of splatview."""


def _run(*command: str | Path, cwd: Path) -> str:
    """Run a program without this process's Python settings, and return its output.

    A failure shows all of the output.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [str(c) for c in command],
        cwd=cwd,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Build a source distribution and a wheel, and a wheel from the former."""
    sdist = pytest.importorskip(
        "hatchling.builders.sdist",
        reason="needs hatchling: pip install -e '.[test]'",
    )
    wheel = pytest.importorskip(
        "hatchling.builders.wheel",
        reason="needs hatchling: pip install -e '.[test]'",
    )
    folder = tmp_path_factory.mktemp("dist")
    (source,) = sdist.SdistBuilder(str(ROOT)).build(directory=str(folder))
    with tarfile.open(source) as archive:
        # Python has the filter from 3.11.4 on, and demands it from 3.12 on.
        if hasattr(tarfile, "data_filter"):
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    paths = {"sdist": Path(source)}
    for name, root in (("wheel", ROOT), ("wheel of the sdist", unpacked)):
        (built,) = wheel.WheelBuilder(str(root)).build(
            directory=str(folder / name), versions=["standard"]
        )
        paths[name] = Path(built)
    return paths


def test_source_distribution_builds_the_pages(dist: Mapping[str, Path]) -> None:
    with tarfile.open(dist["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.*")}
    pages = {name for name in pages if "__pycache__" not in name}
    pictures = {
        str(path.relative_to(ROOT)) for path in (ROOT / ".github/pictures").iterdir()
    }
    assert {*pages, *pictures, "tools/check_links.py"} <= names


def test_distributions_pass_the_index_checks(dist: Mapping[str, Path]) -> None:
    """Twine renders the README and checks the metadata."""
    pytest.importorskip("twine", reason="needs twine: pip install -e '.[test]'")
    files = dist["sdist"], dist["wheel"]
    release = f"splatview-{splatview.__version__}"
    assert files[0].name == f"{release}.tar.gz"
    assert files[1].name == f"{release}-py3-none-any.whl"
    command = [sys.executable, "-m", "twine", "check", "--strict"]
    output = _run(*command, *files, cwd=files[0].parent)
    assert output.count("PASSED") == 2


@pytest.mark.parametrize("installation", ["wheel", "editable"])
def test_script_keeps_its_own_modules(
    dist: Mapping[str, Path], installation: str, tmp_path: Path, programs: Programs
) -> None:
    """A script whose modules are named as splatview's folders publishes and grabs."""
    env = {}
    root = ROOT
    if installation == "wheel":
        root = tmp_path / "site"
        env["PYTHONPATH"] = str(root)
        with zipfile.ZipFile(dist[installation]) as archive:
            archive.extractall(root)
    programs.folder = tmp_path / "project"
    programs.folder.mkdir()
    (programs.folder / "train.py").write_text(SCRIPT)
    for name in (
        "ipc.py",
        "viewer_app/__init__.py",
        "tests/__init__.py",
        "benchmarks/__init__.py",
    ):
        path = programs.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            f"MINE = {name.removesuffix('.py').removesuffix('/__init__')!r}\n"
        )
    program = programs.python("train.py", root / "splatview", **env)
    _, error_output = program.communicate()
    assert program.returncode == 0, error_output
    with Image.open(programs.folder / "out.png") as picture:
        center = picture.width // 2, picture.height // 2
        assert picture.convert("RGB").getpixel(center) == (200, 200, 200)


@pytest.mark.parametrize("name", ["wheel", "wheel of the sdist"])
def test_wheel_holds_every_file_below_splatview(
    dist: Mapping[str, Path], name: str
) -> None:
    assert dist[name].name == f"splatview-{splatview.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(dist[name]) as archive:
        names = [n for n in archive.namelist() if ".dist-info/" not in n]
    assert len(names) == len(set(names))
    expected = set()
    for folder, installed in (
        ("splatview", "splatview"),
        ("ipc/splatview_ipc", "splatview_ipc"),
        ("viewer_app/splatview_viewer", "splatview_viewer"),
    ):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                expected.add(f"{installed}/{path.relative_to(ROOT / folder)}")
    assert set(names) == expected
    for package in ("splatview", "splatview_ipc", "splatview_viewer"):
        assert f"{package}/py.typed" in names


def test_page_of_the_index_links_to_the_files_of_its_version(
    dist: Mapping[str, Path],
) -> None:
    """The README's relative links and pictures are whole addresses in the wheel."""
    with zipfile.ZipFile(dist["wheel"]) as archive:
        (path,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        text = archive.read(path).decode()
    addresses = re.findall(r"\]\(([^)#]+)", text)
    addresses += re.findall(r'(?:src|srcset|href)="([^"#]+)"', text)
    prefixes = ("https://", "http://", "mailto:")
    assert [a for a in addresses if not a.startswith(prefixes)] == []
    pictures = [a for a in addresses if a.endswith((".webp", ".png", ".svg"))]
    assert pictures
    release = f"/v{splatview.__version__}/"
    for picture in pictures:
        _, is_own, name = picture.partition(release)
        assert not is_own or (ROOT / name).is_file(), picture
