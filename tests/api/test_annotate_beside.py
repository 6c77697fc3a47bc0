"""`annotate` beside the rest: results of frames that `splatview.frames` hands out, and what goes to a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from support.annotate_cases import Overlays, made, texts
from support.repetitions import exhaustive
from support.wait import PATIENCE

import splatview
from splatview.adapt.overlay import OPTIONS, together
from splatview.ipc import Subscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.programs import Programs

BOXES = [[1.0, 2.0, 30.0, 40.5], [5.0, 6.0, 20.0, 20.0]]

CAMERA = """
import sys, time, torch, splatview
from splatview import publishing
i = 0
while True:
    i += 1
    splatview.publish(torch.full((48, 64, 3), i % 256, dtype=torch.uint8), "camera")
    if i == 1:
        print(publishing.running().run_id, flush=True)
    time.sleep(0.01)
"""
"""Every pixel tells the version."""


def test_results_belong_to_the_frames_that_they_were_computed_on(
        programs: Programs, wait_until: Callable[..., Any]) -> None:
    camera = programs.code(CAMERA)
    run = camera.stdout.readline().strip()  # type: ignore[union-attr]
    with Subscriber() as subscriber, splatview.frames("camera", timeout=PATIENCE) as frames:
        overlays = Overlays(subscriber, wait_until)
        for n, frame in enumerate(frames):
            seen = float(frame.tensor[0, 0, 0])
            given = {} if n % 2 else {"version": frame}
            splatview.annotate("camera", boxes=[seen] * 4, **given)  # type: ignore[arg-type]
            version, tensors, meta = overlays.read(overlays.over("camera", run), n)
            assert version == n + 1
            assert meta["version"] == frame.version
            assert meta["time_ns"] == frame.time_ns
            assert tensors["boxes"].tolist() == [[frame.version % 256] * 4]
            if n == 9:
                break


def test_what_goes_to_a_gpu_in_one_piece_comes_apart_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layout of that piece, in host memory that nobody pins; tests/cuda has the rest."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, pin_memory=False, **more: empty(*size, **more))
    given: dict[str, Any] = {"boxes": BOXES, "labels": ["a", "bc"], "scores": [0.5, 0.25], "colors": "#01020304",
                             "points": np.random.rand(2, 3, 2), "skeleton": [], "lines": [(1, 2), (3, 4), (5, 6)],
                             "notes": "text", "masks": np.ones((2, 3, 5), bool)}
    tensors, _ = made(**given)
    apart = together(tensors, torch.device("cpu"))
    assert list(apart) == list(tensors)
    for name, tensor in tensors.items():
        assert torch.equal(apart[name], tensor)
        assert (apart[name].dtype, apart[name].is_contiguous()) == (tensor.dtype, True)
    assert len({t.untyped_storage().data_ptr() for t in apart.values()}) == 1
    nothing, _ = made(boxes=[])
    assert together(nothing, torch.device("cpu"))["boxes"].shape == (0, 4)


JUNK: list[Any] = [
    None, True, 0, -1, 5, 2**70, 0.5, float("nan"), "", "x", "coco", "#123456", b"x", [], [[]], [[[]]], [None], ["a"],
    ["a", "b"], [1, 2], [[1, 2]], [[1, 2], [3]], [1, 2, 3, 4], [[1, 2, 3, 4]], BOXES, [BOXES, BOXES], {}, {1: "a"},
    {"a": 1}, {"a": "#ffffff"}, {"size": [2, 2], "counts": [4]}, [{"size": [2, 2], "counts": b"4"}], [[4], [0, 4]],
    (1, 1), (2, 2), ((1, 2, "x"),), [(1, 2, 3)], np.zeros(0), np.zeros((2, 4)), np.zeros((2, 2, 2), bool),
    np.zeros(2, int), np.array("x"), np.array(["a", None], object), np.zeros((2, 3), ">i2"), torch.zeros(2),
    torch.zeros(0, 17, 2),
    torch.zeros(2, 17, 3), torch.zeros(2, 4, dtype=torch.int8), torch.zeros(1, 4, device="meta"), object(),
    iter([1, 2]), range(2), set(), float("inf"), [object()], [float("nan")] * 4, torch.zeros(3, 0), np.float32(3),
    "\ud800", ["\0"],
]


@pytest.mark.parametrize("seed", [*range(10), *map(exhaustive, range(10, 40))])
def test_whatever_it_is_given_it_is_drawn_or_the_mistake_is_named(seed: int, wait_until: Callable[..., Any]) -> None:
    rng = np.random.default_rng(seed)
    names = ["boxes", "labels", "scores", "points", "masks", "version", *OPTIONS]
    for _ in range(100):
        given = {str(name): JUNK[rng.integers(len(JUNK))]
                 for name in rng.choice(names, rng.integers(1, 5), replace=False)}
        if rng.random() < 0.5:
            given["boxes"] = BOXES
        try:
            splatview.annotate("camera", **given)
        except (TypeError, ValueError) as e:
            assert any(name.rstrip("s") in str(e) for name in given), f"{given}: {e}"
            assert len(str(e)) < 600
    splatview.annotate("other", boxes=BOXES, names=["cat"], labels=[0, 1])  # nothing of all that is in the way
    with Subscriber() as subscriber:
        overlays = Overlays(subscriber, wait_until)
        _, tensors, _ = overlays.read(overlays.over("other"))
        assert texts(tensors["labels"]) == ["cat", "1"]
