"""Modules that are loaded when they are needed, by whichever thread needs them first.

Importing `package.module` locks the module and then the package; importing `package` locks the package and then each
module that its `__init__` imports. Two threads that do both at once wait for each other, and Python breaks the wait by
an error in one of them. So from outside, such packages are imported as packages: `from package import name`.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE
from repetitions import exhaustive

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("splatview", "splatview/ipc", "splatview/viewer_app")
"""Folders in which an `rglob` finds each module once, under the name that it is imported by: it follows no links."""


def _imports(path: Path) -> Iterator[tuple[str, bool, int]]:
    """(module, whether importing this file imports it, line) of each import that is ever done."""
    tree = ast.parse(path.read_text())
    for_checkers = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.If)
                    and ast.unparse(node.test) == "TYPE_CHECKING" for kept in node.body for inner in ast.walk(kept)}
    at_once = set(map(id, tree.body))
    for node in ast.walk(tree):
        if id(node) in for_checkers:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, id(node) in at_once, node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in at_once, node.lineno


def _eager() -> dict[Path, set[str]]:
    """The packages that import modules of their own when they are imported, and these modules."""
    found = {}
    for top in PACKAGES:
        for init in (ROOT / top).rglob("__init__.py"):
            name = ".".join(init.parent.relative_to(ROOT).parts)
            own = {module for module, at_once, _ in _imports(init) if at_once and module.startswith(f"{name}.")}
            if own:
                found[init.parent] = own
    return found


def test_packages_that_import_their_modules_are_imported_whole() -> None:
    eager = _eager()
    assert ROOT / "splatview/viewer_app/memory/analysis" in eager
    modules = set().union(*eager.values())
    paths = [path for top in PACKAGES for path in sorted((ROOT / top).rglob("*.py"))
             if any(module in path.read_text() for module in modules)]  # parsing every file would take seconds
    wrong = [f"{path.relative_to(ROOT)}:{line} imports {module}: import it from its package"
             for path in paths for module, _, line in _imports(path)
             for folder, own in eager.items() if folder not in path.parents and module in own]
    assert not wrong, "\n".join(wrong)


PROGRAM = """
import importlib, importlib._bootstrap, importlib.machinery, pkgutil, sys, threading, time

looking, done, faults = threading.Event(), threading.Event(), []

class Late:
    '''Makes a package only when the other thread waits for it, or needs nothing of it.'''
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "{package}":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader.create_module = wait
        return spec

def wait(spec):
    looking.set()
    while threading.current_thread() is threads[0] and not done.is_set() and not any(
            lock() is not None and lock().name == "{package}" and lock().waiters
            for lock in list(importlib._bootstrap._module_locks.values())):
        time.sleep(0.01)

def load(*names):
    for name in names:
        try:
            importlib.import_module(name)
        except BaseException as e:
            faults.append(f"{{name}}: {{type(e).__name__}}: {{e}}")

sys.meta_path.insert(0, Late)
others = [m.name for m in pkgutil.iter_modules(["{folder}".replace(".", "/")], "{folder}.")]
threads = [threading.Thread(target=load, args=("{package}",)),
           threading.Thread(target=lambda: (load(*others), done.set()))]
threads[0].start()
assert looking.wait(240)
threads[1].start()
for t in threads:
    t.join()
print("loaded", len(others))
print(*faults, sep="\\n")
"""


@pytest.mark.parametrize(("package", "folder"), [
    ("splatview.viewer_app.memory.analysis", "splatview.viewer_app.views._snapshot"),
    exhaustive("splatview.viewer_app.memory.timeline", "splatview.viewer_app.views._snapshot"),
    exhaustive("splatview.viewer_app.memory.loading", "splatview.viewer_app.memory.timeline"),
    exhaustive("splatview.viewer_app.files", "splatview.viewer_app.memory.analysis"),
    ("splatview.ipc.ways", "splatview.ipc"),
])
def test_a_package_and_what_uses_it_are_loaded_at_once(package: str, folder: str) -> None:
    """Nobody needs more than is there, whoever comes first."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(package=package, folder=folder)], cwd=ROOT,
                          capture_output=True, text=True, timeout=PATIENCE)
    lines = done.stdout.splitlines()
    assert lines and int(lines[0].removeprefix("loaded ")) > 5, done.stderr
    assert not any(lines[1:]), done.stdout
