"""The program that draws for `splatview.grab`: dies, stops, talks nonsense, is forked away from; and what is left."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.open_files import open_files
from support.repetitions import exhaustive
from support.wait import PATIENCE

import splatview
from splatview import grabber, grabbing, publishing
from splatview.ipc import Publisher, grabs
from splatview.ipc.renewing import renew

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.programs import Programs

IMAGE = torch.arange(20 * 30 * 3, dtype=torch.int32).remainder(251).to(torch.uint8).view(20, 30, 3)


def grab(name: str | None = None, **options: Any) -> torch.Tensor:
    """On the CPU, wherever it was drawn."""
    return splatview.grab(name, timeout=PATIENCE, **options).cpu()


def started() -> grabber.Grabber:
    assert grabbing._grabber is not None
    return grabbing._grabber


def alive(pid: int) -> bool:
    """Whether a process is there and not merely waits to be collected."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- it dies -------------------------------------------------------------------------------------------------


def test_one_that_died_is_started_again() -> None:
    splatview.publish(IMAGE, "render")
    assert torch.equal(grab("render"), IMAGE)
    first = started()._process
    first.kill()
    first.wait()
    assert torch.equal(grab("render"), IMAGE)
    assert started()._process.pid != first.pid


def test_one_that_dies_over_a_wish_is_started_again() -> None:
    splatview.publish(IMAGE, "render")
    grab("render")
    process = started()._process
    process.send_signal(signal.SIGSTOP)
    started()._process.stdin.write(b"not a wish\n")  # type: ignore[union-attr]
    process.send_signal(signal.SIGCONT)
    assert torch.equal(grab("render"), IMAGE)
    assert started()._process.pid != process.pid


def test_one_that_stands_still_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    splatview.publish(IMAGE, "render")
    grab("render")
    process = started()._process
    process.send_signal(signal.SIGSTOP)
    with monkeypatch.context() as patch, pytest.raises(TimeoutError, match=r"did not answer within 0\.3 s"):
        patch.setattr(grabber, "_LATE", 0.1)
        splatview.grab("render", timeout=0.2)
    assert not alive(process.pid)
    assert torch.equal(grab("render"), IMAGE)


def test_a_trainer_that_stands_still_brings_nothing(programs: Programs,
                                                    wait_until: Callable[..., Any]) -> None:
    trainer = programs.code("import time, torch, splatview\n"
                             "splatview.publish(torch.zeros(16, 16, 3), 'still')\n"
                             "print('ready', flush=True); time.sleep(1000)")
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == "ready\n"
    splatview.publish(IMAGE, "render")
    grab("render")
    trainer.send_signal(signal.SIGSTOP)
    with pytest.raises((TimeoutError, LookupError)):
        splatview.grab(run=trainer.pid, timeout=2.5)
    assert torch.equal(grab("render"), IMAGE)  # nobody else waits for it
    trainer.send_signal(signal.SIGCONT)
    assert grab("still", run=trainer.pid).max() == 0
    trainer.kill()
    trainer.wait()

    def gone() -> bool:  # until that is seen, what it showed last is drawn
        try:
            return grab("still") is None
        except LookupError:
            return True

    wait_until(gone)


# -- the end -------------------------------------------------------------------------------------------------


def shared_files() -> set[str]:
    """What lies in /dev/shm that may be ours, and not another program's, such as a browser's."""
    return {name for name in os.listdir("/dev/shm") if name.startswith(("splatview", "torch", "cuda", "psm", "sem"))}


def test_nothing_is_left(runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grabber, "_END", PATIENCE)  # however busy this machine is
    splatview.publish(IMAGE, "render")  # what is loaded for it stays open
    grab("render")
    splatview.close()
    gc.collect()
    before, shared = open_files(), shared_files()
    for _ in range(2):
        splatview.publish(IMAGE, "render")
        assert torch.equal(grab("render"), IMAGE)
        pid = started()._process.pid
        splatview.close()
        splatview.close()
        assert not alive(pid)
        assert grabbing._grabber is None
        gc.collect()
        assert open_files() <= before
        assert not list(runtime_dir.iterdir())
    assert shared_files() <= shared


def test_signals_do_not_interrupt_its_end(programs: Programs) -> None:
    """The end of its input is followed by SIGTERM, which must not keep it from removing what it has made."""
    program = programs.python("-c", """
import os, signal
from splatview.ipc import entry
from splatview.viewer_app import grab
class Grabber:
    run_id = "grab-1"
    def __init__(self, uuid):
        pass
    def rest(self):
        return 1.0
    def close(self):
        for number in entry.SIGNALS:
            os.kill(os.getpid(), number)
        print("closed", flush=True)
with entry.ending(grab._end):
    print(grab._draw([], os.open(os.devnull, os.O_WRONLY), Grabber))
""")
    assert program.communicate("", timeout=PATIENCE) == ("closed\n0\n", "")
    assert program.returncode == 0


_PROGRAM = """
import os, signal, sys, time, torch, splatview
from splatview import grabbing
from support.wait import PATIENCE
splatview.publish(torch.full((16, 16, 3), 7, dtype=torch.uint8), "render")
assert splatview.grab("render", timeout=PATIENCE).unique().tolist() == [7]
print(grabbing._grabber._process.pid, flush=True)
"""


KILLED = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(("start", "end"), [("forked", ""), exhaustive("code", KILLED), ("forked", KILLED),
                                            ("forked", "os._exit(3)"), ("forked", "raise RuntimeError('x')")])
def test_it_ends_with_the_process(programs: Programs, wait_until: Callable[..., Any], start: str, end: str) -> None:
    """What `code` starts starts the program that draws as any training does."""
    if start == "code":
        program = programs.code(_PROGRAM + end, PYTHONPATH=_path())
    else:
        program = programs.python("-c", _PROGRAM + end, PYTHONPATH=_path())
    assert program.stdout is not None
    pid = int(program.stdout.readline())
    program.wait(PATIENCE)
    wait_until(lambda: not alive(pid))


def test_a_forked_child_has_its_own(programs: Programs, wait_until: Callable[..., Any]) -> None:
    program = programs.python("-c", _PROGRAM + """
child = os.fork()
if child == 0:
    assert grabbing._grabber is None
    splatview.publish(torch.full((16, 16, 3), 9, dtype=torch.uint8), "render")
    assert splatview.grab("render", timeout=PATIENCE).unique().tolist() == [9]
    print(grabbing._grabber._process.pid, flush=True)
    assert splatview.grab("render", run=os.getppid(), timeout=PATIENCE).unique().tolist() == [7]
    splatview.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert splatview.grab("render", timeout=PATIENCE).unique().tolist() == [7]
child = os.fork()
if child == 0:  # does nothing, and lives on
    os.close(1)
    os.close(2)
    time.sleep(1000)
print(child, flush=True)
""", PYTHONPATH=_path())
    out, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 0, err
    own, of_child, idle = map(int, out.split())
    try:
        assert own != of_child
        wait_until(lambda: not alive(own) and not alive(of_child))
    finally:
        os.kill(idle, signal.SIGKILL)


def _path() -> str:
    from support.programs import ROOT

    return os.pathsep.join(filter(None, [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH")]))


# -- what is said --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["forked", exhaustive("python")])
def test_the_program_by_hand(programs: Programs, start: str) -> None:
    """It answers what it is asked, keeps its output clean, and ends with its input."""
    splatview.publish(IMAGE, "render")
    program = getattr(programs, start)("-m", "splatview.viewer_app", "grab")
    assert program.stdin is not None and program.stdout is not None
    ready = grabs.decode_answer(program.stdout.readline())
    assert isinstance(ready, grabs.Ready)
    for number in (5, 6):
        program.stdin.write(grabs.encode(grabs.Wish(number, PATIENCE, stream="render")).decode() + "\n")
    program.stdin.write(json.dumps({"number": 7, "timeout": 0.5, "stream": "nothing"}) + "\n")
    program.stdin.flush()
    drawn = [grabs.decode_answer(program.stdout.readline()) for _ in range(3)]
    assert [getattr(a, "number", 0) for a in drawn] == [5, 6, 7]
    assert isinstance(drawn[1], grabs.Drawn) and (drawn[1].stream, drawn[1].flipped) == ("host", True)
    assert isinstance(drawn[2], grabs.Failed) and drawn[2].kind == "lookup"
    out, err = program.communicate(timeout=PATIENCE)
    assert (program.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("line", [
    b"nonsense", b"[]", b'{"number": 0, "timeout": 1}', b'{"number": 1, "timeout": 1e9}', b'{"number": 1}',
    b'{"number": 1, "timeout": 1, "size": [0, 5]}', b'{"number": 1, "timeout": 1, "stream": ""}',
    b'{"number": 1, "timeout": 1, "camera": "' + b"x" * (grabs.MAX_CAMERA + 1) + b'"}',
    b'{"number": 1, "timeout": 1, "unknown": 1}', b'{"number": 1, "timeout": 1, "background": [0, 0]}', b"\xff\xfe"])
def test_wishes_that_make_no_sense_are_no_wishes(line: bytes) -> None:
    with pytest.raises((*grabs.DecodeError, ValueError)):  # type: ignore[misc]
        grabs.decode_wish(line)


def test_an_answer_that_makes_no_sense_ends_it() -> None:
    splatview.publish(IMAGE, "render")
    grab("render")
    started()._lines = b'{"type": "drawn"}\n'
    with pytest.raises(RuntimeError, match="said what makes no sense"):
        grab("render")
    assert not grabbing._grabber or not grabbing._grabber.alive
    assert torch.equal(grab("render"), IMAGE)


def test_an_answer_that_nobody_waits_for_is_passed_over() -> None:
    splatview.publish(IMAGE, "render")
    grab("render")
    started()._lines = grabs.encode(grabs.Failed(999, "fault", "long ago")) + b"\n"
    assert torch.equal(grab("render"), IMAGE)


def test_a_long_camera_is_heard_whole() -> None:
    splatview.publish({"means": torch.zeros(1, 3), "quats": torch.ones(1, 4), "scales": torch.zeros(1, 3),
                       "opacities": torch.ones(1), "sh0": torch.ones(1, 1, 3), "shN": torch.zeros(1, 0, 3)})
    with pytest.raises(ValueError, match="model is 'xxx"):
        grab(camera={"position": [0, 0, -4], "look_at": [0, 0, 0], "model": "x" * 500_000})
    assert grab(camera={"position": [0, 0, -4], "look_at": [0, 0, 0]}, size=(32, 32)).max() > 60


# -- streams brought up to date ------------------------------------------------------------------------------


def test_renewing_a_stream() -> None:
    splatview.publish(IMAGE.clone(), "render")
    parameters = {"means": torch.zeros(1, 3), "quats": torch.ones(1, 4), "scales": torch.zeros(1, 3),
                  "opacities": torch.ones(1), "sh0": torch.ones(1, 1, 3), "shN": torch.zeros(1, 0, 3)}
    splatview.publish(parameters)
    stream = publishing._entries["gaussians"].stream
    assert renew(stream) == 2
    assert renew(stream) == stream.version == 3
    splatview.publish(parameters)
    assert stream.version == 4
    publisher = Publisher("empty")
    try:
        assert renew(publisher.stream("nothing yet", "image")) == 0
    finally:
        publisher.close()


def test_it_is_loaded_by_nothing_but_its_use() -> None:
    import subprocess

    program = ("import sys, splatview; splatview.grab; "
               "print([m for m in ('torch', 'numpy', 'zmq', 'msgspec', 'subprocess') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
