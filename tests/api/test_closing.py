"""The end of a run while others are at work: threads that publish, a GPU, and children
of multiprocessing.
"""

from __future__ import annotations

import faulthandler
import random
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from support.programs import Programs
from support.reading import copied, newest, stream_of
from support.wait import PATIENCE_S, at_random, wait_until

import splatview
from splatview.api.session import session
from splatview_ipc.control.run_folder import list_runs, runtime_folder
from splatview_ipc.cuda import retiring
from splatview_ipc.subscriber.remote_run import RemoteRun
from splatview_ipc.subscriber.subscriber import Subscriber


def publish_step(step: int) -> None:
    splatview.publish(torch.zeros(8, 8), "camera", meta={"step": step})


def annotate_camera(step: int = 0) -> None:
    splatview.annotate("camera", boxes=[[1, 1, 5, 5]])


def log_step(step: int) -> None:
    splatview.log(step, loss=0.5)


def publish_current_camera(step: int) -> None:
    splatview.publish_cameras(current=step % 7)


def wait_while_paused(step: int) -> None:
    splatview.wait_while_paused(0.0)


CALLS: dict[str, Callable[[int], None]] = {
    "publish": publish_step,
    "annotate": annotate_camera,
    "log": log_step,
    "cameras": publish_current_camera,
    "pause": wait_while_paused,
}


def test_closing_harms_no_call_of_another_thread(
    subscriber: Subscriber, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[str] = []
    ended = threading.Event()

    def call(name: str) -> None:
        chance = random.Random(name)
        count = 0
        while not ended.is_set():
            try:
                CALLS[name](count)
            except BaseException as e:
                errors.append(f"{name}: {e!r}")
            count += 1
            at_random(chance, 0.0005)

    threads = [threading.Thread(target=call, args=(name,)) for name in CALLS]
    for thread in threads:
        thread.start()
    try:
        for _ in range(150):
            subscriber.poll()
            for stream in subscriber.streams:
                stream.open()
            splatview.close()
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not errors
    assert not caplog.records


def test_memory_that_a_gpu_uses_is_released_after_the_run_ends() -> None:
    is_idle = threading.Event()
    given_back = threading.Event()
    splatview.publish(torch.zeros(8, 8))
    retiring.retire(is_idle.is_set, given_back.set)
    splatview.close()
    splatview.publish(torch.zeros(8, 8))
    splatview.close()
    assert not given_back.is_set()
    is_idle.set()
    wait_until(given_back.is_set, "the memory is given back")


def test_memory_of_a_forgotten_stream_is_released_without_a_viewer() -> None:
    given_back = threading.Event()
    splatview.publish(torch.zeros(8, 8), "window")
    is_idle = threading.Event()
    is_idle.set()
    retiring.retire(is_idle.is_set, given_back.set)
    session().forget("window")
    wait_until(given_back.is_set, "the memory is given back")


def test_tensors_of_a_forgotten_scene_are_released() -> None:
    scene = {
        "means": torch.zeros(5, 3),
        "quats": torch.ones(5, 4),
        "scales": torch.zeros(5, 3),
        "opacities": torch.zeros(5),
        "sh0": torch.zeros(5, 1, 3),
    }
    means = weakref.ref(scene["means"])
    splatview.publish(scene, "scene")
    session().forget("scene")
    scene.clear()
    assert means() is None


_CHILDREN = """
import multiprocessing, sys, threading
import torch, splatview
image = torch.zeros((8, 8), dtype=torch.uint8)
def publish(step):
    image.fill_(step)
    splatview.publish(image, "image", meta={"step": step})
def follow(last):
    last.wait()
    for step in range(41, 81):
        publish(step)
def work(steps, begun, go, last):
    publish(0)
    splatview.log(0, loss=1.0)
    begun.set()
    go.wait()
    for step in range(1, 41):
        publish(step)
    splatview.log(40, loss=0.5)
    if steps > 40:
        threading.Thread(target=follow, args=(last,)).start()
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    context.set_forkserver_preload(["torch", "splatview.adapters.images"])
    for steps in (40, 80):
        begun, go, last = context.Event(), context.Event(), context.Event()
        child = context.Process(target=work, args=(steps, begun, go, last))
        child.start()
        begun.wait()
        print(child.pid, flush=True)
        sys.stdin.readline()
        go.set()
        print(steps, flush=True)
        sys.stdin.readline()
        last.set()
        child.join()
        print("ended", child.exitcode, flush=True)
"""
"""Its second child has a thread that goes on to publish when the child's own work has
ended."""


@pytest.mark.programs
@pytest.mark.parametrize(
    "method", ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.soak)]
)
def test_viewer_reads_the_last_version_of_a_child_process(
    method: str, programs: Programs, tmp_path: Path
) -> None:
    script = tmp_path / "training.py"
    script.write_text(_CHILDREN)
    program = programs.python(script, method)
    for _ in range(2):
        pid = int(program.line())
        with Subscriber() as subscriber:
            assert newest(subscriber, "image", pid=pid)[1]["step"] == 0
            newest(subscriber, "scalars", pid=pid)
            image = stream_of(subscriber, "image", pid)
            scalars = stream_of(subscriber, "scalars", pid)
            program.write_line()
            last = int(program.line())
            program.write_line()
            assert program.line() == "ended 0"
            wait_until(partial(ended, subscriber, image.run), "the run has ended")
            _, meta, arrays = copied(image)
            assert (meta["step"], int(arrays["image"].max())) == (last, last)
            assert copied(scalars)[1]["step"] == 40
        assert not image.run.folder.path.exists()


def ended(subscriber: Subscriber, run: RemoteRun) -> bool:
    subscriber.poll()
    return not run.alive


def log_other() -> None:
    splatview.log(3, other=2.0)


_HANDLERS: dict[str, Callable[[], object]] = {
    "close": splatview.close,
    "publish": partial(splatview.publish, torch.zeros(8, 8), "handler"),
    "publish the same": partial(splatview.publish, torch.zeros(8, 8), "camera"),
    "log": log_other,
    "annotate": annotate_camera,
}
_STEP = 101
"""Lines between two interruptions: few enough for each call, and odd beside the lengths
of functions."""


def interrupted_at(line: int, handler: Callable[[], object]) -> int:
    """Start and end a run; call a signal's handler before one of its lines.

    Returns:
        The number of lines that the run has executed.
    """
    lines = 0

    def traced(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal lines
        if "splatview" not in frame.f_code.co_filename:
            return None
        if event == "line":
            lines += 1
            if lines == line:
                sys.settrace(None)
                handler()
        return traced

    previous = sys.gettrace()
    sys.settrace(traced)
    try:
        splatview.publish(torch.zeros(8, 8), "camera")
        splatview.log(1, loss=1.0)
        splatview.annotate("camera", boxes=[[1, 1, 5, 5]])
        splatview.publish_memory(device="cpu")
        splatview.close()
    finally:
        sys.settrace(previous)
    splatview.close()
    return lines


@pytest.mark.parametrize("name", _HANDLERS)
def test_signal_handler_may_call_within_any_line_of_any_call(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler runs in the thread that it interrupts, and must not wait for it."""
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    try:
        lines = interrupted_at(0, splatview.close)
        for line in range(1, lines, _STEP):
            interrupted_at(line, _HANDLERS[name])
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert not caplog.records
    assert not list_runs(runtime_folder())
    assert not [t for t in threading.enumerate() if t.name.startswith("splatview")]


def test_handler_that_interrupts_a_programs_start_gets_an_error() -> None:
    with session().starting(), pytest.raises(RuntimeError, match="signal's handler"):
        splatview.grab()
