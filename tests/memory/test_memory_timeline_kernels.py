"""The compiled kernels of timelines: against their reference, and compiled by another program."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import timeline_reference
from support.open_files import open_files
from support.timeline_cases import any_paint, random_trace, use_reference
from support.wait import PATIENCE

from splatview.viewer_app.memory import _kept
from splatview.viewer_app.memory.loading import machine
from splatview.viewer_app.memory.timeline import Addresses, Axis, Bands, Canvas, _kernels, compiling, lanes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CANVAS = "_canvas_kernels"
"""The module that is compiled soonest."""


def painted(seed: int, parts: int = 2) -> list[np.ndarray]:
    """Pictures of a trace, painted by as many threads at once as there are parts."""
    trace = random_trace(seed, 500)
    paint = any_paint(trace, seed, lit=seed % 2 == 0)
    edges = Axis(trace, "events").edges(3, 470, 90)
    bands, addresses = Bands(trace), Addresses(trace)
    moments, out = bands.peaks(edges), [bands.live]
    moments[40:43] = -1
    for layer in (bands, addresses, *(lane.bands for lane in lanes(trace, []))):
        canvas = Canvas(90, 70)
        threads = [threading.Thread(target=layer.paint, args=(
            canvas, slice(90 * i // parts, 90 * (i + 1) // parts), moments, 100.0, 3e5 / 70, paint))
            for i in range(parts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        out += [canvas.rgba, canvas.ids]
    canvas = Canvas(90, 70)
    bands.paint(canvas, slice(5, 5), moments, 0.0, 1.0, paint)  # nothing
    bands.paint(canvas, slice(20, 60), moments, 0.0, 7e3, paint, np.arange(90) * 1000)
    return [*out, canvas.rgba, canvas.ids]


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("seed", [1, 4])
def test_kernels_paint_what_their_reference_paints(seed: int, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = painted(seed, parts)
    use_reference(monkeypatch)
    for ours, theirs in zip(kernels, painted(seed), strict=True):
        np.testing.assert_allclose(ours.astype(float), theirs, atol=float(ours.dtype == np.uint8))


def test_every_kernel_has_a_reference() -> None:
    from numba.core.dispatcher import Dispatcher

    for module in _kernels.MODULES:
        _kernels.warm_up()
        names = {name for name, value in vars(sys.modules[f"{_kernels.__package__}.{module}"]).items()
                 if isinstance(value, Dispatcher) and value.nopython_signatures
                 and value._can_compile is False  # type: ignore[attr-defined]
                 and value.py_func.__module__.endswith(module)}
        assert names and names <= set(vars(timeline_reference))


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No kernel was ever compiled, and only one module is needed. The modules of this process stay loaded."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    monkeypatch.setattr(_kernels, "_loaded", False)
    monkeypatch.setattr(_kernels, "_compiler", None)
    monkeypatch.setattr(_kernels, "MODULES", (CANVAS,))
    monkeypatch.setattr(_kernels, "kept", lambda beside, module: module == machine.KERNEL or _kept.kept(beside, module))
    return tmp_path / "numba"


@pytest.mark.exhaustive  # compiles for seconds
def test_another_program_compiles_and_progress_is_shown(cold: Path, wait_until: Callable[..., Any]) -> None:
    assert not _kept.kept(_kernels.__file__, CANVAS) and compiling() is None
    thread = threading.Thread(target=_kernels.warm_up)
    thread.start()
    shown = wait_until(compiling)
    assert shown[0].startswith("Compiling kernels, once on this machine: about 1") and shown[0].endswith(" s")
    assert 0 <= shown[1] < 1
    thread.join(PATIENCE)
    assert compiling() is None
    assert _kept.kept(_kernels.__file__, CANVAS)
    program = f"""import sys
from splatview.viewer_app.memory.timeline import {CANVAS} as module
print(*(len(k.stats.cache_hits) - len(k.stats.cache_misses) for k in (module.assemble, module.paint_ground)))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split() == ["1", "1"], done.stderr  # loaded, not compiled


@pytest.mark.parametrize("why", ["no program", "no folder"])
def test_where_another_program_cannot_kernels_are_compiled_here(why: str, cold: Path, monkeypatch: pytest.MonkeyPatch
                                                                ) -> None:
    """The program ends at once where what it compiles cannot be kept."""
    if why == "no program":
        monkeypatch.setattr(sys, "executable", "/absent/python")
    else:
        cold.write_text("a file where the folder was to be")
        monkeypatch.setenv("NUMBA_CACHE_LOCATOR_CLASSES", "UserProvidedCacheLocator")  # no other folder either
    before = open_files()
    _kernels.warm_up()
    assert _kernels._loaded and _kernels._compiler is not None
    assert _kernels._compiler.done == 0 and compiling() is None
    assert not _kept.kept(_kernels.__file__, CANVAS)
    assert open_files() <= before


def test_the_compiling_program_ends_with_its_viewer(tmp_path: Path) -> None:
    code = """import os, time
from splatview.viewer_app.memory.timeline import _kernels
started, popen = [], _kernels.subprocess.Popen
class Known(popen):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        started.append(self.pid)
_kernels.subprocess.Popen = Known
_kernels.Compiler(["_bands_kernel"])
while not started:
    time.sleep(0.01)
print(started[0], flush=True)
os.kill(os.getpid(), 9)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)})
    pid, end = int(done.stdout), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":  # a zombie: containers may have no init to reap it
                    return
        except OSError:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("it went on")


def test_end_loading_waits_and_prevents_later_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program waits for a load in progress, and none begins afterwards."""
    for name in ("_ended", "_loaded"):
        monkeypatch.setattr(_kernels, name, False)
    loading, held, ended, loaded = (threading.Event() for _ in range(4))

    def load(name: str) -> None:
        loading.set()
        assert held.wait(PATIENCE)
        if name.endswith(_kernels.MODULES[-1]):
            loaded.set()

    def end() -> None:
        _kernels.end_loading()
        assert loaded.is_set()
        ended.set()

    monkeypatch.setattr(_kernels.importlib, "import_module", load)
    threads = [threading.Thread(target=_kernels.warm_up), threading.Thread(target=end)]
    threads[0].start()
    assert loading.wait(PATIENCE)
    threads[1].start()
    assert not ended.wait(0.05)
    held.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert ended.is_set()
    monkeypatch.setattr(_kernels, "_loaded", False)
    loading.clear()
    _kernels.warm_up()
    assert not loading.is_set() and not _kernels._loaded


@pytest.mark.exhaustive
def test_stale_kernels_are_compiled_again(tmp_path: Path) -> None:
    """A kernel holds parts of other modules: it is stale when one of these changed."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "part.py").write_text("from splatview.viewer_app.memory._compile import inline\n"
                                     "@inline\ndef part(a):\n    return a + 1\n")
    (package / "whole.py").write_text("import sys\nsys.path.insert(0, sys.argv[1])\nfrom part import part\n"
                                      "from splatview.viewer_app.memory._compile import i64, kernel\n"
                                      "@kernel(i64(i64))\ndef whole(a):\n    return part(a)\n"
                                      "print(whole(1), len(whole.stats.cache_hits))\n")
    os.utime(package / "part.py", (1, 1))

    def run() -> str:
        done = subprocess.run([sys.executable, str(package / "whole.py"), str(package)], capture_output=True, text=True,
                              timeout=PATIENCE, env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")})
        return done.stdout.strip() or done.stderr

    assert [run(), run()] == ["2 0", "2 1"]
    (package / "part.py").write_text((package / "part.py").read_text().replace("+ 1", "+ 5"))
    os.utime(package / "part.py", (time.time() + 5, time.time() + 5))
    assert run() == "6 0"


@pytest.mark.exhaustive
def test_programs_that_start_at_once_compile_once(tmp_path: Path) -> None:
    (tmp_path / "whole.py").write_text("from splatview.viewer_app.memory._compile import i64, kernel\n"
                                       "print('ready', flush=True)\ninput()\n"
                                       "@kernel(i64(i64))\ndef whole(a):\n    return a + 1\n"
                                       "print(whole(1), len(whole.stats.cache_hits))\n")
    programs = [subprocess.Popen([sys.executable, str(tmp_path / "whole.py")], stdin=subprocess.PIPE, text=True,
                                 stdout=subprocess.PIPE, env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")})
                for _ in range(2)]
    for program in programs:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
    for program in programs:
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
    said = sorted(program.communicate(timeout=PATIENCE)[0] for program in programs)
    assert said == ["2 0\n", "2 1\n"]


@pytest.mark.parametrize("why", ["stopped", "no file"])
def test_a_lock_that_is_not_had_keeps_nothing_from_being_compiled(why: str, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that is stopped holds it, or its file cannot be opened."""
    from splatview.viewer_app.memory import _compile

    monkeypatch.setattr(_compile, "WAIT", 0.1)
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))

    def function(a: int) -> int:
        return a + 1

    folder = tmp_path / os.path.basename(_compile.FunctionCache(function).cache_path)
    lock = folder / "test_memory_timeline_kernels.lock"
    if why == "no file":
        lock.mkdir(parents=True)
    else:
        folder.mkdir(exist_ok=True)
        lock.touch()
    with contextlib.ExitStack() as stack:
        if why == "stopped":
            held = stack.enter_context(open(lock))
            fcntl.flock(held, fcntl.LOCK_EX)
        before = open_files()
        assert _compile.kernel(_compile.i64(_compile.i64))(function)(1) == 2
        assert open_files() <= before
