"""Fixtures of all tests: real data, a runtime folder for each, a virtual screen, programs that end with their test."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.register_assert_rewrite("support")

from support import leaks  # noqa: E402
from support.programs import ROOT, Programs  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    import moderngl

    from splatview_ipc.subscriber.subscriber import Subscriber
    from splatview_viewer.screens.offscreen import OffscreenScreen

# Threads of torch that spin while they wait for one another get in each other's way beside other programs: one test
# takes 80 s instead of 2. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Without bytecode each worker rewrites the assertions of all tests, and each program compiles splatview again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

DATA = Path(os.environ.get("SPLATVIEW_TEST_DATA", ROOT.parent / "shared" / "data"))
W = 64
H = 48
_numbers = itertools.count()


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Real scenes, cameras and reference pictures. SPLATVIEW_TEST_DATA names the folder."""
    if not DATA.is_dir():
        pytest.skip(f"no test data in {DATA}; SPLATVIEW_TEST_DATA names the folder")
    return DATA


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fails a test that leaves a thread, a descriptor or a program behind, naming the line that made it."""
    before = leaks.OpenResources()
    yield
    before.check()


@pytest.fixture(autouse=True)
def runtime_dir(nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder for each test, so that no test sees another's runs, or the user's."""
    folder = (
        Path("/tmp") / f"sv-test-{os.getpid()}-{next(_numbers)}"
    )  # short: sockets are made in it
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(folder))
    for name in ("SPLATVIEW_DISABLE", "SPLATVIEW_STRICT", "SPLATVIEW_NAME"):
        monkeypatch.delenv(name, raising=False)
    yield folder
    api = sys.modules.get("splatview.api.session")
    if api is not None:
        api.session().close()
    reading = sys.modules.get("splatview.api.frames")
    if reading is not None:
        reading.last_frames.clear()  # the next test annotates its own frames
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def subscriber(runtime_dir: Path) -> Iterator[Subscriber]:
    """A viewer of all runs, polled by the test."""
    from splatview_ipc.subscriber.subscriber import Subscriber

    with Subscriber() as made:
        yield made


@pytest.fixture(scope="module")
def ctx() -> Iterator[moderngl.Context]:
    """An OpenGL context without a screen. Set-up installs what it needs, so that its absence is a failure."""
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
    """A screen in memory, W by H pixels; a test that leaves an error of OpenGL behind fails."""
    module_screen.resize(W, H, 1.0)
    module_screen.framebuffer.clear(0.0, 1.0, 0.0, 1.0)
    yield module_screen
    assert module_screen.ctx.error == "GL_NO_ERROR"


@pytest.fixture(scope="session")
def timeline_kernels() -> None:
    """The compiled kernels of memory timelines, so that none arrives in the middle of a test."""
    from splatview_viewer.snapshot.timeline.compiled import kernels

    kernels()


@pytest.fixture(scope="session")
def display() -> Iterator[str]:
    """A display for windows: the user's, or a virtual one."""
    if os.environ.get("DISPLAY"):
        yield os.environ["DISPLAY"]
        return
    if shutil.which("Xvfb") is None:
        pytest.skip("no display and no Xvfb: apt-get install xvfb")
    read, write = os.pipe()
    server = subprocess.Popen(
        [
            "Xvfb",
            "-displayfd",
            str(write),
            "-screen",
            "0",
            "1600x1000x24",
            "-nolisten",
            "tcp",
            "-noreset",
        ],  # without it, the server starts over when its last window closes
        pass_fds=[write],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    with os.fdopen(read) as answer:
        number = answer.readline().strip()  # Xvfb picks a free number and prints it
    assert number, "Xvfb did not start"
    os.environ["DISPLAY"] = f":{number}"
    yield f":{number}"
    os.environ.pop("DISPLAY", None)
    server.terminate()
    server.wait()


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    """Starts programs, which end with the test."""
    with Programs(tmp_path) as started:
        yield started


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    """Starts programs for all tests of a module. Pass them a SPLATVIEW_RUNTIME_DIR: that of each test is its own."""
    with Programs(tmp_path_factory.mktemp("lasting")) as started:
        yield started


def pytest_configure() -> None:
    leaks.install()
    if (
        signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    ):  # a shell starts background programs this way
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # programs of the tests inherit it
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # so does nohup
        signal.signal(
            signal.SIGHUP, lambda *_: None
        )  # the default in programs of the tests


_STARTS_PROGRAMS = re.compile(
    r"\b(programs|lasting|display|chromium|open_page)\b: |mark\.programs|mark\.display"
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one worker, and all files that start programs, windows or a browser to the same one."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            alone = "/soak/" not in file and _STARTS_PROGRAMS.search(
                (config.rootpath / file).read_text()
            )
            return "programs" if alone else file

    return Scheduling(config, log)


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
    """Say in one line what was left out."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", ())]
    reasons = Counter(
        place[2].removeprefix("Skipped: ")
        for place in skipped
        if isinstance(place, tuple)
    )
    left_out = [f"{count} ({reason})" for reason, count in reasons.most_common()]
    if "not soak" in str(config.getoption("markexpr")):
        left_out.append(
            "tests/soak, tests/fuzz and long journeys in a browser (make soak)"
        )
    if left_out:
        terminalreporter.write_line("left out: " + ", ".join(left_out))
