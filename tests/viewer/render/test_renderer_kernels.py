"""Getting gsplat's kernels without disturbing other processes that build them too."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

import gsplat
import pytest
import torch
from support.wait import PATIENCE, wait_until

from splatview_viewer.render.gsplat import build as gsplat_kernels
from splatview_viewer.render.gsplat.build import KernelsError, adopt, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.programs import Programs

pytestmark = pytest.mark.programs
PACKAGE = Path(gsplat.__file__).parent
LIBRARY = "gsplat_cuda.so"
COMPILES = """
import os, sys
folder = os.environ["TORCH_EXTENSIONS_DIR"]
print("compiling", flush=True)
os.makedirs(folder + "/gsplat_cuda")
open(sys.argv[1], "w").write("library")
if "GATE" in os.environ:
    open(os.environ["GATE"]).read()
os.replace(sys.argv[1], sys.argv[2])
"""


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    """The open lock file."""
    fd = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield fd
    os.close(fd)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder in which gsplat finished a build."""
    folder = tmp_path / "trainer" / "gsplat_cuda"
    folder.mkdir(parents=True)
    (folder / LIBRARY).write_text("their library")
    torch_include = Path(torch.__file__).parent / "include"
    (folder / "build.ninja").write_text(f"cflags = -isystem {torch_include}\nbuild x: {PACKAGE / 'cuda' / 'ext.cpp'}\n")
    (folder / ".ninja_log").write_text(f"# ninja log v5\n0\t100\t0\t{LIBRARY}\tabc\n")
    return folder


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any library draws a Gaussian."""
    monkeypatch.setattr(gsplat_kernels, "CHECK", "")


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.iterdir()}


def test_a_finished_build_is_copied(theirs: Path, tmp_path: Path, works: None) -> None:
    before = contents(theirs)
    library = tmp_path / LIBRARY
    assert adopt(theirs, library, PACKAGE) and library.read_text() == "their library"
    assert contents(theirs) == before
    assert not list(tmp_path.glob("*.[0-9]*")), "nothing is left over"


@pytest.mark.parametrize("change", ["lock", "unfinished", "other gsplat", "other torch", "older", "broken"])
def test_other_builds_are_left_alone(theirs: Path, tmp_path: Path, works: None, change: str,
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    rules, package = theirs / "build.ninja", PACKAGE
    if change == "lock":
        (theirs / "lock").touch()
    elif change == "unfinished":
        (theirs / ".ninja_log").write_text("# ninja log v5\n0\t100\t0\text.o\tabc\n")
    elif change == "other gsplat":
        rules.write_text(rules.read_text().replace(str(PACKAGE), "/elsewhere/gsplat"))
    elif change == "other torch":
        rules.write_text(rules.read_text().replace(str(Path(torch.__file__).parent), "/elsewhere/torch"))
    elif change == "older":
        os.utime(theirs / LIBRARY, (1, 1))
    else:
        monkeypatch.setattr(gsplat_kernels, "CHECK", "import sys; sys.exit(1)")
    before = contents(theirs)
    assert not adopt(theirs, tmp_path / LIBRARY, package)
    assert not (tmp_path / LIBRARY).exists() and contents(theirs) == before


def test_building(tmp_path: Path, lock: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gsplat_kernels, "BUILD", COMPILES)
    build(tmp_path / LIBRARY, lock)
    assert (tmp_path / LIBRARY).read_text() == "library"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["build.log", LIBRARY, "lock"]


@pytest.mark.parametrize(("program", "message", "limit"), [
    ("import sys; sys.exit(3)", "no nvcc here", PATIENCE),
    ("print('ok so far'); print('x.cu(3): error: no such thing'); raise SystemExit(1)", r"x\.cu\(3\): error: no such",
     PATIENCE),
    ("import signal; signal.pause()", "longer than", 0.0),
])
def test_a_build_that_fails(tmp_path: Path, lock: int, monkeypatch: pytest.MonkeyPatch, program: str, message: str,
                            limit: float) -> None:
    monkeypatch.setattr(gsplat_kernels, "BUILD", program)
    monkeypatch.setattr(gsplat_kernels, "LIMIT", limit)
    with pytest.raises(KernelsError, match=message):
        build(tmp_path / LIBRARY, lock)
    assert not (tmp_path / LIBRARY).exists() and not list(tmp_path.glob("build-*"))


BUILDER = """
import fcntl, os, sys
from pathlib import Path
from splatview_viewer.render.gsplat import build as k
k.BUILD, library = sys.argv[2], Path(sys.argv[1]) / "gsplat_cuda.so"
fd = os.open(library.parent / "lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(fd, fcntl.LOCK_EX)
print("building", flush=True)
k.build(library, fd)
"""


def test_a_viewer_that_is_killed_leaves_its_compiler_to_finish(tmp_path: Path, programs: Programs) -> None:
    """The compiler holds the lock until then, so that no other viewer begins."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def compiling() -> int | None:
        try:
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as e:
            assert e.errno == errno.ENXIO  # the gate is not read yet
            return None

    viewer = programs.code(BUILDER, tmp_path, COMPILES, GATE=str(gate))
    assert viewer.line() == "building"
    held = wait_until(compiling, "the compiler is at the gate")
    viewer.killed()
    lock = os.open(tmp_path / "lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(held)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.close(lock)
    assert (tmp_path / LIBRARY).read_text() == "library"


def test_without_a_driver(programs: Programs) -> None:
    """Said quickly, without loading torch."""
    program = ("import sys; from splatview_viewer.render.gsplat.build import kernels; k = kernels(); "
               "print(k.wait(0), k.reason); print('torch' in sys.modules)")
    # With no GPU visible a machine that has some is like one that has none.
    lines = programs.code(program, CUDA_VISIBLE_DEVICES="").communicate(timeout=PATIENCE)[0].splitlines()
    assert lines[0].startswith("False gsplat needs CUDA, and ") and lines[1] == "False"
