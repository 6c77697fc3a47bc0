"""Files of pages are decoded in a bounded program: whatever they do there, the viewer goes on and nothing stays."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support import scene_files as w
from support.memory_data import event, snapshot

from splatview_viewer.core.errors import FileError
from splatview_viewer.core.jobs import Cancelled
from splatview_viewer.formats import open_file, sandbox
from splatview_viewer.kinds.files import read_untrusted
from splatview_viewer.scene.scene import FIELDS
from splatview_viewer.snapshot.model import MemorySnapshot

pytestmark = pytest.mark.programs
T = w.truth(50)


def when_started(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Call `act` with the id of each program that is started."""

    class Started(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            act(self.pid)

    monkeypatch.setattr(subprocess, "Popen", Started)


def test_read_untrusted_returns_what_open_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the name of the file is another's by the time it is read: it is opened by its descriptor."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scene, picture, memory = (
        tmp_path / f"a.{suffix}" for suffix in ("ply", "png", "pickle")
    )
    w.write_ply(scene, w.ply_columns(T), header="comment Vertical axis: -z\n")
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(picture)
    memory.write_bytes(
        pickle.dumps(snapshot([event("alloc", 512), event("free", 512)]))
    )
    paths = [scene, picture, memory]
    said = list[float]()
    expected: list[Any] = [open_file(path) for path in paths[:2]]

    def started(pid: int) -> None:
        if path is not memory:
            path.unlink()
            path.write_bytes(b"another one")

    when_started(monkeypatch, started)
    got: list[Any] = []
    for path in paths:
        got.append(read_untrusted(path, lambda what, fraction: said.append(fraction)))
    assert all(
        torch.equal(getattr(got[0], name), getattr(expected[0], name))
        for name in FIELDS
    )
    assert (got[0].notes, got[0].sh_degree, got[0].up) == (
        expected[0].notes,
        expected[0].sh_degree,
        expected[0].up,
    )
    np.testing.assert_array_equal(got[1], expected[1])
    # they can be written
    got[0].means[0] = 1
    got[1][0] = 1
    assert isinstance(got[2], MemorySnapshot)
    assert len(got[2].traces[0].events) == 2
    assert said
    assert all(0 <= fraction <= 1 for fraction in said)


# -- hostile files -----------------------------------------------------------------------------------------------------


def test_a_file_that_takes_too_much_memory_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = w.write_ply(tmp_path / "a.ply", w.ply_columns(w.truth(60_000)))
    monkeypatch.setattr(
        sandbox, "BASE", (4 << 20) - sandbox.PER_BYTE * path.stat().st_size
    )
    with pytest.raises(FileError, match=r"a\.ply: not enough memory"):
        read_untrusted(path)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGSEGV, r"crashed \(SIGSEGV\)"),
        (signal.SIGKILL, "not enough memory"),
        (signal.SIGXCPU, "processor's time"),
    ],
)
def test_a_program_that_crashes_is_an_error_of_its_file(
    number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    when_started(monkeypatch, lambda pid: os.kill(pid, number))
    with pytest.raises(FileError, match=words):
        read_untrusted(w.write_splat(tmp_path / "a.splat", T))


def test_a_cancel_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    when_started(monkeypatch, started.append)

    def progress(what: str, fraction: float) -> None:
        if started:
            raise Cancelled

    with pytest.raises(Cancelled):
        read_untrusted(w.write_splat(tmp_path / "a.splat", T), progress)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_a_scene_in_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_bytes(w.sog_files(T)["meta.json"])
    with pytest.raises(FileError, match=r"send the scene as one \.sog file"):
        read_untrusted(tmp_path / "meta.json")
    with pytest.raises(FileError, match="cannot be read"):
        read_untrusted(tmp_path)


# -- a program that lies -----------------------------------------------------------------------------------------------

BEGIN = """import json, os, sys
def done(answer, *columns):
    os.ftruncate(json.loads(sys.argv[1])["out"], 4096)
    print(json.dumps(["done", answer, [dict(zip(("dtype", "shape"), column)) for column in columns]]))
def scene(*shapes, **facts):
    done({"type": "scene", **facts}, *(("f4", shape) for shape in shapes))
FIT = [3, 3], [3, 4], [3, 3], [3], [3, 3], [3, 0, 3]
"""
OUTSIDE = "described an array outside its result"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("print('nonsense')", "described the result wrongly"),
        ('print(\'["error","damaged"]\')', "damaged"),
        (
            "while True: print('x' * 65536, end='')",
            "more than 1,048,576 bytes without an end of line",
        ),
        ("done({'type': 'picture'}, ('u1', [64, 65, 1]))", OUTSIDE),
        ("done({'type': 'picture'}, ('u1', [1 << 40, 1 << 40, 1]))", OUTSIDE),
        (
            "done({'type': 'picture'}, ('f8', [4, 4, 1]))",
            "described a picture of shape",
        ),
        ("scene(*FIT, sh_degree=5)", "described the result wrongly"),
        ("scene(*FIT[:5])", "described"),
        ("scene(*[[3, 3]] * 6)", "legal are|is needed with"),
    ],
)
def test_a_program_that_lies_is_an_error(
    code: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "splatview_ipc.system.child_program.command",
        lambda module, job: [sys.executable, "-c", BEGIN + code, job],
    )
    with pytest.raises(FileError, match=words):
        read_untrusted(w.write_splat(tmp_path / "a.splat", T))


def test_a_program_that_never_answers_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "WAIT_BASE", 0)
    monkeypatch.setattr(sandbox, "WAIT_FACTOR", 0)
    monkeypatch.setattr(
        "splatview_ipc.system.child_program.command",
        lambda module, job: [sys.executable, "-c", "import time; time.sleep(600)"],
    )
    with pytest.raises(FileError, match="does not answer"):
        read_untrusted(w.write_splat(tmp_path / "a.splat", T))


def test_what_a_program_complains_is_bounded_and_its_last_line_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "os.write(2, b'first\\nlast words\\n')\nos._exit(3)"
    flood = "while True: os.write(2, b'x' * 4096)"
    for program, words in ((code, "ended with 3: last words"), (flood, "ended with 1")):
        monkeypatch.setattr(
            "splatview_ipc.system.child_program.command",
            lambda module, job, program=program: [
                sys.executable,
                "-c",
                BEGIN + program,
                job,
            ],
        )
        with pytest.raises(FileError, match=words):
            read_untrusted(w.write_splat(tmp_path / "a.splat", T))


def test_the_time_of_a_decoder_has_an_end_that_it_cannot_ignore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []
    limits: list[str] = []
    when_started(monkeypatch, pids.append)

    def progress(what: str, fraction: float) -> None:
        if pids and what == "writing arrays":
            limits.append(Path(f"/proc/{pids[0]}/limits").read_text())

    read_untrusted(w.write_splat(tmp_path / "a.splat", T), progress)
    line = next(line for line in limits[0].splitlines() if "cpu time" in line)
    soft, hard = line.split()[3:5]
    assert 0 < int(soft) < int(hard) < 100


def test_secrets_of_the_environment_stay_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "SSH_AUTH_SOCK")
    for name in (*secrets, "OTHER"):
        monkeypatch.setenv(name, "value")
    code = f"told = {{k for k in os.environ if k in {(*secrets, 'OTHER')}}}\n"
    code += "print(json.dumps(['error', str(sorted(told))]))"
    monkeypatch.setattr(
        "splatview_ipc.system.child_program.command",
        lambda module, job: [sys.executable, "-c", BEGIN + code, job],
    )
    with pytest.raises(FileError, match=r"\['OTHER'\]"):
        read_untrusted(w.write_splat(tmp_path / "a.splat", T))


def test_a_result_cannot_be_written_after_it_was_checked() -> None:
    fd = os.memfd_create("splatview-test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    room = sandbox.seal_and_map(fd)
    for change in (lambda: os.pwrite(fd, b"x", 0), lambda: os.ftruncate(fd, 0)):
        with pytest.raises(OSError, match="not permitted"):
            change()
    assert room is not None
    room[0] = 1  # this process's own copy of the page
    assert os.pread(fd, 1, 0) == b"\0"
    os.close(fd)
