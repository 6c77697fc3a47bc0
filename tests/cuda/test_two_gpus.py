"""A trainer and a viewer that number the GPUs differently: the UUID says which is meant, and frames arrive right."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from support.trainers import ALLOCATORS, Trainer

if TYPE_CHECKING:
    from support.programs import Programs

pytestmark = [pytest.mark.cuda,
              pytest.mark.skipif("__import__('torch').cuda.device_count() < 2", reason="needs two GPUs")]

PATTERN = """
def pattern(step, shape, dtype, device="cpu"):
    count = 1
    for n in shape:
        count *= n
    values = torch.arange(count, dtype=torch.int64, device=device).mul_(2 * step + 1).remainder_(251)
    return values.to(getattr(torch, dtype)).view(shape)
PICTURES = {"bytes": ((270, 481, 4), "uint8"), "floats": ((3, 101, 67), "float32")}
"""
PUBLISH = PATTERN + """
assert torch.cuda.device_count() == 1
pictures = {name: torch.empty(shape, dtype=getattr(torch, dtype), device="cuda") for name, (shape, dtype) in
            PICTURES.items()}
scene = make(1000, 0)
def publish(step):
    for name, picture in pictures.items():
        picture.copy_(pattern(step, *PICTURES[name], "cuda"))
        splatview.publish(picture, name, step=step)
    fill(scene, step)
    splatview.publish(scene, step=step)
publish(0)
answer = str(torch.cuda.get_device_properties(0).uuid).replace("-", "")
"""
VIEW = PATTERN + """
from splatview_ipc.control.frame import DeviceTensor
from splatview_ipc.subscriber.subscriber import Subscriber
def view(way, steps, uuid, device):
    "Everything that comes in one way, step by step; what was wrong."
    wrong, seen = [], {}
    with Subscriber(transports=(way,)) as subscriber:
        def found():
            subscriber.poll()
            return {s.name: s for s in subscriber.streams if s.run.alive}
        until(lambda: len(found()) == 3)
        streams = found()
        for stream in streams.values():
            stream.open()
        for name, stream in streams.items():
            if stream.gpu != uuid:
                wrong.append((name, "is said to lie on", stream.gpu))
        for step in steps:
            print(json.dumps({"answer": step}), flush=True)  # the trainer publishes it now
            for name, stream in streams.items():
                end = time.monotonic() + 30
                while True:
                    subscriber.poll()
                    frame = stream.read(seen.get(name, 0))
                    if frame is not None and frame.meta["step"] == step:
                        break
                    if frame is not None:
                        frame.close()
                    assert time.monotonic() < end, (name, way, stream.fault, stream.fallback, stream.version)
                    time.sleep(1e-3)
                with frame:
                    seen[name] = frame.version
                    if stream.sharing != way:
                        wrong.append((name, "came by", stream.sharing))
                    for key, t in frame.tensors.items():
                        on_gpu = isinstance(t, DeviceTensor)
                        if on_gpu != (way != "host"):
                            wrong.append((name, "came as", type(t).__name__))
                        shape, dtype = PICTURES.get(name, (t.shape, t.dtype))
                        wanted = pattern(step, shape, dtype).float() if name in PICTURES else torch.full(shape, step)
                        if not torch.equal(torch.from_numpy(t.to_float32()), wanted.float()):
                            wrong.append((name, key, step, "differs"))
                        if on_gpu:
                            frame.wait(torch.cuda.current_stream(device).cuda_stream)
                            there = t.torch()
                            if there.device != torch.device("cuda", device):
                                wrong.append((name, key, "lies on", str(there.device)))
                            if not torch.equal(there.float().cpu(), wanted.float()):
                                wrong.append((name, key, step, "differs on the GPU"))
                    if not frame.intact():
                        wrong.append((name, step, "is not intact"))
    return wrong
"""


def visible(*which: int) -> str:
    """CUDA_VISIBLE_DEVICES for some of the GPUs that are visible here."""
    here = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = here.split(",") if here else ["0", "1"]
    return ",".join(names[i] for i in which)


@pytest.mark.parametrize(("order", "device", "allocator"), [((0, 1), 1, "cudaMalloc"), ((1, 0), 0, "expandable")])
def test_frames_arrive_right_in_every_way(programs: Programs, order: tuple[int, ...], device: int,
                                          allocator: str) -> None:
    trainer = Trainer(programs, ALLOCATORS[allocator], CUDA_VISIBLE_DEVICES=visible(1))
    viewer = Trainer(programs, CUDA_VISIBLE_DEVICES=visible(*order))
    uuid = trainer.do(PUBLISH)
    viewer.do(VIEW)
    for number, way in enumerate(("device-ring", "in-place", "host")):
        steps = [10 * number + k for k in range(1, 6)]
        viewer.start(f"answer = view({way!r}, {steps}, {uuid!r}, {device})")
        for step in steps:
            assert viewer.finish() == step
            trainer.do(f"publish({step})")
        wrong: Any = viewer.finish()
        assert not wrong, (way, wrong)


def test_a_viewer_that_sees_another_gpu_only_is_served_through_the_host(programs: Programs) -> None:
    trainer = Trainer(programs, CUDA_VISIBLE_DEVICES=visible(1))
    viewer = Trainer(programs, CUDA_VISIBLE_DEVICES=visible(0))
    trainer.do(PUBLISH)
    shared, fallback, least, most = viewer.do("""
from splatview_ipc.subscriber.subscriber import Subscriber
with Subscriber() as subscriber:
    def stream():
        subscriber.poll()
        return next((s for s in subscriber.streams if s.name == "gaussians"), None)
    until(stream, 30)
    seen = stream()
    seen.open()
    def read():
        subscriber.poll()
        return seen.read()
    frame = None
    def came():
        global frame
        frame = read()
        return frame is not None
    until(came, 20)
    with frame:
        means = frame.tensors["means"].to_float32()
        answer = seen.sharing, seen.fallback, float(means.min()), float(means.max())
""")
    assert (shared, least, most) == ("host", 0, 0)
    assert "in-place: this process cannot open memory of GPU" in fallback
