"""The house itself: which package may import which, what importing loads, what is public, how files look."""

from __future__ import annotations

import ast
import functools
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {"ipc": {"ipc"}, "splatview": {"splatview", "ipc"}, "viewer_app": {"viewer_app", "ipc"}}
"""Each folder at the top, and the folders whose modules it may import."""
SOURCES = [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]
pytestmark = pytest.mark.usefixtures("few_objects")  # parsing makes millions, which would have the others collected
HEAVY = ("torch", "numpy", "zmq", "msgspec", "moderngl", "glfw", "imgui_bundle", "gsplat", "gsply", "PIL", "tyro")


@pytest.mark.parametrize("package", PACKAGES)
def test_the_arrows(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        for node in _nodes(path):
            names = _imported(node)
            if isinstance(node, ast.ImportFrom) and node.module == "splatview":
                names = [f"splatview.{a.name}" for a in node.names]
            for name in names:
                folder = _folder(name)
                assert folder is None or folder in PACKAGES[package], f"{path} imports {name}"


@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    """Return the imports, functions and calls of a file: parsing and walking it takes longer than every check."""
    kinds = ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.Call
    nodes: list[ast.AST] = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = []  # trees of all files would take hundreds of megabytes
        elif isinstance(node, ast.Call):
            node.args = []
    return nodes


def _imported(node: ast.AST) -> list[str]:
    """Return the modules that a node imports by their full names."""
    return ([a.name for a in node.names] if isinstance(node, ast.Import) else
            [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else [])


def _folder(module: str) -> str | None:
    """The top-level folder that holds a module; None for modules of other projects."""
    top, _, rest = module.partition(".")
    inner = rest.partition(".")[0]
    return None if top != "splatview" else inner if inner in PACKAGES else "splatview"


@pytest.mark.parametrize("name", ["ipc", "viewer_app"])
def test_folders_at_the_top_are_imported_below_splatview(name: str) -> None:
    """A training script may have modules of these names, so nothing imports them as top-level modules."""
    assert os.readlink(ROOT / "splatview" / name) == f"../{name}"
    assert importlib.import_module(f"splatview.{name}").__name__ == f"splatview.{name}"
    suspect = re.compile(rf"(import|from|,)[\s\\]+{name}\b|,{name}\b")  # parsing every file would take seconds
    for path in _every_file():
        for imported in map(_imported, _nodes(path) if suspect.search(path.read_text()) else ()):
            assert all(module.partition(".")[0] != name for module in imported), f"{path} imports {imported}"


@pytest.mark.parametrize("module", ["splatview", "splatview.ipc"])
def test_importing_loads_nothing_heavy(module: str) -> None:
    """Exactly what `import splatview` loads beyond a bare interpreter."""
    loaded = _loaded(f"import {module}")
    own = {m for m in loaded if m.partition(".")[0] == "splatview"}
    assert own == {"splatview", module}
    assert loaded - own <= {"__future__"}


def _loaded(statement: str) -> set[str]:
    program = f"import sys; before = set(sys.modules); {statement}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_command_line_loads_nothing_heavy() -> None:
    program = ("import sys; from splatview.cli import main; main(['--help']); "
               f"print('LOADED', *[m for m in {HEAVY} if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED"


def test_the_public_surface() -> None:
    import splatview

    assert splatview.__all__ == ["Window", "__version__", "annotate", "close", "frames", "gl", "grab", "log", "paused",
                                 "publish", "publish_cameras", "publish_memory", "show", "wait_while_paused"]
    for name in splatview.__all__:
        assert getattr(splatview, name) is not None
    assert set(dir(splatview)) >= set(splatview.__all__)
    with pytest.raises(AttributeError, match=r"'no_such_name'.*publish"):
        splatview.no_such_name  # noqa: B018


def test_ipc_gives_what_it_names() -> None:
    from splatview import ipc

    assert sorted(ipc.__all__) == sorted(ipc._HOME)
    for name in ipc.__all__:
        assert getattr(ipc, name).__name__ == name
    with pytest.raises(AttributeError):
        ipc.no_such_name  # noqa: B018


def _every_file() -> list[Path]:
    folders = [*PACKAGES, "tests", "benchmarks", "examples"]
    return [p for folder in folders for p in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize("path", [
    pytest.param(ROOT / name, id=name, marks=[] if name.partition("/")[0] in PACKAGES else [pytest.mark.exhaustive])
    for name in (str(path.relative_to(ROOT)) for path in _every_file())])
def test_files_and_signatures_stay_small(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 700, "over 700 lines: is it still about one thing?"
    for node in _nodes(path):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            count = len(node.args.args) + len(node.args.kwonlyargs) + len(node.args.posonlyargs)
            count -= any(a.arg in ("self", "cls") for a in node.args.args[:1])
            assert count <= 8, f"{node.name} has {count} parameters: make a dataclass"


def test_nothing_is_unpickled() -> None:
    """No path from outside leads to pickle; checkpoints are read with weights_only=True."""
    for path in SOURCES:
        for node in _nodes(path):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("pickle.load", "pickle.loads", "marshal.loads", "eval", "exec"), path
                if called == "torch.load":
                    assert any(k.arg == "weights_only" and ast.unparse(k.value) == "True" for k in node.keywords), path


def test_ruff() -> None:
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "--no-cache", str(ROOT)], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout
