"""What the tests of endings and of forks have in common: a training that stops for a word, and a viewer of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from splatview.ipc import RemoteStream, Subscriber

BEGIN = """
import gc, multiprocessing, os, signal, sys, threading, time, warnings
import torch, splatview
warnings.simplefilter("ignore", DeprecationWarning)  # of forking while other threads run
image, step = torch.zeros((8, 8), dtype=torch.uint8), 0
def publish():
    global step
    step += 1
    image.fill_(step % 256)
    splatview.publish(image, step=step)
def said(text):
    print(text, flush=True)
    assert sys.stdin.readline()
publish()
"""


def opened(subscriber: Subscriber, pid: int, wait_until: Callable[..., Any]) -> RemoteStream:
    """The stream of a process, when a frame of it has been read."""
    def find() -> RemoteStream | None:
        subscriber.poll()
        for stream in subscriber.streams:
            if stream.run.pid == pid and stream.run.alive:
                stream.open()
                if newest(stream) > 0:
                    return stream
        return None

    return wait_until(find, what=f"a frame of process {pid}")


def newest(stream: RemoteStream) -> int:
    """The version of the newest frame that can be read, which has to hold its own step; 0: none."""
    frame = stream.read()
    if frame is None:
        return 0
    with frame:
        array = frame.tensors["image"].array.copy()  # type: ignore[union-attr]
        step = frame.meta["step"]
        if not frame.intact():
            return 0
    assert (array == step % 256).all()
    return frame.version


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    text = process.stdout.readline()
    assert text, process.communicate()[1]
    return text.strip()


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
