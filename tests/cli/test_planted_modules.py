"""No command, and no program that one starts, runs code from the current folder, which has a module of every name."""

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
from typing import TYPE_CHECKING

import pytest
from support.memory_data import event, snapshot
from support.programs import ROOT
from support.scene_files import ply_columns, truth, write_ply
from support.wait import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
print(program.last_words())
program.end()
"""
_IMPORTS = re.compile(r"^\s*(?:import ([\w., ]+)|from (\w[\w.]*) import)", re.MULTILINE)
"""Some of what it finds are words of docstrings: a module that nothing imports does no harm."""


@functools.cache
def importable() -> set[str]:
    """Return the top-level names that may be imported: also those in splatview's sources of packages not installed."""
    found = {"splatview", "splatview_ipc", "splatview_viewer", "ipc", "viewer_app",
             "tests", "benchmarks", "sitecustomize", "usercustomize"}
    found |= set(sys.stdlib_module_names) | set(packages_distributions())
    for folder in ("splatview", "ipc", "viewer_app"):
        for path in (ROOT / folder).rglob("*.py"):
            for modules, module in _IMPORTS.findall(path.read_text()):  # parsing takes a second
                found |= {name.split()[0].partition(".")[0] for name in (modules or module).split(",") if name.strip()}
    return {name for name in found if name.isidentifier()}


class Folder:
    """The current folder of programs."""

    def __init__(self, path: Path) -> None:
        self.path, self._report = path, path / "imported.txt"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        """Without what would keep the current folder out by itself."""

    def plant(self, names: set[str]) -> Folder:
        self.path.mkdir()
        for name in names:
            (self.path / f"{name}.py").write_text(PLANTED.format(report=str(self._report)))
        return self

    def run(self, *command: str, **env: str) -> str:
        """Run a program to its end; return what it printed."""
        done = subprocess.run(command, cwd=self.path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env={**self.environment, **env}, timeout=PATIENCE,
                              check=False)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def check(self) -> None:
        assert not self._report.exists(), self._report.read_text()


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path / "shared by all").plant(importable())
    yield folder
    folder.check()


def test_command_ignores_modules_in_the_current_folder(planted: Folder, tmp_path: Path) -> None:
    (tmp_path / "memory.pickle").write_bytes(pickle.dumps(snapshot([event("alloc", 512)])))
    assert "it did its work" in planted.run(
        SPLATVIEW, "memory", str(tmp_path / "memory.pickle"), "--sql", "SELECT 'it did its work' FROM allocations",
        XDG_CACHE_HOME=str(tmp_path / "cache"))


def test_viewer_ignores_modules_in_the_current_folder(planted: Folder, tmp_path: Path,
                                                      wait_until: Callable[..., object]) -> None:
    """Until a picture stands, with all the programs that takes."""
    write_ply(tmp_path / "scene.ply", ply_columns(truth(20)))
    command = [SPLATVIEW, "serve", "--offscreen", "--out", str(tmp_path / "seen.png"), "--size", "64x48",
               str(tmp_path / "scene.ply")]
    with subprocess.Popen(command, cwd=planted.path, env=planted.environment) as process:
        try:
            wait_until((tmp_path / "seen.png").exists)
        finally:
            process.terminate()


def test_script_starts_programs_that_ignore_the_current_folder(planted: Folder, tmp_path: Path) -> None:
    """The script itself finds its own modules as Python does; the programs that it starts do not."""
    (tmp_path / "script.py").write_text(SCRIPT)
    assert "missing.ply" in planted.run(sys.executable, str(tmp_path / "script.py"))


def test_relative_entries_of_pythonpath_are_ignored(tmp_path: Path) -> None:
    """What Python itself loads from there before the command begins is beyond reach, and left out here."""
    folder = Folder(tmp_path / "shared by all")
    program = "import re, sys; from splatview import cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True,
                            env=folder.environment).stdout.split()
    folder.plant(importable() - {name.partition(".")[0] for name in loaded} - {"sitecustomize", "usercustomize"})
    (tmp_path / "installed").mkdir()
    folder.run(SPLATVIEW, "status", PYTHONPATH=f":.:{tmp_path / 'installed'}:")
    folder.check()


def test_numba_reads_no_settings_from_the_current_folder(tmp_path: Path) -> None:
    """The folder of numba's cache is one of them, and what lies there is unpickled."""
    pytest.importorskip("yaml", reason="numba reads settings only with PyYAML")
    folder = Folder(tmp_path / "shared by all").plant(set())
    (folder.path / ".numba_config.yaml").write_text(json.dumps({"cache_dir": str(tmp_path / "theirs")}))
    program = "from splatview_viewer.kinds.snapshot.timeline.kernels import numba; print(repr(numba.config.CACHE_DIR))"
    assert folder.run(sys.executable, "-P", "-c", program).strip() == "''"
