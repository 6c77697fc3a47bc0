"""Trainers and viewers find each other, in any order and number, and survive each other's ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.frames import host_array

import splatview
from splatview import publishing
from splatview.ipc import Subscriber, limits, messages
from splatview.ipc.channel import Link
from splatview.ipc.runs import list_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.programs import Programs

    from splatview.ipc import RemoteStream

_TRAINER = """
import sys, time, torch, splatview
step = 0
while True:
    splatview.publish(torch.full((8, 8, 3), step % 256, dtype=torch.uint8), "render", step=step)
    if step == 0: print("ready", flush=True)
    step += 1
    time.sleep(0.005)
"""


@pytest.fixture
def subscriber() -> Iterator[Subscriber]:
    with Subscriber() as s:
        yield s


def stream(subscriber: Subscriber, name: str, wait_until: Callable[..., Any]) -> RemoteStream:
    def find() -> RemoteStream | None:
        subscriber.poll()
        return next((s for s in subscriber.streams if s.name == name and s.run.alive), None)

    return wait_until(find, what=f"stream {name}")


def newest(subscriber: Subscriber, name: str, wait_until: Callable[..., Any], after: int = 0) -> Any:
    """A copy of the newest whole frame: (version, meta, arrays)."""
    s = stream(subscriber, name, wait_until)
    s.open()

    def read() -> Any:
        subscriber.poll()
        frame = s.read(after)
        if frame is None:
            return None
        with frame:
            found = frame.version, frame.meta, {k: host_array(t).copy() for k, t in frame.tensors.items()}
            return found if frame.intact() else None

    return wait_until(read, what=f"a frame of {name}")


def test_a_value_arrives_with_its_metadata(subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
    image = torch.arange(2 * 3 * 3, dtype=torch.uint8).reshape(2, 3, 3)
    splatview.publish(image, "picture", step=7, note="hello")
    version, meta, tensors = newest(subscriber, "picture", wait_until)
    assert version == 1
    assert meta == {"step": 7, "note": "hello", "layout": "HWC"}
    assert np.array_equal(tensors["image"], image.numpy())
    s = subscriber.streams[0]
    assert (s.kind, s.shape, s.dtype, s.device, s.sharing) == ("image", (2, 3, 3), "uint8", "cpu", "ring")


def test_a_late_viewer_sees_the_last_value_of_a_silent_trainer(wait_until: Callable[..., Any]) -> None:
    splatview.publish(torch.full((4, 4), 9, dtype=torch.uint8))
    splatview.publish(torch.full((4, 4), 11, dtype=torch.uint8))
    time.sleep(0.3)
    with Subscriber() as late:
        version, _, tensors = newest(late, "image", wait_until)
        assert version == 2
        assert (tensors["image"] == 11).all()


def test_nothing_is_copied_while_nobody_looks(subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
    for _ in range(100):
        splatview.publish(torch.zeros(4, 4), "a")
    s = stream(subscriber, "a", wait_until)
    assert s.version == 100
    assert subscriber.runs[0].counters["copies"] == 0
    newest(subscriber, "a", wait_until)
    copies = subscriber.runs[0].counters["copies"]
    assert copies == 1
    s.release()
    publisher = publishing._publisher
    assert publisher is not None
    wait_until(lambda: publisher.streams["a"].readers == 0)
    for _ in range(100):
        splatview.publish(torch.zeros(4, 4), "a")
    assert subscriber.runs[0].counters["copies"] == copies
    assert publisher.streams["a"].ref("ring") is None, "the shared memory is given back"


def test_several_viewers_see_the_same(wait_until: Callable[..., Any]) -> None:
    splatview.publish(torch.full((4, 4), 3, dtype=torch.uint8))
    viewers = [Subscriber(client=f"viewer {i}") for i in range(4)]
    try:
        for viewer in viewers:
            assert (newest(viewer, "image", wait_until)[2]["image"] == 3).all()
        wait_until(lambda: (viewers[0].poll(), len(viewers[0].runs[0].viewers) == 4)[-1])
        splatview.publish(torch.full((4, 4), 4, dtype=torch.uint8))
        for viewer in viewers:
            assert (newest(viewer, "image", wait_until, after=1)[2]["image"] == 4).all()
    finally:
        for viewer in viewers:
            viewer.close()


def test_several_runs_and_one_chosen(
        subscriber: Subscriber, programs: Programs, wait_until: Callable[..., Any]) -> None:
    trainers = [programs.code(_TRAINER, SPLATVIEW_NAME=name) for name in ("first", "second")]
    for t in trainers:
        assert t.stdout is not None
        t.stdout.readline()
    wait_until(lambda: (subscriber.poll(), len([s for s in subscriber.streams if s.name == "render"]) == 2)[-1])
    assert sorted(r.name for r in subscriber.runs) == ["first", "second"]
    for choice in ("second", str(trainers[1].pid), next(r.id for r in subscriber.runs if r.name == "second")):
        with Subscriber(choice) as one:
            stream(one, "render", wait_until)
            assert [r.pid for r in one.runs] == [trainers[1].pid]


def test_a_restarted_trainer_is_a_new_run(
        subscriber: Subscriber, programs: Programs, wait_until: Callable[..., Any], runtime_dir: Path) -> None:
    first = programs.code(_TRAINER)
    newest(subscriber, "render", wait_until)
    old = subscriber.streams[0]
    first.kill()
    first.wait()
    wait_until(lambda: (subscriber.poll(), not old.run.alive)[-1])
    frame = old.read()
    assert frame is not None, "the last picture of a dead run can still be read"
    with frame:
        assert frame.intact()
    second = programs.code(_TRAINER)
    newest(subscriber, "render", wait_until)
    assert [r.pid for r in subscriber.runs if r.alive] == [second.pid]
    live = [r.id for r in subscriber.runs if r.alive]
    assert [p.name for p in runtime_dir.iterdir()] == live, "the dead one is swept"


def test_a_killed_viewer_is_forgotten(programs: Programs, wait_until: Callable[..., Any]) -> None:
    splatview.publish(torch.zeros(64, 64))
    publisher = publishing._publisher
    assert publisher is not None
    s = publisher.streams["image"]
    viewer = programs.code("""
import time
from splatview.ipc import Subscriber
sub = Subscriber()
while True:
    sub.poll()
    for s in sub.streams:
        s.open()
        frame = s.read()
        if frame: print("reading", flush=True); time.sleep(60)
    time.sleep(0.01)
""")
    assert viewer.stdout is not None
    assert viewer.stdout.readline() == "reading\n"
    assert s.readers == 1
    viewer.send_signal(signal.SIGKILL)
    wait_until(lambda: s.readers == 0)
    wait_until(lambda: not any(publisher.board.leased(s.index)()))
    assert s.ref("ring") is None


def test_a_stopped_viewer_stops_nothing(programs: Programs, wait_until: Callable[..., Any]) -> None:
    frame = torch.zeros(256, 256, dtype=torch.uint8)
    splatview.publish(frame)
    viewer = programs.code("""
import time
from splatview.ipc import Subscriber
sub = Subscriber()
while True:
    sub.poll()
    for s in sub.streams:
        s.open()
        if s.read(): print("reading", flush=True)
    time.sleep(0.01)
""")
    assert viewer.stdout is not None
    assert viewer.stdout.readline() == "reading\n"
    viewer.send_signal(signal.SIGSTOP)
    try:
        publisher = publishing._publisher
        assert publisher is not None
        with publishing._entries["image"].stream.lock:  # the helper thread has gone
            before = publisher.board.counters()["copies"]
        for i in range(2000):
            splatview.publish(frame.fill_(i % 256))
        assert publisher.board.counters()["copies"] == before + 2000
        for i in range(300):  # a flood of news about streams: its queue fills, nothing waits
            splatview.publish(torch.zeros(4 + i % 7, 5), "changing")
    finally:
        viewer.send_signal(signal.SIGCONT)


def test_garbage_on_the_socket_is_dropped_and_counted(
        subscriber: Subscriber, wait_until: Callable[..., Any], runtime_dir: Path) -> None:
    splatview.publish(torch.zeros(4, 4))
    (run,) = list_runs(runtime_dir)
    canary = runtime_dir / "canary"
    pickled = b"cposix\nsystem\n(S'touch " + os.fsencode(canary) + b"'\ntR."
    hello = messages.encode(messages.Hello(limits.PROTOCOL, os.getpid(), "liar"))
    garbage = [b"\x00" * 100, os.urandom(2000), pickled, b"\xdf\xff\xff\xff\xff", b"\x91" * 5000, hello[:-1],
               messages.encode({"type": "Open", "index": -1}),
               messages.encode({"type": "Hello", "protocol": limits.PROTOCOL, "pid": 1, "client": "x", "more": 1}),
               messages.encode({"type": "Nonsense"}),
               messages.encode(messages.Open(200, "ring")), messages.encode(messages.Release(0))]
    link = Link(run.path)
    assert link.connect()
    for message in garbage:
        assert link.send(message)
    assert link.send(b"x" * (limits.MAX_MESSAGE + 1))
    publisher = publishing._publisher
    assert publisher is not None
    wait_until(lambda: publisher.board.counters()["dropped_messages"] >= len(garbage) + 1)
    link.close()
    assert not canary.exists()
    assert (newest(subscriber, "image", wait_until)[2]["image"] == 0).all(), "the honest viewer is served"


@pytest.mark.parametrize("protocol", [0, 1, 999])
def test_another_protocol_is_refused_with_both_numbers(
        subscriber: Subscriber, wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, protocol: int) -> None:
    splatview.publish(torch.zeros(4, 4))
    monkeypatch.setattr("splatview.ipc.remote.limits.PROTOCOL", protocol)
    wait_until(lambda: (subscriber.poll(), (subscriber.runs and subscriber.runs[0].refused))[-1])
    assert str(protocol) in str(subscriber.runs[0].refused)


def test_one_viewer_too_many_is_told_so(wait_until: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("splatview.ipc.transport.limits.MAX_VIEWERS", 2)
    splatview.publish(torch.zeros(4, 4))
    viewers = [Subscriber() for _ in range(3)]
    try:
        def refused() -> list[Any]:
            for v in viewers:
                v.poll()
            return [r for v in viewers for r in v.runs if r.refused]

        (run,) = wait_until(refused)
        assert "2 viewers are attached" in run.refused
    finally:
        for v in viewers:
            v.close()


def test_a_long_runtime_path_works(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., Any]) -> None:
    folder = tmp_path / ("long" * 30) / ("path" * 20)
    monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(folder))
    splatview.publish(torch.full((4, 4), 5, dtype=torch.uint8))
    with Subscriber() as s:
        assert (newest(s, "image", wait_until)[2]["image"] == 5).all()


def test_pause_is_read_by_the_trainer_and_ends_with_the_viewer(wait_until: Callable[..., Any]) -> None:
    splatview.publish(torch.zeros(4, 4))
    assert not splatview.paused()
    viewer = Subscriber()
    wait_until(lambda: (viewer.poll(), viewer.runs and viewer.runs[0].welcomed)[-1])
    viewer.runs[0].set_paused(True)
    wait_until(splatview.paused)
    begin = time.monotonic()
    splatview.wait_while_paused(timeout=0.1)
    assert time.monotonic() - begin >= 0.1
    viewer.close()
    splatview.wait_while_paused(timeout=10)
    assert not splatview.paused()


def test_live_streams_follow_changes_made_in_place(subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
    frame = torch.zeros(16, 16, dtype=torch.uint8)
    splatview.publish(frame, "buffer", live=True)
    version, _, tensors = newest(subscriber, "buffer", wait_until)
    assert not tensors["image"].any()
    frame.fill_(200)
    wait_until(lambda: (newest(subscriber, "buffer", wait_until, after=version)[2]["image"] == 200).all())


def test_scenes_that_grow_and_shrink_arrive_whole(subscriber: Subscriber, wait_until: Callable[..., Any]) -> None:
    version = 0
    for n in (10, 1000, 100_000, 3, 0, 400_000, 50):
        scene = {"means": torch.full((n, 3), float(n)), "quats": torch.full((n, 4), float(n)),
                 "scales": torch.full((n, 3), float(n)), "opacities": torch.full((n,), float(n)),
                 "sh0": torch.full((n, 1, 3), float(n))}
        splatview.publish(scene)
        version, _, tensors = newest(subscriber, "gaussians", wait_until, after=version)
        assert all(len(t) == n and (t == n).all() for t in tensors.values())
    assert subscriber.streams[0].shape == (50, 3) or wait_until(
        lambda: (subscriber.poll(), subscriber.streams[0].shape == (50, 3))[-1])


def test_threads_and_descriptors_stay_constant(wait_until: Callable[..., Any]) -> None:
    splatview.publish(torch.zeros(32, 32))
    publisher = publishing._publisher
    assert publisher is not None

    def attach() -> None:
        with Subscriber() as s:
            newest(s, "image", wait_until)
        wait_until(lambda: publisher.streams["image"].readers == 0)

    attach()
    before = _resources()
    for _ in range(25):
        attach()
    wait_until(lambda: _resources() <= before, what=f"{_resources()} back to {before}")


def _resources() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), len(list(Path("/proc/self/task").iterdir()))


def test_a_forked_child_ends_and_publishes_on_its_own(programs: Programs, wait_until: Callable[..., Any]) -> None:
    """DataLoader workers are forks: they must end quickly, harm nothing, and may publish as runs of their own."""
    parent = programs.code("""
import os, sys, time, torch, splatview
splatview.publish(torch.full((4, 4), 1, dtype=torch.uint8), "parent")
print("published", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    splatview.publish(torch.full((4, 4), 2, dtype=torch.uint8), "child")
    time.sleep(1.5)
    sys.exit(3)
begin = time.monotonic()
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), time.monotonic() - begin < 30, flush=True)
splatview.publish(torch.full((4, 4), 3, dtype=torch.uint8), "parent")
time.sleep(600)
""")
    assert parent.stdout is not None and parent.stdin is not None
    assert parent.stdout.readline() == "published\n"
    with Subscriber() as subscriber:
        assert (newest(subscriber, "parent", wait_until)[2]["image"] == 1).all()
        parent.stdin.write("fork\n")
        parent.stdin.flush()
        assert (newest(subscriber, "child", wait_until)[2]["image"] == 2).all()
        assert len({r.pid for r in subscriber.runs}) == 2
        assert parent.stdout.readline() == "3 True\n"
        assert (newest(subscriber, "parent", wait_until, after=1)[2]["image"] == 3).all()


@pytest.mark.parametrize("ending", ["pass", "raise RuntimeError('training failed')", "sys.exit(0)", "os._exit(0)",
                                    "os.kill(os.getpid(), signal.SIGTERM)", "os.kill(os.getpid(), signal.SIGINT)"])
def test_a_trainer_ends_at_once_with_a_viewer_reading(
        programs: Programs, wait_until: Callable[..., Any], runtime_dir: Path, ending: str) -> None:
    trainer = programs.code(f"""
import os, signal, sys, time, torch, splatview
splatview.publish(torch.zeros(4, 4))
print("published", flush=True)
sys.stdin.readline()
{ending}
""")
    assert trainer.stdout is not None and trainer.stdin is not None
    assert trainer.stdout.readline() == "published\n"
    with Subscriber() as subscriber:
        newest(subscriber, "image", wait_until)
        trainer.stdin.write("end\n")
        trainer.stdin.flush()
        trainer.wait(timeout=60)
        wait_until(lambda: (subscriber.poll(), not any(r.alive for r in subscriber.runs))[-1])
        assert list(runtime_dir.iterdir()) == [], "nothing is left behind"
