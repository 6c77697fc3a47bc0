"""Packages of the extras: what is said where one is missing, and that nothing else needs them.

Programs run in an interpreter in which the packages cannot be imported.
"""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.memory_data import block as a_block
from support.memory_data import event, segment, snapshot
from support.programs import ROOT
from support.repetitions import exhaustive
from support.scene_files import ply_columns, truth, write_ply
from support.snapshot_panes_rig import rig_fixture  # noqa: F401
from support.wait import PATIENCE
from test_structure import SOURCES

from splatview.camera.detectors.base import DetectorError
from splatview.camera.detectors.choice import DetectorSettings, open_detector
from splatview.camera.sources import HopelessError, SourceSettings, source_for
from splatview.commands import doctor
from splatview.ipc import extras
from splatview.viewer_app.errors import FileError, ViewerError
from splatview.viewer_app.memory.loading import load_snapshot
from splatview.viewer_app.memory.query import Database
from splatview.viewer_app.memory.timeline import Bands, _kernels
from splatview.viewer_app.paths.writers import make_writer
from splatview.viewer_app.probe import probe_memory
from splatview.viewer_app.views._snapshot.panes.sql import SqlPane
from splatview.viewer_app.views.snapshot import SnapshotView

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs
    from support.snapshot_panes_rig import Rig

ALL = ("numba", "duckdb", "av", "cv2", "onnxruntime")
MEMORY = "memory snapshots need numba and duckdb: pip install 'splatview[memory]'"
SQL = "SQL over memory snapshots needs duckdb: pip install 'splatview[memory]'"
_BLOCK = "import sys\nfor name in {names!r}:\n    sys.modules[name] = None  # it is not found, and an import fails\n"


@pytest.fixture
def without(tmp_path: Path, programs: Programs) -> Callable[..., Any]:
    """Start splatview in an interpreter without these modules."""
    def start(modules: tuple[str, ...], *args: str) -> Any:
        (tmp_path / "blocking").mkdir()
        (tmp_path / "blocking" / "sitecustomize.py").write_text(_BLOCK.format(names=modules))
        path = filter(None, [str(tmp_path / "blocking"), str(ROOT), os.environ.get("PYTHONPATH")])
        return programs.splatview(*args, PYTHONPATH=os.pathsep.join(path), XDG_CACHE_HOME=str(tmp_path / "cache"))

    return start


@pytest.fixture
def file(tmp_path: Path) -> Path:
    events = [event("alloc", 0x1000, 700), event("alloc", 0x2000, 300)]
    path = tmp_path / "small.pickle"
    path.write_bytes(pickle.dumps(snapshot(events, [segment(0x1000, [a_block(0x1000, 1024, requested=700)])])))
    return path


@pytest.mark.parametrize(("args", "modules", "said"), [
    exhaustive(["memory", "small.pickle"], ALL, f"splatview: {MEMORY}"),
    (["memory", "small.pickle"], ("numba",), f"splatview: {MEMORY.replace(' and duckdb', '')}"),
    exhaustive(["memory", "small.pickle", "--png", "a.png"], ALL, f"splatview: {MEMORY}"),
    (["memory", "small.pickle", "--sql", "SELECT 1"], ALL, f"splatview: {SQL}"),
    exhaustive(["shot", "a.png", "small.pickle"], ALL, f"splatview: {MEMORY}"),
    exhaustive(["video", "a.mp4", "scene.ply"], ALL,
     "splatview: a.mp4: an mp4, unlike a folder of PNGs, needs PyAV: pip install 'splatview[video]'"),
    (["camera", "scene.ply"], ALL,
     "splatview camera: scene.ply: reading a video needs PyAV or OpenCV: pip install 'splatview[camera]'"),
    exhaustive(["camera", "scene.ply", "--reader", "pyav"], ALL,
     "splatview camera: scene.ply: reading a video needs PyAV: pip install 'splatview[video]'"),
    exhaustive(["camera", "a ! b"], ALL,
     "splatview camera: a ! b: reading a GStreamer pipeline needs OpenCV: pip install 'splatview[camera]'"),
    exhaustive(["camera", "test", "--detect", "people", "--no-viewer"], ALL,
     "splatview camera: --detect people needs OpenCV: pip install 'splatview[camera]'"),
    exhaustive(["camera", "test", "--detect", "network.onnx", "--no-viewer"], ALL,
     "splatview camera: --detect network.onnx needs onnxruntime and OpenCV: pip install 'splatview[camera]'"),
], ids=lambda value: " ".join(value) if isinstance(value, (list, tuple)) else "")
def test_commands_name_the_extra_and_end(args: list[str], modules: tuple[str, ...], said: str, without: Any, file: Path,
                                         tmp_path: Path) -> None:
    write_ply(tmp_path / "scene.ply", ply_columns(truth(20)))
    (tmp_path / "network.onnx").write_bytes(b"")
    before = {path.name for path in tmp_path.iterdir()}
    process = without(modules, *args)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err) == (2, "", f"{said}\n")
    assert {path.name for path in tmp_path.iterdir()} - before <= {"blocking", "cache"}


@pytest.mark.exhaustive
@pytest.mark.parametrize(("args", "modules", "expected"), [
    (["memory", "small.pickle", "--sql", "SELECT count(*) AS n FROM allocations", "--csv"],
     ("numba", "av", "cv2", "onnxruntime"), "n\n2\n"),
    (["memory", "small.pickle", "--png", "a.png", "--size", "300x200"],
     ("duckdb", "av", "cv2", "onnxruntime"), "a.png: 300 x 200\n"),
    (["video", "film", "scene.ply", "--size", "32x32", "--fps", "2", "--seconds", "1"], ALL,
     "film: 2 pictures\n"),
], ids=["SQL without numba", "timeline without duckdb", "PNGs without PyAV"])
def test_what_needs_none_of_them_works(args: list[str], modules: tuple[str, ...], expected: str, without: Any,
                                       file: Path, tmp_path: Path) -> None:
    write_ply(tmp_path / "scene.ply", ply_columns(truth(20)))
    process = without(modules, *args)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert out == expected
    if "--png" in args:
        assert len(np.unique(np.asarray(Image.open(tmp_path / "a.png")).reshape(-1, 3), axis=0)) > 20
    if args[0] == "video":
        assert sorted(path.name for path in (tmp_path / "film").iterdir()) == ["000000.png", "000001.png"]


def test_a_viewer_shows_the_line_in_place_and_goes_on(without: Any, file: Path, tmp_path: Path,
                                                      wait_until: Callable[..., Any]) -> None:
    viewer = without(ALL, "serve", str(file), "--offscreen", "--out", "v.png", "--size", "600x400")
    for line in viewer.stderr:
        if MEMORY in line:
            break
    else:
        raise AssertionError("the viewer ended")
    wait_until((tmp_path / "v.png").exists)
    assert viewer.poll() is None
    viewer.terminate()
    _, said = viewer.communicate(timeout=PATIENCE)
    assert viewer.returncode == 0 and "Traceback" not in said
    assert (np.asarray(Image.open(tmp_path / "v.png"))[100:, 250:] > 120).any()  # words, where the picture would be


@pytest.mark.exhaustive
def test_the_live_memory_of_a_run_needs_none_of_them(programs: Programs, without: Any, tmp_path: Path,
                                                     wait_until: Callable[..., Any]) -> None:
    programs.code("import splatview, time\nwhile True: splatview.publish_memory(hz=50); time.sleep(0.01)",
                   XDG_CACHE_HOME=str(tmp_path))
    viewer = without(ALL, "serve", "--offscreen", "--out", "v.png", "--size", "600x400")
    wait_until(lambda: (tmp_path / "v.png").exists() and len(np.unique(
        np.asarray(Image.open(tmp_path / "v.png"))[:, 250:].reshape(-1, 3), axis=0)) > 20, what="curves")
    viewer.terminate()
    _, said = viewer.communicate(timeout=PATIENCE)
    assert viewer.returncode == 0 and "cannot be shown" not in said and "Traceback" not in said


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Hide modules from this process."""
    def hide(*modules: str) -> None:
        for module in modules:
            monkeypatch.setitem(sys.modules, module, None)

    return hide


def test_the_sql_pane_says_the_line(rig: Rig, file: Path, absent: Callable[..., None]) -> None:
    value = load_snapshot(file, cache=False)
    absent("duckdb")
    pane = rig.show(SqlPane(), value)
    assert rig.content.fault(("database",)) == SQL
    said = rig.pixels()
    pane.run(rig.look)
    rig.settle()
    assert rig.content.fault(("database",)) == SQL
    with pytest.raises(ViewerError, match="SQL over memory"):
        Database(value)
    rig.leave()
    rig.show(SqlPane(), value).text = pane.text
    assert np.array_equal(rig.pixels(), said)


def test_a_view_refuses_a_snapshot_however_it_comes(rig: Rig, file: Path, absent: Callable[..., None]) -> None:
    """Opened, dropped, uploaded or published: the workspace shows in place what `update` raises."""
    view = SnapshotView(rig.screen.ctx)
    value = load_snapshot(file, cache=False)
    absent("numba", "duckdb")
    with pytest.raises(ViewerError) as e:
        view.update(value)
    assert str(e.value) == MEMORY and view.empty
    view.close()


def test_the_path_panel_films_no_mp4_without_pyav(tmp_path: Path, absent: Callable[..., None]) -> None:
    absent("av")
    with pytest.raises(FileError, match=r"needs PyAV: pip install 'splatview\[video\]'"):
        make_writer(tmp_path / "a.mp4", 32, 32, 10.0, False, numbered=True)
    assert not list(tmp_path.iterdir())


def test_timelines_without_numba(file: Path, absent: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    absent("numba")
    monkeypatch.setattr(_kernels, "_loaded", False)
    with pytest.raises(ViewerError) as e:
        Bands(load_snapshot(file, cache=False).traces[0])
    assert str(e.value) == MEMORY.replace(" and duckdb", "")


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
    path = tmp_path / "a.mp4"
    path.write_bytes(b"")
    made = [source_for(SourceSettings(source=str(path), reader=reader)) for reader in ("pyav", "opencv")]
    absent(*ALL)
    for source, words in zip(made, (r"needs PyAV: .*\[video\]", r"needs OpenCV: .*\[camera\]"), strict=True):
        with pytest.raises(HopelessError, match=words):
            source.open()
    (tmp_path / "a.onnx").write_bytes(b"")
    for detect, words in (("people", "detecting people needs OpenCV"), (str(tmp_path / "a.onnx"), "onnxruntime and")):
        with pytest.raises(DetectorError, match=words):
            open_detector(DetectorSettings(detect=detect))


@pytest.mark.parametrize(("modules", "lines"), [
    (ALL, ["memory absent not installed pip install 'splatview[memory]'",
           "video absent not installed; films are written as PNGs pip install 'splatview[video]'",
           "camera absent not installed pip install 'splatview[camera]'"]),
    (("duckdb",), ["memory absent snapshots are read, laid out; SQL needs duckdb pip install 'splatview[memory]'"]),
], ids=["none", "without duckdb"])
def test_doctor_takes_a_missing_extra_for_no_fault(modules: tuple[str, ...], lines: list[str],
                                                   absent: Callable[..., None], monkeypatch: pytest.MonkeyPatch,
                                                   tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    absent(*modules)

    def probe(what: str) -> tuple[bool, str, str]:  # in this process, from which modules are hidden
        assert what == "memory"
        found: dict[str, Any] = probe_memory()
        return bool(found["ok"]), str(found["detail"]).partition("; kept")[0], str(found["mend"])

    monkeypatch.setattr(doctor, "_probe", probe)
    checks = {"memory": doctor.check_memory, "video": doctor.check_video, "camera": doctor.check_camera}
    for line in lines:
        found = checks[line.split()[0]]()
        assert " ".join((found.name, found.state, found.detail, found.mend)) == line


def test_doctor_writes_a_film(programs: Programs) -> None:
    process = programs.python("-m", "splatview.viewer_app.probe", "video")
    out, _ = process.communicate(timeout=PATIENCE)
    found = json.loads(out)
    assert found["ok"] and found["detail"].startswith("a film was written as h264 by PyAV")


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
    for path in SOURCES:
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
