"""gsplat's kernels are built without disturbing other processes that build them."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.programs import Programs
from support.wait import PATIENCE_S

from splatview_viewer.core.errors import RendererError
from splatview_viewer.render.gsplat.build import build

pytestmark = pytest.mark.programs
LIBRARY = "gsplat_cuda.so"
BACKEND = """
import os
folder = os.environ["TORCH_EXTENSIONS_DIR"]
print("compiling", flush=True)
os.makedirs(folder + "/gsplat_cuda")
open(folder + "/gsplat_cuda/gsplat_cuda.so", "w").write("library")
_C = 1
"""


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a gsplat first on the path, and return the file of its module `_backend`.

    The folder `cache` is beside the package.
    """
    (tmp_path / "cache").mkdir()
    folder = tmp_path / "site" / "gsplat" / "cuda"
    folder.mkdir(parents=True)
    for package in (folder.parent, folder):
        (package / "__init__.py").touch()
    (folder / "_backend.py").write_text(BACKEND)
    monkeypatch.syspath_prepend(tmp_path / "site")
    return folder / "_backend.py"


def test_build_leaves_the_library_and_its_log(backend: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "build").mkdir()
    (cache / "build" / "left by a compiler that was killed").touch()
    build(cache / LIBRARY)
    assert (cache / LIBRARY).read_text() == "library"
    assert sorted(p.name for p in cache.iterdir()) == [
        "build.log",
        LIBRARY,
        f"{LIBRARY}.lock",
    ]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("_C = None", "no nvcc here"),
        (
            "print('ok so far'); print('x.cu(3): error: no such thing'); raise "
            "SystemExit(1)",
            r"x\.cu\(3\): error: no such",
        ),
        # As gsplat 1.6 where there is a compiler and no GPU.
        ("[][0]", "failed: IndexError: list index out of range"),
    ],
)
def test_failed_build_raises_the_error_of_the_compiler(
    backend: Path, tmp_path: Path, program: str, message: str
) -> None:
    backend.write_text(program)
    with pytest.raises(RendererError, match=message):
        build(tmp_path / "cache" / LIBRARY)
    assert not (tmp_path / "cache" / "build").exists()
    assert not (tmp_path / "cache" / LIBRARY).exists()


def test_kernels_report_a_missing_driver_without_torch(programs: Programs) -> None:
    """The reason is found quickly, without loading torch."""
    program = (
        "import sys; from splatview_viewer.render.gsplat.build import kernels; k = "
        "kernels(); "
        "print(k.wait(0), k.reason); print('torch' in sys.modules)"
    )
    # With no GPU visible a machine that has some is like one that has none.
    process = programs.code(program, CUDA_VISIBLE_DEVICES="")
    output, _ = process.communicate(timeout=PATIENCE_S)
    lines = output.splitlines()
    assert lines[0].startswith("False gsplat needs CUDA, and ")
    assert lines[1] == "False"
