"""Standard streams that are full or broken, and text of others in them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
import torch
from support.programs import environment
from support.wait import PATIENCE

import splatview
from splatview.api import session as publishing
from splatview_ipc.control.registry import Announcement

pytestmark = pytest.mark.programs
def ended(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """`splatview ARGS`."""
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                             "env": environment(), **options}
    return subprocess.run([sys.executable, "-m", "splatview", *args], text=True, errors="surrogateescape",
                          timeout=PATIENCE, check=False, **given)


def test_a_broken_pipe_ends_a_program_without_a_word() -> None:
    read, write = os.pipe()
    os.close(read)
    done = ended("--version", stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


# -- trainers ------------------------------------------------------------------------------------------------------


def test_a_trainer_that_cannot_say_anything_publishes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", full)
            for step in range(3):
                publishing.fault(OSError(step, "a fault that is told"))
                splatview.publish(torch.zeros(4, 4), step=step)
        with contextlib.suppress(OSError):  # what is left in its buffer
            full.close()
    with splatview.frames("image") as frames:
        assert frames.latest(PATIENCE).meta["step"] == 2


# -- text of others ------------------------------------------------------------------------------------------------


EVIL = "a\x1b[31m\n\u202e\u200b\x9b2J\x07 \u00e4\u72d0"
OBEYED = [c for c in EVIL if not c.isprintable()]


def test_status_prints_nothing_that_a_terminal_obeys(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run, a stream of it and a viewer have hostile names, and the terminal knows ASCII alone."""
    monkeypatch.setenv("SPLATVIEW_NAME", EVIL)
    monkeypatch.setattr("splatview.adapters.checks.stream_name", lambda name: None)  # as a trainer that is not ours
    splatview.publish(torch.zeros(4, 4), EVIL)
    with Announcement("http://127.0.0.1:7013/", host="127.0.0.1", port=7013, run=EVIL):
        done = ended("status", env=environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"))
    assert (done.returncode, done.stderr) == (0, "")
    assert not any(c in done.stdout.replace("\n", "") for c in OBEYED)
    assert len(done.stdout.splitlines()) == 3, "a name makes no line of its own"
    assert done.stdout.count("a\\x1b[31m\\n\\u202e") == 3


def test_errors_print_nothing_that_a_terminal_obeys() -> None:
    done = ended("nonsense\x1b[31m\udcff")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert not any(c in done.stderr.replace("\n", "") for c in (*OBEYED, "\udcff"))
