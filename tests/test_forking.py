"""Forked programs are as started ones: streams, arguments, exit status, signals and the way they end."""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from forking import ROOT, ForkedProgram, Forker, ForkServer, _shared, readable, server
from open_files import open_files
from patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from programs import Processes


def both(processes: Processes, source: str, *args: str, **env: str) -> list[tuple[str, str, int]]:
    """What a forked and a started program say on both streams, and how they end."""
    forked, started = processes.code(source, *args, **env), processes.python("-c", source, *args, **env)
    assert isinstance(forked, ForkedProgram) and not isinstance(started, ForkedProgram)
    said = [(p, *p.communicate("asked\n", timeout=PATIENCE)) for p in (forked, started)]
    return [(out, err, p.returncode) for p, out, err in said]


@pytest.mark.exhaustive
@pytest.mark.parametrize("source", [
    "import sys; print(sys.argv, sys.stdin.readline(), end=''); print('err', file=sys.stderr)",
    "import sys; sys.exit(3)",
    "import sys; sys.exit('words')",
    "import os; os._exit(4)",
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "import atexit, threading, time\natexit.register(print, 'last')\n"
    "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\nprint('first')",
    "import os; print(os.getcwd(), os.environ['SPLATVIEW_NAME'], __name__, __builtins__ is not None)",
    "class A: pass\nimport sys; print(A.__module__, sys.modules['__main__'].A is A)",
    "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:3])",
])
def test_it_is_as_one_that_was_started(source: str, processes: Processes) -> None:
    forked, started = both(processes, source, "one", "ü", SPLATVIEW_NAME="called")
    assert forked == started


@pytest.mark.parametrize(("args", "env"), [
    (["-c", "import sys; print(sys.argv, sys.stdin.readline(), end=''); print('err', file=sys.stderr)", "ü"], {}),
    (["-c", "import sys; sys.exit('words')"], {}),
    (["-c", "import atexit, sys; atexit.register(print, 'last'); print('first'); sys.exit(3)"], {}),
    (["-c", "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()"], {}),
    (["-c", "import os; os._exit(4)"], {}),
    (["-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"], {}),
    (["-c", "import sys; sys.stdout = sys.stderr = None"], {}),
    (["-m", "json.tool", "--indent", "3", "given.json"], {}),
    (["-m", "json.tool", "nothing.json", "--what"], {}),
    (["given.py", "one"], {}), (["given.py", "one"], {"PYTHONPATH": str(ROOT / "tests")}),
    (["-m", "splatview", "--version"], {"PYTHONSAFEPATH": "1"}), (["-m", "splatview.camera"], {}),
    (["-m", "splatview.viewer_app", "shot", "a.png", "--size", "12"], {}),
])
def test_a_forked_program_is_as_a_started_one(args: list[str], env: dict[str, str], processes: Processes,
                                              tmp_path: Path) -> None:
    (tmp_path / "given.json").write_text('{"a": [1, 2]}')
    (tmp_path / "beside.py").write_text("name = __name__")
    (tmp_path / "given.py").write_text("import beside, os, sys\n"
                                       "print(sys.argv[1:], __name__, beside.name, os.getcwd())\n"
                                       "print(os.path.samefile(__file__, sys.argv[0]))\nsys.exit(2)")
    forked, started = processes.forked(*args, **env), processes.python(*args, **env)
    assert isinstance(forked, ForkedProgram) and not isinstance(started, ForkedProgram)
    one, other = [(*p.communicate("asked\n", timeout=PATIENCE), p.returncode) for p in (forked, started)]
    assert one == other


def test_a_forked_program_forks_what_it_starts(processes: Processes, wait_until: Callable[..., object]) -> None:
    """On the leash that ends it, and with its streams, its exit status and the variables that it is given."""
    program = processes.forked("-c", """
import os, subprocess, sys
from splatview import programs
code = programs.start("splatview.camera", "nonsense", stderr=subprocess.PIPE)
print(type(code).__name__, b"usage" in code.communicate()[1], code.returncode)
grabs = programs.start("splatview.viewer_app", "grab", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(b"ready" in grabs.stdout.readline(), os.getsid(grabs.pid) == grabs.pid, grabs.pid, flush=True)
sys.stdin.readline()
os._exit(0)
""")
    assert program.stdout is not None and program.stdin is not None
    assert program.stdout.readline().split() == ["ForkedProgram", "True", "2"]
    *words, pid = program.stdout.readline().split()
    assert words == ["True", "True"]
    watched = os.pidfd_open(int(pid))
    try:
        program.stdin.write("\n")
        program.stdin.flush()
        assert select.select([watched], [], [], PATIENCE)[0]
    finally:
        os.close(watched)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())  # no zombie is left where the parent did not wait


def test_an_error_is_told_as_usual(processes: Processes) -> None:
    (_, forked, one), (_, started, other) = both(processes, "raise ValueError('so')")
    assert one == other == 1 and forked.endswith("ValueError: so\n") and started.endswith("ValueError: so\n")


def test_it_is_ended_waited_for_and_leaves_nothing(processes: Processes) -> None:
    server()
    before = open_files()
    program = processes.code("import time\nprint('up', flush=True)\ntime.sleep(1000)")
    assert program.stdout is not None and program.stdout.readline() == "up\n" and program.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(0.01)
    program.terminate()
    assert program.wait() == -signal.SIGTERM == program.poll()
    program.kill()  # does nothing any more
    processes.close()
    assert open_files() <= before


@pytest.mark.exhaustive
def test_workers_share_one_server_that_ends_with_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_TESTRUNUID", secrets.token_hex(8))
    first, second, third = (_shared(()) for _ in range(3))
    assert isinstance(first, ForkServer) and first.env == second.env == third.env

    def status(forker: Forker) -> int:
        pid, watched = forker.fork("import os; os._exit(5)", [], [0, 1, 2], {}, "/")
        assert readable(watched, PATIENCE)
        os.close(watched)
        return os.waitstatus_to_exitcode(forker.status(pid))

    for forker in (first, second, third):
        assert status(forker) == 5
    for forker in (first, second):
        forker._ours.close()
        assert status(third) == 5
    third._ours.close()
    assert first._process.wait(PATIENCE) == 0


@pytest.mark.exhaustive
def test_an_interrupted_request_leaves_no_answer_to_the_next_one() -> None:
    forker = ForkServer()

    def fork(status: int) -> tuple[int, int]:
        return forker.fork(f"import os; os._exit({status})", [], [0, 1, 2], {}, "/")

    try:
        os.kill(forker._process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, forker._process.pid, os.WSTOPPED)
        forker._ours.setblocking(False)
        with pytest.raises(BlockingIOError):  # as if a signal's handler had raised while the answer is waited for
            fork(5)
        os.kill(forker._process.pid, signal.SIGCONT)
        forker._ours.settimeout(PATIENCE)
        pid, watched = fork(6)
        (interrupted,) = forker.started_by(os.getpid()).keys() - {pid}
        for one, fd, status in ((pid, watched, 6), (interrupted, os.pidfd_open(interrupted), 5)):
            assert readable(fd, PATIENCE)
            os.close(fd)
            assert [os.waitstatus_to_exitcode(forker.status(one)) for _ in range(2)] == [status, status]
        assert not forker.started_by(os.getpid())
    finally:
        forker.close()


@pytest.mark.exhaustive
def test_destructors_of_loaded_libraries_run_only_on_request(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "aborts_at_exit.py").write_text("import ctypes; c = ctypes.CDLL(None); c.on_exit(c.abort, None)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    forker = ForkServer("aborts_at_exit")
    try:
        for destructors, status in ((False, 3), (True, -signal.SIGABRT)):
            program = ForkedProgram([sys.executable, "-c", "import sys; print('last'); sys.exit(3)"], forker=forker,
                                    destructors=destructors, stdout=subprocess.PIPE, text=True, env=forker.env)
            assert program.communicate(timeout=PATIENCE)[0] == "last\n"
            assert program.returncode == status
    finally:
        forker.close()


def test_what_is_read_at_the_start_is_started(processes: Processes, monkeypatch: pytest.MonkeyPatch,
                                              tmp_path: Path) -> None:
    assert not isinstance(processes.code("pass", PYTHONUNBUFFERED="certainly"), ForkedProgram)
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert not isinstance(processes.code("pass"), ForkedProgram)
    monkeypatch.undo()
    assert isinstance(processes.code("pass", SPLATVIEW_RUNTIME_DIR=str(tmp_path)), ForkedProgram)


@pytest.mark.exhaustive
def test_it_ends_with_whoever_asked_also_where_that_is_killed(processes: Processes) -> None:
    asks = processes.python("-c", "import os, pathlib, signal, sys; sys.path.insert(0, sys.argv[1])\n"
                            "from programs import Processes\n"
                            "p = Processes(pathlib.Path()).code('import time; time.sleep(1000)')\n"
                            "print(p.pid, flush=True); sys.stdin.readline(); os.kill(os.getpid(), signal.SIGKILL)",
                            str(ROOT / "tests"))
    assert asks.stdout is not None and asks.stdin is not None
    watched = os.pidfd_open(int(asks.stdout.readline()))
    try:
        assert not select.select([watched], [], [], 0)[0]
        asks.stdin.write("\n")
        asks.stdin.flush()
        assert select.select([watched], [], [], PATIENCE)[0]
    finally:
        os.close(watched)
    assert asks.wait() == -signal.SIGKILL
