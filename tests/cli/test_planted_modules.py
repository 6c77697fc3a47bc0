"""No command, and no program that one starts, runs code from the current folder.

The folder holds a module for every name that may be imported: of the standard library, of every installed package and
of splatview itself. Each reports that it was run.
"""

from __future__ import annotations

import functools
import json
import os
import pickle
import re
import subprocess
import sys
import sysconfig
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from support.memory_data import event, snapshot
from support.repetitions import exhaustive, with_exhaustive
from support.scene_files import ply_columns, truth, write_ply
from support.wait import PATIENCE

from splatview.ipc import child_process

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.programs import Programs

ROOT = Path(__file__).resolve().parents[2]
SPLATVIEW = Path(sysconfig.get_path("scripts")) / "splatview"
PLANTED = """
with open({report!r}, "a") as f:
    f.write(__name__ + "\\n")
raise ImportError("a module from the current folder was imported")
"""


_IMPORTS = re.compile(r"^\s*(?:import ([\w., ]+)|from (\w[\w.]*) import)", re.MULTILINE)
"""Some of what it finds are words of docstrings: a module that nothing imports does no harm."""


@functools.cache
def _names() -> set[str]:
    """Return the top-level names that may be imported: also those in splatview's sources of packages not installed."""
    found = {"splatview", "ipc", "viewer_app", "tests", "benchmarks", "sitecustomize", "usercustomize"}
    found |= set(sys.stdlib_module_names) | set(packages_distributions())
    for folder in ("splatview", "ipc", "viewer_app"):
        for path in (ROOT / folder).rglob("*.py"):
            for modules, module in _IMPORTS.findall(path.read_text()):  # parsing takes a second
                found |= {name.split()[0].partition(".")[0] for name in (modules or module).split(",") if name.strip()}
    return found


def _plant(folder: Path, names: set[str]) -> Path:
    """Write a module of each name; return the file in which they report."""
    folder.mkdir()
    report = folder / "imported.txt"
    for name in names:
        if name.isidentifier():
            (folder / f"{name}.py").write_text(PLANTED.format(report=str(report)))
    return report


@pytest.fixture
def planted(tmp_path: Path, programs: Programs) -> Path:
    """The file in which planted modules report; programs run beside it."""
    programs.folder = tmp_path / "shared by all"
    return _plant(programs.folder, _names())


def _run(programs: Programs, *command: str, **env: str) -> str:
    """Run a program to its end; return what it printed."""
    process = subprocess.Popen([*command], cwd=programs.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, env={**_environment(), **env})
    programs._running.append(process)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out
    return out


def _environment() -> dict[str, str]:
    """Return this process's environment without what would keep the current folder out by itself."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A scene, a camera path's worth of Gaussians and a memory snapshot."""
    folder = tmp_path / "files"
    folder.mkdir()
    write_ply(folder / "scene.ply", ply_columns(truth(20)))
    (folder / "memory.pickle").write_bytes(pickle.dumps(snapshot([event("alloc", 512)])))
    return folder


COMMANDS: dict[str, list[str]] = {
    "help": ["--help"],
    "version": ["--version"],
    "status": ["status", "--json"],
    "doctor": ["doctor"],
    "shot": ["shot", "{out}/shot.png", "{files}/scene.ply", "--size", "64x48"],
    "video": ["video", "{out}/film", "{files}/scene.ply", "--size", "64x48", "--seconds", "0.2", "--fps", "10"],
    "memory in SQL": ["memory", "{files}/memory.pickle", "--sql", "select count(*) from allocations"],
    "memory as a picture": ["memory", "{files}/memory.pickle", "--png", "{out}/memory.png", "--size", "300x200"],
    "demo": ["demo", "--steps", "3", "--offscreen", "--out", "{out}/demo.png", "--size", "64x48", "--device", "cpu",
             "--data", "{files}/capture.npz"],
}


@pytest.mark.parametrize("command", with_exhaustive(
    list(COMMANDS), "help", "version", "doctor", "shot", "video", "memory as a picture", "demo"))
def test_command_ignores_modules_in_the_current_folder(command: str, planted: Path, files: Path, tmp_path: Path,
                                                       programs: Programs, request: pytest.FixtureRequest) -> None:
    if command == "demo":
        (files / "capture.npz").write_bytes(request.getfixturevalue("capture").read_bytes())
    arguments = [a.format(files=files, out=tmp_path) for a in COMMANDS[command]]
    _run(programs, str(SPLATVIEW), *arguments, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert not planted.exists(), planted.read_text()


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A small data set for the demo, as points and cameras."""
    path = tmp_path / "capture.npz"
    viewmats = np.tile(np.eye(4, dtype=np.float32), (3, 1, 1))
    viewmats[:, 2, 3] = 4
    viewmats[:, 0, 3] = -1, 0, 1
    K = np.array([[40, 0, 16], [0, 40, 12], [0, 0, 1]], np.float32)
    np.savez(path, means3d=np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32), viewmats=viewmats,
             colors=np.full((30, 3), 200, np.uint8), Ks=np.tile(K, (3, 1, 1)), width=32, height=24)
    return path


LONG_RUNNING = {
    "serve": ["serve", "--offscreen", "--out", "{out}/seen.png", "--size", "64x48", "{files}/scene.ply"],
    "serve a snapshot": ["memory", "{files}/memory.pickle", "--offscreen", "--out", "{out}/seen.png", "--size",
                         "300x200"],
    "camera": ["camera", "test", "--size", "64x48", "--offscreen", "--out", "{out}/seen.png", "--window-size",
               "64x48"],
}


@pytest.mark.exhaustive  # quick: commands that end
@pytest.mark.parametrize("command", list(LONG_RUNNING))
def test_viewer_ignores_modules_in_the_current_folder(command: str, planted: Path, files: Path, tmp_path: Path,
                                                      programs: Programs, wait_until: Callable[..., Any]) -> None:
    """Until a picture stands, with all the programs that takes."""
    process = subprocess.Popen([str(SPLATVIEW), *(a.format(files=files, out=tmp_path) for a in LONG_RUNNING[command])],
                               cwd=programs.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True,
                               env={**_environment(), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    programs._running.append(process)
    wait_until(lambda: (tmp_path / "seen.png").exists() or process.poll() is not None)
    process.terminate()
    out, _ = process.communicate(timeout=PATIENCE)
    assert not planted.exists(), planted.read_text()
    assert (tmp_path / "seen.png").exists(), out


SCRIPT = """
import sys, torch, splatview
from splatview.ipc.window_page import OPEN
splatview.publish(torch.full((20, 30, 3), 7, dtype=torch.uint8), "image")
if sys.argv[1] == "grab":
    assert int(splatview.grab("image", timeout=240).max()) == 7
elif sys.argv[1] == "show":
    page = splatview.show(port=0, timeout=240)
elif sys.argv[1] == "window":
    window = splatview.Window(64, 48)
    window.set_image(torch.zeros(48, 64, 3))
    window.start()
    while window._page.state != OPEN:
        assert window.is_running()
    window.destroy()
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("what", ["grab", "show", pytest.param("window", marks=pytest.mark.display)])
def test_script_starts_programs_that_ignore_the_current_folder(what: str, planted: Path, tmp_path: Path,
                                                               programs: Programs,
                                                               request: pytest.FixtureRequest) -> None:
    """The script itself finds its own modules as Python does; the programs that it starts do not."""
    env = {"DISPLAY": request.getfixturevalue("display"), "WAYLAND_DISPLAY": ""} if what == "window" else {}
    (tmp_path / "script.py").write_text(SCRIPT)
    _run(programs, sys.executable, str(tmp_path / "script.py"), what, **env)
    assert not planted.exists(), planted.read_text()


def _loaded_before_the_command() -> set[str]:
    """Return the names that Python imports before any line of splatview's can run."""
    program = "import re, sys; from splatview import cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                          env=_environment())
    return {name.partition(".")[0] for name in done.stdout.split()} | {"sitecustomize", "usercustomize"}


@pytest.mark.parametrize("path", [":", exhaustive("{installed}:"), exhaustive(":{installed}"), "."],
                         ids=["empty", "behind", "before", "dot"])
@pytest.mark.parametrize("command", [exhaustive("shot"), exhaustive("memory in SQL"), "status", exhaustive("doctor")])
def test_relative_entries_of_pythonpath_are_ignored(command: str, path: str, files: Path, tmp_path: Path,
                                                    programs: Programs) -> None:
    """What Python itself loads from there before the command begins is beyond reach, and left out here."""
    programs.folder = tmp_path / "shared by all"
    planted = _plant(programs.folder, _names() - _loaded_before_the_command())
    (tmp_path / "installed").mkdir()
    arguments = [a.format(files=files, out=tmp_path) for a in COMMANDS[command]]
    _run(programs, str(SPLATVIEW), *arguments, PYTHONPATH=path.format(installed=tmp_path / "installed"),
         XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert not planted.exists(), planted.read_text()


def test_environment_keeps_absolute_entries_of_pythonpath() -> None:
    env = child_process.environment({"PYTHONPATH": ":/a:b:/c:", "X": "1"}, Y="2")
    assert env == {"PYTHONPATH": "/a:/c", "X": "1", "Y": "2", "PYTHONSAFEPATH": "splatview"}
    assert "PYTHONPATH" not in child_process.environment({"PYTHONPATH": ":."})
    assert child_process.environment({"PYTHONSAFEPATH": "yes"})["PYTHONSAFEPATH"] == "yes"


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", ["memory in SQL", "memory as a picture"])
def test_numba_reads_no_settings_from_the_current_folder(command: str, files: Path, tmp_path: Path,
                                                         programs: Programs) -> None:
    """The folder of numba's cache is one of them, and what lies there is unpickled."""
    pytest.importorskip("yaml", reason="numba reads settings only with PyYAML")
    programs.folder = tmp_path / "shared by all"
    programs.folder.mkdir()
    (programs.folder / ".numba_config.yaml").write_text(json.dumps({"cache_dir": str(tmp_path / "theirs")}))
    arguments = [a.format(files=files, out=tmp_path) for a in COMMANDS[command]]
    out = _run(programs, str(SPLATVIEW), *arguments, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert "numba config" not in out.lower()  # its warning of a file that stays unread
    program = "from splatview.viewer_app.memory._numba import numba; print(repr(numba.config.CACHE_DIR))"
    assert _run(programs, *child_process.code_command(program)).strip() == "''"
    assert not (tmp_path / "theirs").exists()


def test_code_command_ignores_the_current_folder(planted: Path, programs: Programs) -> None:
    program = "import json, numpy, splatview.ipc.limits; print(json.dumps(sys.argv[1:]), splatview.__file__)"
    out = _run(programs, *child_process.code_command(program, "a", "b c"))
    arguments, _, file = out.strip().rpartition(" ")
    assert json.loads(arguments) == ["a", "b c"]
    assert Path(file) == ROOT / "splatview" / "__init__.py"
    assert not planted.exists(), planted.read_text()


def test_every_python_is_started_by_child_process() -> None:
    """`sys.executable` with -m or -c of its own would put the current folder first."""
    for folder in ("splatview", "ipc", "viewer_app"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            if path.name in ("child_process.py", "programs.py"):  # the latter's "-ISc" leaves every folder out
                assert not re.search(r'sys\.executable, "-(?!ISc)[a-zA-Z]*[mc]"', text) or path.name != "programs.py"
                continue
            assert not re.search(r'sys\.executable, "-', text), path


@pytest.mark.exhaustive
def test_video_and_pictures_are_what_they_claim(planted: Path, files: Path, tmp_path: Path,
                                                programs: Programs) -> None:
    """The commands above do their work: a program that ends early would import nothing either."""
    _run(programs, str(SPLATVIEW), "shot", str(tmp_path / "out.png"), str(files / "scene.ply"), "--size", "64x48")
    with Image.open(tmp_path / "out.png") as picture:
        assert picture.size == (64, 48) and len(picture.convert("RGB").getcolors(1 << 16) or []) > 1
    assert not planted.exists(), planted.read_text()
