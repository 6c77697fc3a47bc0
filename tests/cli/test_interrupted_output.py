"""A command that is interrupted while it writes leaves nothing half written, and the old file as it was."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.repetitions import exhaustive, with_exhaustive
from support.scene_files import ply_columns, truth, write_ply
from support.wait import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs

ENDS = {signal.SIGINT: 130, signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGHUP: 128 + signal.SIGHUP}
COMMAND = """
import os, sys
if sys.argv.pop(1) == "named":  # as on file systems without O_TMPFILE: the kernel answers EISDIR to this flag alone
    os.O_TMPFILE = os.O_DIRECTORY
from splatview.viewer_app.__main__ import main
sys.exit(main())
"""


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A picture whose copy takes seconds to be written."""
    path = tmp_path_factory.mktemp("interrupted") / "noise.npy"
    noise = np.frombuffer(np.random.default_rng(0).bytes(3500 * 3500 * 3), np.uint8)
    np.save(path, noise.reshape(3500, 3500, 3))
    return path


def written(pid: int, folder: Path) -> bool:
    """Return whether a process has written to a file in `folder`, which need not have a name."""
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            name = os.readlink(f"/proc/{pid}/fd/{fd}")
            if os.path.dirname(name) == str(folder) and os.stat(f"/proc/{pid}/fd/{fd}").st_size > 0:
                return True
    except OSError:  # closed meanwhile
        pass
    return False


def interrupt(process: object, folder: Path, number: int, wait_until: Callable[..., object]) -> tuple[int, str]:
    """Send a signal in the middle of writing; the exit status, and what was printed as an error."""
    wait_until(lambda: written(process.pid, folder) or process.poll() is not None)  # type: ignore[attr-defined]
    process.send_signal(number)  # type: ignore[attr-defined]
    _, errors = process.communicate(timeout=PATIENCE)  # type: ignore[attr-defined]
    return process.returncode, errors  # type: ignore[attr-defined]


@pytest.mark.parametrize(("number", "names"), [
    exhaustive(signal.SIGINT, "named"), (signal.SIGTERM, "without a name"), exhaustive(signal.SIGHUP, "named"),
    exhaustive(signal.SIGINT, "without a name"), exhaustive(signal.SIGTERM, "named"),
    exhaustive(signal.SIGHUP, "without a name")])
def test_shot_interrupted_while_it_writes(number: signal.Signals, names: str, picture: Path, tmp_path: Path,
                                          programs: Programs, wait_until: Callable[..., object]) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "out.png").write_bytes(b"old")
    process = programs.python("-c", COMMAND, names, "shot", str(folder / "out.png"), str(picture))
    code, errors = interrupt(process, folder, number, wait_until)
    assert (code, "Traceback" in errors) == (ENDS[number], False), errors
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == {"out.png": b"old"}


@pytest.mark.parametrize("number", with_exhaustive({n.name: n for n in ENDS}, "SIGINT", "SIGTERM"))
def test_video_interrupted_while_it_writes(number: signal.Signals, tmp_path: Path, programs: Programs,
                                           wait_until: Callable[..., object]) -> None:
    pytest.importorskip("av")
    folder = tmp_path / "out"
    folder.mkdir()
    scene = write_ply(tmp_path / "scene.ply", ply_columns(truth(50)))
    process = programs.python("-c", COMMAND, "named", "video", str(folder / "out.mp4"), str(scene), "--size",
                               "320x240", "--seconds", "3600")
    code, errors = interrupt(process, folder, number, wait_until)
    assert (code, "Traceback" in errors) == (ENDS[number], False), errors
    assert list(folder.iterdir()) == []


@pytest.mark.exhaustive
def test_shot_killed_while_it_writes_leaves_nothing(picture: Path, tmp_path: Path, programs: Programs,
                                                    wait_until: Callable[..., object]) -> None:
    """Where the file system has files without a name, as ext4, XFS, Btrfs and tmpfs have."""
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_WRONLY))
    except OSError:
        pytest.skip("no O_TMPFILE in the folder for tests")
    folder = tmp_path / "out"
    folder.mkdir()
    process = programs.python("-c", COMMAND, "", "shot", str(folder / "out.png"), str(picture))
    code, errors = interrupt(process, folder, signal.SIGKILL, wait_until)
    assert code == -signal.SIGKILL, errors
    assert list(folder.iterdir()) == []


def test_a_thread_that_writes_when_the_program_ends_leaves_nothing(tmp_path: Path, programs: Programs) -> None:
    process = programs.code("""
import os, sys, threading
os.O_TMPFILE = os.O_DIRECTORY
from splatview.ipc.output_file import OutputFile
begun = threading.Event()
def write():
    with OutputFile("out") as out:
        begun.set()
        threading.Event().wait()
threading.Thread(target=write, daemon=True).start()
begun.wait()
print(os.listdir("."), flush=True)
""")
    told, errors = process.communicate(timeout=PATIENCE)
    assert ".part" in told, errors
    assert list(tmp_path.iterdir()) == []
