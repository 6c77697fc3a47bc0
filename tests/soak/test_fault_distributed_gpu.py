"""Ranks on GPUs, each of which publishes its part of a scene: brought together on one GPU, whole and in order, while
none waits for another."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import pytest
from support.trainers import Trainer

if TYPE_CHECKING:

    from support.programs import Programs

pytestmark = pytest.mark.cuda
TWO = pytest.mark.skipif("__import__('torch').cuda.device_count() < 2", reason="needs two GPUs")
COUNTS = 1000, 700
RANK = """
def begin(number, ranks, copies):
    global rank, world_size, copy, scene
    rank, world_size, copy = number, ranks, copies
    scene = make(COUNTS[rank], 0)
def publish(step):
    fill(scene, 100 * rank + step)
    splatview.publish({k: v.detach().clone() for k, v in scene.items()} if copy else scene, copy=copy or None,
                      shard=(rank, world_size), step=step)
    torch.cuda.synchronize()
"""
VIEW = """
from splatview.ipc import Subscriber
from splatview.viewer_app.shards.grouping import Shards
from splatview.viewer_app.views._gaussians.frames import device_scene_of, scene_of
subscriber, shards, seen, trouble = None, Shards(), 0, ""
def read(way):
    "The newest picture: rank -> (number, the values in it), of each array on the GPU and on the host."
    global subscriber, seen, trouble
    subscriber = subscriber or Subscriber(ways=(way,))
    subscriber.poll()
    shards.update(subscriber.streams)
    stream = next(iter(shards.streams), None)
    if stream is None:
        return None
    stream.open()
    frame = stream.read(seen) if stream.version > seen else None
    if frame is None:
        stream.ask()
        return None
    with frame:
        assert frame.on_gpu, {p.rank: (p.stream.sharing, p.stream.fallback) for p in stream.parts}
        scene, ready = device_scene_of(frame)
        side = torch.cuda.Stream(scene.gpu)
        ready(side.cuda_stream)
        with torch.cuda.stream(side):
            arrays = {n: getattr(scene, n).detach().float().cpu() for n in ("means", "quats", "scales", "opacities",
                                                                           "sh0", "shN")}
        ready(torch.cuda.current_stream(scene.gpu).cuda_stream)  # somebody else asks as well
        again = scene.means.detach().float().cpu()
        host = scene_of(frame)
        torch.cuda.synchronize(scene.gpu)
        if not frame.intact():
            return None
        found, begin = {}, 0
        for rank, count in frame.shards:
            values = {float(v) for a in (*arrays.values(), again) for v in a[begin:begin + count].unique()}
            values |= {float(v) for v in set(host.means[begin:begin + count].ravel().tolist())}
            found[rank] = [count, sorted(values)]
            begin += count
        assert begin == len(scene) == len(host), (begin, len(scene), len(host))
        seen, trouble = frame.version, str(frame.meta.get("trouble", ""))
        return [str(scene.gpu), found]
def look(way, values):
    "Until the picture is of these values by rank."
    last, wanted = None, {int(r): [float(v)] for r, v in values.items()}
    end = time.monotonic() + 20
    while time.monotonic() < end:
        now = read(way)
        last = now or last
        if now is not None and {r: v for r, (_, v) in now[1].items()} == wanted:
            return now
        time.sleep(0.002)
    stream = next(iter(shards.streams), None)
    raise AssertionError((last, trouble, stream and [(p.rank, p.stream.version, p.stream.sharing, p.stream.fault,
                                                      p.stream.fallback) for p in stream.parts]))
"""


def visible(*which: int) -> str:
    here = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = here.split(",") if here else [str(i) for i in range(max(which) + 1)]
    return ",".join(names[i] for i in which)


class Ranks:
    """Two ranks and a viewer of their scene."""

    def __init__(self, programs: Programs, gpus: tuple[int, int]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.ranks = [Trainer(programs, CUDA_VISIBLE_DEVICES=visible(gpu),
                              MASTER_ADDR="127.0.0.1", MASTER_PORT=str(self.port)) for gpu in gpus]
        self.viewer = Trainer(programs, CUDA_VISIBLE_DEVICES=visible(*sorted(set(gpus))))
        for rank in self.ranks:
            rank.do(f"COUNTS = {COUNTS}\n{RANK}")
        self.viewer.do(VIEW)

    def all(self, code: str) -> list[Any]:
        for rank in self.ranks:
            rank.start(code)
        return [rank.finish() for rank in self.ranks]

    def begin(self, copies: bool) -> None:
        for number, rank in enumerate(self.ranks):
            rank.start(f"begin({number}, {len(self.ranks)}, {copies})")
        for rank in self.ranks:
            rank.finish()

    def see(self, way: str, values: dict[int, int]) -> Any:
        return self.viewer.do(f"answer = look({way!r}, {values})")


GPUS = [pytest.param((0, 0), id="one GPU"), pytest.param((0, 1), id="two GPUs", marks=TWO)]


@pytest.mark.parametrize("way", ["in-place", "device-ring"])
@pytest.mark.parametrize("gpus", GPUS)
def test_parts_come_together_on_one_gpu(programs: Programs, gpus: tuple[int, int], way: str) -> None:
    two = Ranks(programs, gpus)
    two.begin(way == "device-ring")
    two.all("publish(1)")
    device, found = two.see(way, {0: 1, 1: 101})
    assert device == "cuda:0"
    assert {int(r): n for r, (n, _) in found.items()} == dict(enumerate(COUNTS))
    for step in range(2, 8):
        two.all(f"publish({step})")
        two.see(way, {0: step, 1: 100 + step})
    two.ranks[0].do("publish(50)")  # the other does not come along
    two.see(way, {0: 50, 1: 107})
    two.ranks[0].do("scene = make(1300, 0); publish(51)")  # more Gaussians, elsewhere
    _, found = two.see(way, {0: 51, 1: 107})
    assert {int(r): n for r, (n, _) in found.items()} == {0: 1300, 1: COUNTS[1]}
