"""Fixtures of all tests: real data, runtime folders, screens, programs that end."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import re
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.register_assert_rewrite("support")

from support import leaks  # noqa: E402
from support.programs import ROOT, Programs  # noqa: E402
from support.virtual_display import virtual_display  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.screens.offscreen import OffscreenScreen

# Threads of torch that spin while they wait for one another get in each other's way
# beside other programs: one test takes 80 s instead of 2. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Mesa's software renderer has threads for each context. The tests' pictures are small,
# and the other processors busy: without those threads they take 7 % less.
os.environ.setdefault("LP_NUM_THREADS", "0")

# Without bytecode each worker rewrites the assertions of all tests, and each program
# compiles splatview again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

DATA = Path(os.environ.get("SPLATVIEW_TEST_DATA", ROOT.parent / "shared" / "data"))
W = 64
H = 48
_folder_ids = itertools.count()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real scenes, cameras and reference pictures.

    SPLATVIEW_TEST_DATA names the folder.
    """
    if not DATA.is_dir():
        pytest.skip(f"no test data in {DATA}; SPLATVIEW_TEST_DATA names the folder")
    return DATA


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail a test that leaves a thread, a descriptor or a program behind.

    The failure names the line that made it.
    """
    resources = leaks.OpenResources()
    yield
    resources.check()


@pytest.fixture(autouse=True)
def runtime_dir(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give each test a runtime folder, so that it sees no run of others."""
    # The path is short, as sockets lie in this folder.
    folder = Path("/tmp") / f"sv-test-{os.getpid()}-{next(_folder_ids)}"
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(folder))
    for name in ("SPLATVIEW_DISABLE", "SPLATVIEW_STRICT", "SPLATVIEW_NAME"):
        monkeypatch.delenv(name, raising=False)
    yield folder
    api = sys.modules.get("splatview.api.session")
    if api is not None:
        api.session().close()
        api.first_features.clear()
    declaring: Any = sys.modules.get("splatview.api.script_controls")
    if declaring is not None:
        # The next test's runs have the controls alone that it declares.
        declaring.registry = declaring.ControlRegistry()
    reading = sys.modules.get("splatview.api.frames")
    if reading is not None:
        # The next test annotates its own frames.
        reading.last_frames.clear()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def subscriber(runtime_dir: Path) -> Iterator[Subscriber]:
    """Yield a viewer of all runs, which the test polls."""
    from splatview_ipc.subscriber.subscriber import Subscriber

    with Subscriber() as viewer:
        yield viewer


@pytest.fixture(scope="module")
def ctx() -> Iterator[moderngl.Context]:
    """Yield an OpenGL context without a screen.

    Set-up installs what it needs, so that its absence is a failure.
    """
    from splatview_viewer.screens.egl import create_context

    context = create_context()
    yield context
    context.release()


@pytest.fixture(scope="module")
def module_screen() -> Iterator[OffscreenScreen]:
    from splatview_viewer.screens.offscreen import OffscreenScreen

    screen = OffscreenScreen(W, H)
    yield screen
    screen.close()


@pytest.fixture
def screen(module_screen: OffscreenScreen) -> Iterator[OffscreenScreen]:
    """Yield a screen in memory, W by H pixels; fail a test that leaves a GL error."""
    module_screen.resize(W, H, 1.0)
    module_screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    yield module_screen
    assert module_screen.ctx.error == "GL_NO_ERROR"


@pytest.fixture(scope="session")
def timeline_kernels() -> None:
    """Compile the kernels of memory timelines before the test starts."""
    from splatview_viewer.snapshot.timeline.compiled import kernels

    kernels()


@pytest.fixture(scope="session")
def display() -> Iterator[str]:
    """Yield a display for windows: the user's, or a virtual one."""
    if os.environ.get("DISPLAY"):
        yield os.environ["DISPLAY"]
        return
    if shutil.which("Xvfb") is None:
        pytest.skip("no display and no Xvfb: apt-get install xvfb")
    with virtual_display() as name:
        os.environ["DISPLAY"] = name
        yield name
        os.environ.pop("DISPLAY", None)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Yield a starter of programs, which end with the test."""
    with Programs(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Yield a starter of programs, which end with the module.

    Pass them a SPLATVIEW_RUNTIME_DIR, as each test has one of its own.
    """
    with Programs(tmp_path_factory.mktemp("lasting")) as started:
        yield started


def pytest_configure() -> None:
    leaks.install()
    # Programs of the tests inherit ignored signals. A shell ignores SIGINT for programs
    # in the background, nohup SIGHUP. A program that is started gets the default of a
    # signal that has a handler here.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, ignore_signal)


def ignore_signal(*_: object) -> None:
    pass


_OPENS_PAGES = re.compile(r"\b(chromium|open_page)\b: ")
_STARTS_PROGRAMS = re.compile(
    r"\b(programs|lasting|display)\b: |mark\.programs|mark\.display"
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one worker, and files that start programs to the same ones.

    All files that open pages share one browser. All others that start programs or open
    windows are another group: in one with the pages it would be the last to end.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    @functools.cache
    def group(file: str) -> str:
        if "/soak/" in file:
            return file
        source = (config.rootpath / file).read_text()
        if _OPENS_PAGES.search(source):
            return "pages"
        if _STARTS_PROGRAMS.search(source):
            return "programs"
        return file

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(super()._split_scope(nodeid))

    return Scheduling(config, log)


def pytest_collection_finish() -> None:
    """Have no collection of garbage walk through all tests and what they import."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `cuda` where there is no GPU."""
    marked = [item for item in items if item.get_closest_marker("cuda")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Write one line about the tests that were left out."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", ())]
    reasons = Counter(
        report[2].removeprefix("Skipped: ")
        for report in skipped
        if isinstance(report, tuple)
    )
    left_out = [f"{count} ({reason})" for reason, count in reasons.most_common()]
    if "not soak" in str(config.getoption("markexpr")):
        left_out.append(
            "tests/soak, tests/fuzz and long journeys in a browser (make soak)"
        )
    if left_out:
        terminalreporter.write_line("left out: " + ", ".join(left_out))
