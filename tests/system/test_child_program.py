"""Child programs: their output, how they end, and with which process."""

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
end_with_parent(0.01 if "impatient" in sys.argv else None)
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("libEGL warning: failed to open", file=sys.stderr)
print("out", *sys.argv[1:], flush=True)
print("error line", file=sys.stderr, flush=True)
if "ends" in sys.argv:
    sys.exit(7)
if "stays" in sys.argv:
    signal.pause()
else:
    print("read", sys.stdin.readline(), flush=True)
"""


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment in which `child` is a module."""
    (tmp_path / "child.py").write_text(_CHILD)
    folders = [str(tmp_path)]
    python_path = os.environ.get("PYTHONPATH")
    if python_path:
        folders.append(python_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(folders))
    return dict(os.environ)


def test_last_error_lines_are_kept_without_pipes_and_without_noise(
    env: dict[str, str],
) -> None:
    program = ChildProgram("child", "ends", env=env)
    assert program.wait() == 7
    assert not program.is_running()
    assert program.exit_code == 7
    program.end()
    assert program.last_error_lines() == "out ends\nerror line"


def test_pipes_carry_lines_both_ways(env: dict[str, str]) -> None:
    program = ChildProgram("child", env=env, pipes=True)
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stdout.readline() == "out\n"
    program.stdin.write("hello\n")
    program.stdin.flush()
    assert program.stdout.readline() == "read hello\n"
    assert program.wait() == 0
    program.end()
    assert program.last_error_lines() == "error line"


@pytest.mark.parametrize(
    ("has_on_output", "expected_output", "expected_errors"),
    [
        (True, ["out ends"], ["error line"]),
        # Without `on_output` both streams are one.
        (False, [], ["out ends", "error line"]),
    ],
)
def test_callbacks_get_each_line_of_their_stream(
    has_on_output: bool,
    expected_output: list[str],
    expected_errors: list[str],
    env: dict[str, str],
) -> None:
    output: list[str] = []
    errors: list[str] = []
    program = ChildProgram(
        "child",
        "ends",
        env=env,
        on_output=output.append if has_on_output else None,
        on_error=errors.append,
    )
    program.wait()
    program.end()
    assert output == expected_output
    assert errors == expected_errors
    assert "error line" in program.last_error_lines()


def test_end_kills_a_program_that_ignores_sigterm(env: dict[str, str]) -> None:
    program = ChildProgram("child", "stubborn", "stays", env=env, pipes=True)
    assert program.stdout is not None
    program.stdout.readline()
    program.end(timeout_s=0.05)
    program.end()
    assert program.exit_code == -signal.SIGKILL


_PARENT = """
import os, signal, sys, threading
from splatview_ipc.system.child_program import ChildProgram
children = []
def start():
    children.append(ChildProgram("child", "stays", *sys.argv[1:], pipes=True))
thread = threading.Thread(target=start)
thread.start()
thread.join()
children[0].stdout.readline()
if not os.fork():
    children[0].end()
    children.clear()
    os._exit(0)
os.wait()
forked = os.fork()
if not forked:
    os.close(1)
    signal.pause()
print(children[0].pid, forked, children[0].is_running(), flush=True)
sys.stdin.readline()
children.clear()
sys.stdin.readline()
"""
"""Starts a child in a thread that ends at once, then forks: `end` in a forked process must
not reach the child, and a forked process that lives on must not keep it alive."""


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("parent killed", ()),
        ("parent killed", ("stubborn", "impatient")),
        ("object collected", ()),
    ],
)
def test_child_ends_with_the_process_or_the_object_that_started_it(
    cause: str, words: tuple[str, ...], env: dict[str, str], programs: Programs
) -> None:
    parent = programs.code(_PARENT, *words, **env)
    pid, forked_pid, is_running = parent.line().split()
    assert is_running == "True"
    if cause == "parent killed":
        parent.killed()
    else:
        parent.write_line()
    try:
        wait_until(lambda: not _is_alive(int(pid)))
        assert _is_alive(int(forked_pid))
    finally:
        os.kill(int(forked_pid), signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    state = stat.rpartition(")")[2].split()[0]
    return state != "Z"
