"""A viewer in another PID namespace, as containers have it: what it sees is right, and its end is noticed.

Process ids mean something else there, and /proc does not show the trainer: memory is handed over by the trainer, as
everywhere, and the viewer's end is noticed by its connection alone.
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from support.trainers import Trainer
from support.wait import wait_until

if TYPE_CHECKING:
    from support.programs import Programs

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""The viewer is killed with the program that it is a child of."""

TRAINER = """
import contextlib
STREAMS = "gaussians", "image"
pictures = []
def publish(value):
    fill(scene, value)
    splatview.publish(scene)
    # the last one lives on, so that the next lies elsewhere
    pictures[:] = [*pictures[-1:], torch.full((1080, 1920, 4), value, dtype=torch.uint8)]
    splatview.publish(pictures[-1], "image")
    return {name: stream(name).version for name in STREAMS}
def files():
    "What is open here, but for what the GPU's driver opens when it needs it, and keeps."
    there = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            there.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(f for f in there if not f.startswith(("/dev/nvidia", "/dev/shm/cuda.shm.", "/proc/")))
def left():
    "What there is for viewers' sake."
    return {"readers": [stream(name).readers for name in STREAMS],
            "files": files()}
scene = make(1000, 1, "cpu")
publish(0)
publish(1)
"""

VIEWER = """
from splatview_ipc.subscriber.subscriber import Subscriber
sub = Subscriber()
opened, seen = {}, {}
def see(wanted, n, value, seconds=10):
    "Poll until the frames of these versions, or newer, came: how, and what is wrong with them."
    end, told = time.monotonic() + seconds, {}
    while len(told) < len(wanted):
        sub.poll()
        for s in sub.streams:
            if s.name not in wanted or s.name in told:
                continue
            s.open()
            frame = s.read(seen.get(s.name, 0))
            if frame is None:
                continue
            with frame:
                got = {k: t.to_float32() for k, t in frame.tensors.items()}
                whole, on_gpu = frame.intact(), frame.on_gpu
            if whole:
                seen[s.name] = frame.version
            if not whole or frame.version < wanted[s.name]:
                continue
            told[s.name] = {"way": s.sharing, "fallback": s.fallback, "on_gpu": on_gpu, "wrong": {
                k: [v.shape[0], float(v.min()), float(v.max())] for k, v in got.items()
                if (s.name == "gaussians" and v.shape[0] != n) or v.size == 0 or (v != value).any()}}
        assert time.monotonic() < end, ["not in time", wanted, told, sub.fault, [r.refused for r in sub.runs], [
            (s.name, s.version, s.sharing, s.fault, s.fallback, s.run.alive) for s in sub.streams]]
        time.sleep(0.001)
    return told
"""


class Apart:
    """Starts programs in PID namespaces of their own."""

    def __init__(self, programs: Programs):
        self._programs = programs

    def code(self, source: str, *args: str, **env: str) -> subprocess.Popen[str]:
        begin = f"import os, sys; os.execvp('unshare', [*{UNSHARE}, sys.executable, '-c', *sys.argv[1:]])"
        return self._programs.code(begin, source, *args, **env)


@pytest.fixture
def pair(programs: Programs) -> tuple[Trainer, Trainer]:
    """A trainer here, and a viewer in another PID namespace."""
    try:
        tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs the program unshare: apt-get install util-linux")
    if tried.returncode != 0:
        pytest.skip(f"a PID namespace of its own is not permitted here: {tried.stderr.strip()}")
    trainer, viewer = Trainer(programs), Trainer(Apart(programs))  # type: ignore[arg-type]
    trainer.do(TRAINER)
    viewer.do(VIEWER)
    return trainer, viewer


def test_a_viewer_in_another_pid_namespace(pair: tuple[Trainer, Trainer]) -> None:
    trainer, viewer = pair
    assert viewer.do("answer = os.getpid()") == 1, "a process id of its own"
    before = trainer.do("answer = left()")

    def shows(wanted: dict[str, int], n: int, value: int) -> None:
        told = viewer.do(f"answer = see({wanted}, {n}, {value})")
        for name in ("gaussians", "image"):
            assert not told[name]["wrong"], f"{name}, not {n} times {value}: {told}"
            assert told[name]["way"] == "ring"

    shows(trainer.do("answer = {name: stream(name).version for name in STREAMS}"), 1000, 1)
    assert trainer.do("answer = left()")["readers"] == [1, 1]
    for value in range(2, 8):
        shows(trainer.do(f"answer = publish({value})"), 1000, value)
    for n, value in ((1500, 8), (40_000, 9), (1000, 10)):  # the memory is another, and announced anew
        shows(trainer.do(f"scene = make({n}, {value}, 'cpu'); answer = publish({value})"), n, value)
    assert trainer.do("answer = publishing.begun().control.counters()['faults']") == 0

    viewer.process.killed()

    def is_left() -> dict[str, Any]:
        return trainer.do("answer = left()")

    wait_until(lambda: is_left()["readers"] == [0, 0], what="the trainer notices the viewer's end")
    for value in (11, 12):
        trainer.do(f"publish({value})")  # it goes on without

    def given_back() -> bool:
        now = is_left()
        return len(now["files"]) <= len(before["files"])

    wait_until(given_back, what=f"all is given back; before there was {before}")
