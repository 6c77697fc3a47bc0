"""Packages of the extras: what is said where one is missing, and that nothing else needs them."""

from __future__ import annotations

import ast
import pickle
import re
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from support import messages
from support.memory_data import block, event, segment, snapshot
from support.programs import ROOT
from support.scene_files import ply_columns, truth, write_ply

from splatview.camera.detectors.base import DetectorError
from splatview.camera.detectors.choice import DetectorSettings, open_detector
from splatview.camera.sources import HopelessError, SourceSettings, source_for
from splatview.commands import doctor
from splatview.ipc import extras
from splatview.viewer_app.errors import ViewerError
from splatview.viewer_app.probe import probe_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ALL = ("numba", "duckdb", "av", "cv2", "onnxruntime")
FOLDERS = ("splatview", "ipc", "viewer_app")
MEMORY = "splatview: memory snapshots need numba and duckdb: pip install 'splatview[memory]'"
MESSAGES = {
    "memory small.pickle": MEMORY,
    "memory small.pickle --png a.png": MEMORY,
    "memory small.pickle --sql 'SELECT 1'": MEMORY.replace("memory snapshots need numba and",
                                                         "SQL over memory snapshots needs"),
    "shot a.png small.pickle": MEMORY,
    "video a.mp4 scene.ply":
        "splatview: a.mp4: an mp4, unlike a folder of PNGs, needs PyAV: pip install 'splatview[video]'",
    "camera scene.ply":
        "splatview camera: scene.ply: reading a video needs PyAV or OpenCV: pip install 'splatview[camera]'",
    "camera scene.ply --reader pyav":
        "splatview camera: scene.ply: reading a video needs PyAV: pip install 'splatview[video]'",
    "camera 'a ! b'":
        "splatview camera: a ! b: reading a GStreamer pipeline needs OpenCV: pip install 'splatview[camera]'",
    "camera test --detect people --no-viewer":
        "splatview camera: --detect people needs OpenCV: pip install 'splatview[camera]'",
    "camera test --detect network.onnx --no-viewer":
        "splatview camera: --detect network.onnx needs onnxruntime and OpenCV: pip install 'splatview[camera]'",
}


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Hide modules from this process."""
    def hide(*modules: str) -> None:
        for module in modules:
            monkeypatch.setitem(sys.modules, module, None)

    return hide


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    events = [event("alloc", 0x1000, 700), event("alloc", 0x2000, 300)]
    made = snapshot(events, [segment(0x1000, [block(0x1000, 1024, requested=700)])])
    (tmp_path / "small.pickle").write_bytes(pickle.dumps(made))
    (tmp_path / "network.onnx").write_bytes(b"")
    write_ply(tmp_path / "scene.ply", ply_columns(truth(20)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("command", MESSAGES)
def test_commands_name_the_extra_and_end(command: str, files: Path, absent: Callable[..., None]) -> None:
    before = {path.name for path in files.iterdir()}
    absent(*ALL)
    assert messages.run(messages.words(command)) == (2, MESSAGES[command])
    assert {path.name for path in files.iterdir()} - before <= {"cache"}


def test_films_as_pictures_need_none_of_them(files: Path, absent: Callable[..., None]) -> None:
    absent(*ALL)
    command = "video film scene.ply --size 32x32 --fps 2 --seconds 1"
    assert messages.run(messages.words(command))[0] == 0
    assert sorted(path.name for path in (files / "film").iterdir()) == ["000000.png", "000001.png"]


def test_a_package_that_cannot_be_imported_is_told_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path
                                                                   ) -> None:
    """numba refuses versions of numpy."""
    (tmp_path / "av.py").write_text("raise ImportError('PyAV needs another numpy')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "av", raising=False)
    with pytest.raises(ViewerError) as e, extras.needed("films need", "av", error=ViewerError):
        import av  # noqa: F401
    assert str(e.value) == ("films need PyAV, which cannot be imported (PyAV needs another numpy): "
                            "pip install 'splatview[video]'")


def test_sources_and_detectors(tmp_path: Path, absent: Callable[..., None]) -> None:
    """In the processes that capture and detect, which a command starts."""
    (tmp_path / "a.mp4").write_bytes(b"")
    (tmp_path / "a.onnx").write_bytes(b"")
    made = [source_for(SourceSettings(source=str(tmp_path / "a.mp4"), reader=reader)) for reader in ("pyav", "opencv")]
    absent(*ALL)
    for source, words in zip(made, (r"needs PyAV: .*\[video\]", r"needs OpenCV: .*\[camera\]"), strict=True):
        with pytest.raises(HopelessError, match=words):
            source.open()
    for detect, words in (("people", "detecting people needs OpenCV"), (str(tmp_path / "a.onnx"), "onnxruntime and")):
        with pytest.raises(DetectorError, match=words):
            open_detector(DetectorSettings(detect=detect))


def test_doctor_takes_a_missing_extra_for_no_fault(absent: Callable[..., None], monkeypatch: pytest.MonkeyPatch,
                                                   tmp_path: Path) -> None:
    def probe(what: str) -> tuple[bool, str, str]:  # in this process, from which modules are hidden
        assert what == "memory"
        found: dict[str, Any] = probe_memory()
        return bool(found["ok"]), str(found["detail"]), str(found["mend"])

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(doctor, "_probe", probe)
    absent(*ALL)
    for extra in ("memory", "video", "camera"):
        found = getattr(doctor, f"check_{extra}")()
        assert (found.name, found.state, found.mend) == (extra, "absent", f"pip install 'splatview[{extra}]'")


def test_extras_are_those_of_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {"cv2": "opencv-python-headless"}
    given = {extra: {line.split(">=")[0] for line in project["optional-dependencies"][extra]}
             for extra in (*extras.EXTRAS, "camera-gpu", "all")}
    assert given.pop("all") == {"splatview[memory,video,camera]"}
    assert given.pop("camera-gpu") == {"splatview[video]", names["cv2"], "onnxruntime-gpu"}
    for extra, modules in extras.EXTRAS.items():
        assert given[extra] - {"splatview[video]"} == {names.get(module, module) for module in modules}
    core = {line.split(">=")[0] for line in project["dependencies"]}
    assert not core & {names.get(module, module) for modules in extras.EXTRAS.values() for module in modules}


PLACES = {
    "numba": {"viewer_app/memory/_numba.py"},
    "duckdb": {"viewer_app/memory/query.py", "viewer_app/memory/_query_check.py"},
    "av": {"viewer_app/paths/writers.py", "splatview/camera/pyav.py", "viewer_app/probe.py"},
    "cv2": {f"splatview/camera/{name}.py" for name in (
        "opencv", "detectors/feed", "detectors/people", "detectors/placement")},
    "onnxruntime": {"splatview/camera/detectors/providers.py"},
}
"""Modules that import a package of an extra: the ones that report it missing, and those that are reached through them
alone."""


def test_only_what_reports_a_missing_package_imports_it() -> None:
    found: dict[str, set[str]] = {module: set() for module in PLACES}
    imports = re.compile(rf"^\s*(from|import)\b.*\b({'|'.join(PLACES)})\b", re.MULTILINE)
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        if not imports.search(path.read_text()):
            continue  # parsing takes longer
        tree = ast.parse(path.read_text())
        typed = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.If)
                 and ast.unparse(node.test) == "TYPE_CHECKING" for inner in ast.walk(node)}
        for node in ast.walk(tree):
            names = ([a.name for a in node.names] if isinstance(node, ast.Import) else
                     [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else [])
            for top in {name.partition(".")[0] for name in names} & found.keys():
                if id(node) not in typed:
                    found[top].add(str(path.relative_to(ROOT)))
    assert found == PLACES
