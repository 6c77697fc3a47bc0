"""Recording scenes that lie on a GPU: packed there, copied without anybody waiting for it, and shown again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from support.renderer_cases import Chance, random_scene
from support.viewer import Viewer

import splatview.viewer_app.recorder.packed as packing
from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.recorder.options import RecordOptions
from splatview.viewer_app.recorder.packed import layout, pack
from splatview.viewer_app.scene import FIELDS, GaussianScene
from splatview.viewer_app.screens.offscreen import OffscreenScreen
from splatview.viewer_app.sources import StreamSource

if TYPE_CHECKING:
    from support.programs import Programs

pytestmark = pytest.mark.cuda

ON_GPU = """
import sys, time, torch, splatview
torch.set_default_device("cuda")
begin, end, period = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
g = torch.Generator("cuda").manual_seed(0)
means = torch.nn.functional.normalize(torch.randn(5000, 3, generator=g))
for i in range(begin, end):
    n = 100 + i
    grey = torch.full((n, 1, 3), (i % 100) / 100)
    splatview.publish({"means": means[:n] * 2, "quats": torch.ones(n, 4), "scales": torch.full((n, 3), -2.0),
                       "opacities": torch.full((n,), 3.0), "sh0": grey, "shN": torch.zeros(n, 0, 3)}, "splats",
                      step=10 * i)
    splatview.publish(torch.zeros(8, 8, 3), "render")
    time.sleep(period)
print("done", flush=True)
sys.stdin.readline()
"""
"""Arguments: the first version's number, one after the last, seconds between two. Version i has 100 + i Gaussians."""


def both(n: int) -> tuple[GaussianScene, GaussianScene]:
    host = random_scene(5, Chance(n=n))
    return host, replace(host, **{name: torch.from_numpy(np.array(getattr(host, name))).cuda() for name in FIELDS})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_gpu_packs_as_the_host_does(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr(packing, "_CHUNK_GPU", 3000)  # several rounds, the last one short
    _, device = both(10_000)
    device = replace(device, **{name: getattr(device, name).to(dtype) for name in FIELDS})
    wanted = pack(device.to_host()).arrays
    made = pack(device, (0.5, 0.25, 1.0), torch.cuda.Stream())
    assert made.background == (0.5, 0.25, 1.0)
    assert made.gpu_ms > 0
    for name, (shape, kind) in layout(10_000, device.shN.shape[1], device.activated).items():
        array = made.arrays[name]
        assert (array.shape, array.dtype) == (shape, kind)
        if kind.kind == "f":
            np.testing.assert_allclose(array, wanted[name], rtol=2e-3, atol=1e-6)
        else:
            assert np.abs(array.astype(int) - wanted[name].astype(int)).max(initial=0) <= 1


def test_a_training_on_a_gpu_is_recorded_and_seen_again(programs: Programs) -> None:
    # A large share: a snapshot that took long, since others had the GPU as well, is followed by the next one soon.
    viewer = Viewer(OffscreenScreen(900, 520),
                    AppOptions(max_fps=500, gpu_budget=1.0, record=RecordOptions(every=20)))
    try:
        program = programs.code(ON_GPU, "0", "4000", "0.06")  # it publishes for as long as the test may take

        def source() -> StreamSource | None:
            assert program.poll() is None, program.communicate()
            found = [s.source for s in viewer.catalogue.slots.values() if s.entry.name == "splats"]
            return found[0] if found and isinstance(found[0], StreamSource) else None

        def recorded(count: int) -> bool:
            there = source()
            return there is not None and there.tape is not None and len(there.tape.recording) >= count

        try:
            viewer.until(lambda: recorded(6))
        except AssertionError as e:
            made = (there := source()) and there.tape
            raise AssertionError(f"{made and (len(made.recording), made.trouble)} snapshots and trouble; {e}") from e
        there = source()
        assert there is not None and there.tape is not None
        tape = there.tape
        for one in tape.recording.snapshots:
            assert one.count == 100 + one.step // 10
            scene = one.scene()
            assert len(scene) == one.count
            np.testing.assert_allclose(np.linalg.norm(scene.means, axis=1), 2, atol=1e-4)
        assert tape.trouble == ""
        view = viewer.seat.view
        assert view is not None
        content = view.content  # type: ignore[attr-defined]
        for place in (0, 3, 1):
            count = tape.recording.snapshots[place].count
            tape.player.seek(place)
            viewer.until(lambda count=count: content.facts is not None and content.facts.count == count)
        before = len(tape.recording)
        viewer.until(lambda: recorded(before + 2))  # and it goes on meanwhile
        newest = tape.recording.snapshots[-1].count
        tape.player.live()
        viewer.until(lambda: content.facts.count > newest)
    finally:
        viewer.close()
