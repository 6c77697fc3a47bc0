"""Child programs: what they say, how they end, and with whom."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.programs import Programs
from support.wait import wait_until

from splatview_ipc.system.child_program import ChildProgram

_CHILD = """
import os, signal, sys
from splatview_ipc.system.child_program import end_with_parent
end_with_parent()
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("libEGL warning: failed to open", file=sys.stderr)
print("out", *sys.argv[1:], flush=True)
print("words", file=sys.stderr, flush=True)
if "ends" in sys.argv:
    sys.exit(7)
signal.pause() if "stays" in sys.argv else print("read", sys.stdin.readline(), flush=True)
"""


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment in which `child` is a module."""
    (tmp_path / "child.py").write_text(_CHILD)
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]),
    )
    return dict(os.environ)


def test_last_words_are_kept_without_pipes_and_without_noise(
    env: dict[str, str],
) -> None:
    program = ChildProgram("child", "ends", env=env)
    assert program.wait() == 7
    assert (program.is_running(), program.exit_code) == (False, 7)
    program.end()
    assert program.last_error_lines() == "out ends\nwords"


def test_pipes_carry_lines(env: dict[str, str]) -> None:
    program = ChildProgram("child", env=env, pipes=True)
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "out\n"
    program.stdin.write("hello\n")
    program.stdin.flush()
    assert program.stdout.readline() == "read hello\n"
    assert program.wait() == 0
    program.end()
    assert program.last_error_lines() == "words"


@pytest.mark.parametrize("apart", [True, False])
def test_lines_are_handed_on_as_they_come(apart: bool, env: dict[str, str]) -> None:
    """Without `on_output` both streams are one."""
    output = list[str]()
    errors = list[str]()
    program = ChildProgram(
        "child",
        "ends",
        env=env,
        on_output=output.append if apart else None,
        on_error=errors.append,
    )
    program.wait()
    program.end()
    assert (output, errors) == (
        (["out ends"], ["words"]) if apart else ([], ["out ends", "words"])
    )
    assert "words" in program.last_error_lines()


def test_end_kills_what_ignores_its_signal(env: dict[str, str]) -> None:
    program = ChildProgram("child", "stubborn", "stays", env=env, pipes=True)
    assert program.stdout is not None
    program.stdout.readline()
    program.end(0.05)
    program.end()
    assert program.exit_code == -signal.SIGKILL


_PARENT = """
import os, signal, sys, threading
from splatview_ipc.system.child_program import ChildProgram
kept = []
thread = threading.Thread(target=lambda: kept.append(ChildProgram("child", "stays", pipes=True)))
thread.start()
thread.join()
kept[0].stdout.readline()
if not os.fork():
    kept[0].end()
    kept.clear()
    os._exit(0)
os.wait()
forked = os.fork()
if not forked:
    os.close(1)
    signal.pause()
print(kept[0].pid, forked, kept[0].is_running(), flush=True)
sys.stdin.readline()
kept.clear()
sys.stdin.readline()
"""


@pytest.mark.parametrize("way", ["killed", "dropped"])
def test_a_program_ends_with_the_process_or_the_object_that_started_it(
    way: str, env: dict[str, str], programs: Programs
) -> None:
    """Killed, although a thread that is gone started it and a forked child lives on; or no longer kept. What a forked
    child does with it changes nothing.
    """
    process = programs.code(_PARENT, **env)
    pid, forked, running = process.line().split()
    assert running == "True"
    if way == "killed":
        process.killed()
    else:
        process.say()
    try:
        wait_until(lambda: not _runs(int(pid)))
        assert _runs(int(forked))
    finally:
        os.kill(int(forked), signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
