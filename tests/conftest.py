"""What tests share: real data, a runtime folder of their own, a virtual screen, processes that are cleaned up."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from frozen import freeze_for_good
from nursery import Nursery
from patience import PATIENCE
from programs import ROOT, Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import moderngl

# Threads of torch that keep processors busy while they wait for one another get in each other's way where something
# else runs: one test takes 80 s instead of 2 then. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Bytecode is kept even where the environment says otherwise: without it, every process rewrites the assertions of all
# tests, and every program that a test starts compiles splatview again. Read by programs when they start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

DATA = Path(os.environ.get("SPLATVIEW_TEST_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real scenes, cameras and reference pictures. SPLATVIEW_TEST_DATA names the folder."""
    if not DATA.is_dir():
        pytest.skip(f"no test data in {DATA}; SPLATVIEW_TEST_DATA names the folder")
    return DATA


@pytest.fixture(autouse=True)
def runtime_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder for each test, so that no test sees another's runs, or the user's."""
    folder = Path("/tmp") / f"sv-test-{os.getpid()}-{time.monotonic_ns() % 10**9:x}"  # short: sockets live in it
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(folder))
    for name in ("SPLATVIEW_DISABLE", "SPLATVIEW_STRICT", "SPLATVIEW_NAME"):
        monkeypatch.delenv(name, raising=False)
    yield folder
    publishing = sys.modules.get("splatview.publishing")
    if publishing is not None:
        publishing.close()
    follower = sys.modules.get("splatview.follower")
    if follower is not None:
        follower.seen.clear()  # what one test was handed is not what the next annotates
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def ctx() -> Iterator[moderngl.Context]:
    """An OpenGL context without a screen. Set-up installs what it needs, so that its absence is a failure."""
    from splatview.viewer_app.screens.offscreen import create_context

    context = create_context()
    yield context
    context.release()


@pytest.fixture(scope="session")
def timeline_kernels() -> None:
    """The compiled kernels of memory timelines: so that none arrives in the middle of a test, after numpy has painted
    what it compares with."""
    from splatview.viewer_app.memory.timeline import warm_up

    warm_up()


@pytest.fixture(scope="session")
def display() -> Iterator[str]:
    """A display for windows: the user's, or a virtual one."""
    if os.environ.get("DISPLAY"):
        yield os.environ["DISPLAY"]
        return
    if shutil.which("Xvfb") is None:
        pytest.skip("no display and no Xvfb: apt-get install xvfb")
    read, write = os.pipe()
    server = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", "1600x1000x24", "-nolisten", "tcp",
                               "-noreset"],  # a server that starts over when its last window closes misses the next
                              pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(write)
    with os.fdopen(read) as answer:
        number = answer.readline().strip()  # Xvfb picks a free number and says which
    assert number, "Xvfb did not start"
    os.environ["DISPLAY"] = f":{number}"
    yield f":{number}"
    os.environ.pop("DISPLAY", None)
    server.terminate()
    server.wait()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.close()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Programs for all tests of a module. Each test has a runtime folder of its own: theirs is to be named to them."""
    started = Processes(tmp_path_factory.mktemp("lasting"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def nursery(request: pytest.FixtureRequest, lasting: Processes) -> Iterator[Nursery]:
    """Forks programs by the hundred. LOADED of a test's module names modules that they find imported."""
    with Nursery(lasting, *getattr(request.module, "LOADED", ())) as made:
        yield made


@pytest.fixture
def forked_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that this process starts with `splatview.programs` are forked, with everything loaded already."""
    from forking import forked_popen

    from splatview import programs

    monkeypatch.setattr(programs, "subprocess", forked_popen)


@pytest.fixture(scope="module")
def few_objects() -> None:
    """Freeze all objects of pytest, imports and earlier modules: searches of all objects visit those of this module."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    """`wait_until(condition, seconds=PATIENCE)`: poll until the condition gives something true, and return that.
    `every`: seconds between two polls."""

    def wait(condition: Callable[[], Any], seconds: float = PATIENCE, what: str = "", every: float = 0.005) -> Any:
        end = time.monotonic() + seconds
        while True:
            result = condition()
            if result:
                return result
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {what or condition}")
            time.sleep(every)

    return wait


LONG = ("test_viewer_stopped.py", "test_many_viewers.py", "test_distributed.py", "test_at_rest.py", "test_seats.py",
        "test_camera_v4l2.py", "test_window_class_life.py", "test_tearing.py", "test_memory_live_viewer.py",
        "test_training_cameras_viewer.py", "test_growth.py", "test_installed_names.py", "test_empty_environment.py",
        "test_renderer_faults.py", "test_surroundings.py", "test_fault_deaths_gpu.py", "test_grab_gpu.py",
        "test_recorder_gpu.py")
"""Files that take long with few tests: what comes last keeps one worker waiting for the other."""
BROWSER = "tests/browser/"
"""Folder of the tests in a browser."""


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as shells start what runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that tests interrupt inherit it
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # as nohup starts programs
        signal.signal(signal.SIGHUP, lambda *_: None)  # still nothing here, and the default in programs of the tests
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # pytest-xdist's order: the files with most tests first


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collections, which would visit the same objects again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    freeze_for_good()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Collect a folder from a different file on in each worker of pytest-xdist: the first to import a file rewrites its
    assertions and keeps the bytecode, which the others read. In one order, every worker would rewrite every file."""
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker is not None and isinstance(collector, pytest.Directory):
        first = len(report.result) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
        report.result = report.result[first:] + report.result[:first]
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file belongs to one worker, and so do all tests in a browser, which is then started once."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return BROWSER if nodeid.startswith(BROWSER) else super()._split_scope(nodeid)

    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Workers of pytest-xdist begin with what takes longest, in the same order in all of them. Tests marked `cuda` are
    skipped where there is no GPU."""
    if hasattr(config, "workerinput"):
        counts = Counter(item.path for item in items)
        items.sort(key=lambda item: (not item.nodeid.startswith(BROWSER), item.path.name not in LONG,
                                     -counts[item.path], item.path))
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))
