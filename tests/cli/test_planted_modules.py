"""No command, and no program that one starts, runs code from the current folder, which
has a module of every name.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import sysconfig
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from support.memory_data import event, snapshot
from support.scene_files import ply_columns, truth, write_ply
from support.wait import PATIENCE_S

SPLATVIEW = str(Path(sysconfig.get_path("scripts")) / "splatview")
PLANTED = """
with open({report!r}, "a") as f:
    f.write(__name__ + "\\n")
raise ImportError("a module from the current folder was imported")
"""
SCRIPT = """
from splatview_ipc.system.child_program import ChildProgram
program = ChildProgram("splatview_viewer", "shot", "out.png", "missing.ply")
assert program.wait() == 2
print(program.last_error_lines())
program.end()
"""
DETECTOR = """
import contextlib, importlib, importlib.util, sys
from splatview.camera.detectors import (InferenceSettings)
from splatview.camera.detectors.factory import open_detector
open_detector(InferenceSettings(detect="json:loads"))
for name in {names!r}:
    if importlib.util.find_spec(name) is None:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
import urllib.request, torch.fx
"""
NAMES = {
    name
    for name in {
        *sys.stdlib_module_names,
        *packages_distributions(),
        "splatview",
        "splatview_ipc",
        "splatview_viewer",
        "ipc",
        "viewer_app",
        "tests",
        "benchmarks",
        "sitecustomize",
        "usercustomize",
        # What installed modules import where it is there.
        "nt",
        "_winapi",
        "org",
        "tqdm",
        "opt_einsum",
    }
    if name.isidentifier()
}
"""The top-level names that may be imported."""


class Folder:
    """The current folder of programs."""

    def __init__(self, path: Path, names: set[str]) -> None:
        path.mkdir()
        self.path = path
        self._report = path / "imported.txt"
        for name in names:
            (path / f"{name}.py").write_text(PLANTED.format(report=str(self._report)))

    def run(self, *command: str, **env: str) -> str:
        """Run a program to its end, without what would keep the current folder out by
        itself; return what it said.
        """
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith("PYTHON")
        }
        done = subprocess.run(
            command,
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment | env,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout
        assert not self._report.exists(), self._report.read_text()
        return done.stdout


@pytest.fixture
def planted(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "shared by all", NAMES)


def test_command_ignores_modules_in_the_current_folder(
    planted: Folder, tmp_path: Path
) -> None:
    (tmp_path / "memory.pickle").write_bytes(
        pickle.dumps(snapshot([event("alloc", 512)]))
    )
    assert "it did its work" in planted.run(
        SPLATVIEW,
        "memory",
        str(tmp_path / "memory.pickle"),
        "--sql",
        "SELECT 'it did its work' FROM allocations",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )


def test_viewer_ignores_modules_in_the_current_folder(
    planted: Folder, tmp_path: Path
) -> None:
    """Until a picture stands, with all the programs that takes."""
    write_ply(tmp_path / "scene.ply", ply_columns(truth(20)))
    planted.run(
        SPLATVIEW,
        "shot",
        str(tmp_path / "seen.png"),
        str(tmp_path / "scene.ply"),
        "--size",
        "64x48",
    )


def test_script_starts_programs_that_ignore_the_current_folder(
    planted: Folder, tmp_path: Path
) -> None:
    """The script itself finds its own modules as Python does; the programs that it
    starts do not.
    """
    (tmp_path / "script.py").write_text(SCRIPT)
    assert "missing.ply" in planted.run(sys.executable, str(tmp_path / "script.py"))


def test_relative_entries_of_pythonpath_are_ignored(tmp_path: Path) -> None:
    """Modules that Python itself loads before the command are beyond reach, and left
    out.
    """
    program = "import re, sys; from splatview import cli; print(*sys.modules)"
    loaded = (
        Folder(tmp_path / "nothing", set()).run(sys.executable, "-c", program).split()
    )
    loaded = {name.partition(".")[0] for name in loaded} | {
        "sitecustomize",
        "usercustomize",
    }
    (tmp_path / "installed").mkdir()
    Folder(tmp_path / "shared by all", NAMES - loaded).run(
        SPLATVIEW, "status", PYTHONPATH=f":.:{tmp_path / 'installed'}:"
    )


def test_numba_reads_no_settings_from_the_current_folder(tmp_path: Path) -> None:
    """The folder of numba's cache is one of them, and what lies there is unpickled."""
    pytest.importorskip("yaml", reason="numba reads settings only with PyYAML")
    folder = Folder(tmp_path / "shared by all", set())
    (folder.path / ".numba_config.yaml").write_text(
        json.dumps({"cache_dir": str(tmp_path / "theirs")})
    )
    program = "from splatview_viewer.snapshot.timeline.kernels import numba; print(repr(numba.config.CACHE_DIR))"
    assert folder.run(sys.executable, "-P", "-c", program).strip() == "''"


def test_installed_detector_leaves_the_current_folder_alone(planted: Folder) -> None:
    """At once, and for all that is imported after it."""
    names = ["nt", "_winapi", "org", "opt_einsum", "tqdm"]
    planted.run(sys.executable, "-P", "-c", DETECTOR.format(names=names))
