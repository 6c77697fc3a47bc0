"""A bounded program decodes the files of pages.

Whatever a file does there, the viewer keeps running and nothing of it stays.
"""

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


def test_read_untrusted_returns_the_same_as_open_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is opened by its descriptor.

    Its name may be that of another file by the time it is read.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scene = tmp_path / "a.ply"
    picture = tmp_path / "a.png"
    memory = tmp_path / "a.pickle"
    w.write_ply(scene, w.ply_columns(T), header="comment Vertical axis: -z\n")
    Image.fromarray(np.arange(300, dtype=np.uint8).reshape(10, 10, 3)).save(picture)
    memory.write_bytes(
        pickle.dumps(snapshot([event("alloc", 512), event("free", 512)]))
    )
    paths = [scene, picture, memory]
    fractions = list[float]()
    expected: list[Any] = [open_file(path) for path in paths[:2]]

    def started(pid: int) -> None:
        if path is not memory:
            path.unlink()
            path.write_bytes(b"another one")

    when_started(monkeypatch, started)
    values: list[Any] = []

    def note_progress(step: str, fraction: float) -> None:
        fractions.append(fraction)

    for path in paths:
        values.append(read_untrusted(path, note_progress))
    gaussians, pixels, memory_snapshot = values
    expected_scene, expected_pixels = expected
    for name in FIELDS:
        assert torch.equal(getattr(gaussians, name), getattr(expected_scene, name))
    assert gaussians.notes == expected_scene.notes
    assert gaussians.sh_degree == expected_scene.sh_degree
    assert gaussians.up == expected_scene.up
    np.testing.assert_array_equal(pixels, expected_pixels)
    # The arrays can be written.
    gaussians.means[0] = 1
    pixels[0] = 1
    assert isinstance(memory_snapshot, MemorySnapshot)
    assert len(memory_snapshot.traces[0].events) == 2
    assert fractions
    assert all(0 <= fraction <= 1 for fraction in fractions)


# -- hostile files ------------------------------------------------------------------


def test_decoder_out_of_memory_raises_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = w.write_ply(tmp_path / "a.ply", w.ply_columns(w.truth(60_000)))
    monkeypatch.setattr(
        sandbox, "BASE", (4 << 20) - sandbox.PER_BYTE * path.stat().st_size
    )
    with pytest.raises(FileError, match=r"a\.ply: not enough memory"):
        read_untrusted(path)


@pytest.mark.parametrize(
    ("signal_number", "message"),
    [
        (signal.SIGSEGV, r"crashed \(SIGSEGV\)"),
        (signal.SIGKILL, "not enough memory"),
        (signal.SIGXCPU, "processor's time"),
    ],
)
def test_crashed_decoder_raises_an_error_of_its_file(
    signal_number: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(pid: int) -> None:
        os.kill(pid, signal_number)

    when_started(monkeypatch, kill)
    with pytest.raises(FileError, match=message):
        read_untrusted(w.write_splat(tmp_path / "a.splat", T))


def test_cancelling_ends_the_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    when_started(monkeypatch, started.append)

    def progress(step: str, fraction: float) -> None:
        if started:
            raise Cancelled

    with pytest.raises(Cancelled):
        read_untrusted(w.write_splat(tmp_path / "a.splat", T), progress)
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_untrusted_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_bytes(w.sog_files(T)["meta.json"])
    with pytest.raises(FileError, match=r"send the scene as one \.sog file"):
        read_untrusted(tmp_path / "meta.json")
    with pytest.raises(FileError, match="cannot be read"):
        read_untrusted(tmp_path)


# -- a program that lies ------------------------------------------------------------

PRELUDE = """import json, os, sys
def done(answer, *columns):
    os.ftruncate(json.loads(sys.argv[1])["out"], 4096)
    described = [dict(zip(("dtype", "shape"), column)) for column in columns]
    print(json.dumps(["done", answer, described]))
def scene(*shapes, **facts):
    done({"type": "scene", **facts}, *(("f4", shape) for shape in shapes))
FIT = [3, 3], [3, 4], [3, 3], [3], [3, 3], [3, 0, 3]
"""


def replace_program(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let this Python code run in place of the decoder."""

    def command(module: str, job: str) -> list[str]:
        return [sys.executable, "-c", code, job]

    monkeypatch.setattr("splatview_ipc.system.child_program.command", command)


OUTSIDE = "described an array outside its result"


@pytest.mark.parametrize(
    ("code", "message"),
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
        ("scene(*[[3, 3]] * 6)", "expected|is needed with"),
    ],
)
def test_lying_decoder_raises_an_error(
    code: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_program(monkeypatch, PRELUDE + code)
    with pytest.raises(FileError, match=message):
        read_untrusted(w.write_splat(tmp_path / "a.splat", T))


def test_silent_decoder_raises_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "WAIT_BASE", 0)
    monkeypatch.setattr(sandbox, "WAIT_FACTOR", 0)
    replace_program(monkeypatch, "import time; time.sleep(600)")
    with pytest.raises(FileError, match="does not answer"):
        read_untrusted(w.write_splat(tmp_path / "a.splat", T))


def test_error_output_of_a_decoder_is_bounded_and_its_last_line_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "os.write(2, b'first\\nlast words\\n')\nos._exit(3)"
    flood = "while True: os.write(2, b'x' * 4096)"
    for program, message in (
        (code, "ended with 3: last words"),
        (flood, "ended with 1"),
    ):
        replace_program(monkeypatch, PRELUDE + program)
        with pytest.raises(FileError, match=message):
            read_untrusted(w.write_splat(tmp_path / "a.splat", T))


def test_decoder_cannot_ignore_its_limit_of_cpu_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []
    limits: list[str] = []
    when_started(monkeypatch, pids.append)

    def progress(step: str, fraction: float) -> None:
        if pids and step == "writing arrays":
            limits.append(Path(f"/proc/{pids[0]}/limits").read_text())

    read_untrusted(w.write_splat(tmp_path / "a.splat", T), progress)
    line = next(line for line in limits[0].splitlines() if "cpu time" in line)
    soft, hard = line.split()[3:5]
    assert 0 < int(soft) < int(hard) < 100


def test_decoder_does_not_inherit_secrets_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "SSH_AUTH_SOCK")
    for name in (*secrets, "OTHER"):
        monkeypatch.setenv(name, "value")
    code = f"names = {{k for k in os.environ if k in {(*secrets, 'OTHER')}}}\n"
    code += "print(json.dumps(['error', str(sorted(names))]))"
    replace_program(monkeypatch, PRELUDE + code)
    with pytest.raises(FileError, match=r"\['OTHER'\]"):
        read_untrusted(w.write_splat(tmp_path / "a.splat", T))


def test_checked_results_cannot_be_written_any_more() -> None:
    fd = os.memfd_create("splatview-test", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 4096)
    mapped = sandbox.seal_and_map(fd)
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(fd, b"x", 0)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(fd, 0)
    assert mapped is not None
    # The page is this process's own copy.
    mapped[0] = 1
    assert os.pread(fd, 1, 0) == b"\0"
    os.close(fd)
