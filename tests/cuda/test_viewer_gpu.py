"""The viewer on streams that lie on a GPU: the right pixels whatever the way and the bridge, and no CUDA where none is
needed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support.programs import Programs
from support.view_cases import see
from support.viewer_cases import (
    BRIDGES,
    FORMS,
    NAMES,
    H,
    Trainer,
    W,
    about,
    expected_image,
    expected_scene,
    psnr,
    select,
    wait_for,
    wait_for_scene,
)
from support.wait import PATIENCE

from splatview_viewer.core.view import BRIDGE_WORDS, CANVAS_WORDS
from splatview_viewer.screens.offscreen import OffscreenScreen

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.cuda

VIEWER = """
import json, sys, time
from splatview_viewer.app.loop import App, AppOptions, step
from splatview_viewer.screens.offscreen import OffscreenScreen
app = App(OffscreenScreen(64, 48), AppOptions(panel=False, max_fps=500))
seen, end = {}, time.monotonic() + 50
for name in sys.argv[1:]:
    while name not in seen and time.monotonic() < end:
        step(app)
        slot = next((s for s in app.catalogue.slots.values() if s.entry.name == name), None)
        if slot is None:
            continue
        app.user.select(slot.entry.key)
        if slot.view is not None and not slot.view.empty:
            for _ in range(30):
                step(app)
            pixels = app.screen.pixels()[..., :3]
            seen[name] = {"path": slot.view.path, "way": slot.source.path, "notes": slot.source.notes,
                          "fault": slot.entry.fault, "pixels": pixels.reshape(-1, 3)[::97].tolist()}
from cuda.bindings import driver
error, device = driver.cuDeviceGet(0)
active = -1
if int(error) == 0:
    active = driver.cuDevicePrimaryCtxGetState(device)[2]
current = int(driver.cuCtxGetCurrent()[1] or 0) if int(error) == 0 else 0
torch = sys.modules.get("torch")
print(json.dumps({"seen": seen, "active": active, "current": current, "error": int(error),
                  "torch": bool(torch and torch.cuda.is_initialized())}))
app.close()
"""
"""Arguments: streams to look at, one after the other. Prints what it saw, and whether CUDA has a context."""


# -- images --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "allocator", "bridge"), [
    *(("ring", "plain", bridge) for bridge in ("", *BRIDGES)), *(("in-place", "plain", bridge) for bridge in BRIDGES),
    ("in-place", "expandable", "")])
def test_images_are_exact(trainers: dict[str, Trainer], open_viewer: Any, way: str, allocator: str,
                          bridge: str) -> None:
    trainer = trainers[allocator]
    viewer = open_viewer(trainer, OffscreenScreen(W, H), bridge)
    for dtype, sort in FORMS:
        select(viewer, trainer, f"{way} {dtype} {sort}")
        wait_for(viewer, trainer, expected_image(trainer.k, dtype, sort))
    slot = viewer.user.shown
    assert slot is not None
    assert slot.view is not None
    print(f"{way} {allocator} {bridge or 'by itself'}: {about(viewer)}")
    shared = {"ring": "ring in GPU memory", "in-place": "in place (zero-copy)"}[way]
    direct = (way, allocator) != ("in-place", "plain")  # cudaMalloc memory has no descriptor for OpenGL
    if bridge == "direct" and not direct:
        assert slot.source.path == "GPU to pinned host memory"
        assert any("direct" in note for note in slot.source.notes)
    else:
        assert slot.source.path == shared
        assert slot.view.path == [BRIDGE_WORDS[bridge or ("direct" if direct else "import")]]
    trainer.next()
    wait_for(viewer, trainer, expected_image(trainer.k, *FORMS[-1]))
    viewer.until(lambda: f"step {trainer.k}" in slot.view.details)


def test_images_alone_need_no_cuda(trainers: dict[str, Trainer], tmp_path: Path) -> None:
    trainer = trainers["expandable"]
    names = ["ring uint8 HWC", "in-place float32 CHW", "ring bfloat16 CHW", "in-place uint8 RGBA"]
    started = Programs(tmp_path)
    try:
        program = started.code(VIEWER, *names, SPLATVIEW_RUNTIME_DIR=str(trainer.runtime), SPLATVIEW_RENDERER="gl")
        out, err = program.communicate(timeout=PATIENCE)
    finally:
        started.close()
    assert program.returncode == 0, err
    told = json.loads(out.splitlines()[-1])
    assert list(told["seen"]) == names, (told, err)
    for name in names[:3]:  # the last one has an alpha channel, which shows a checkerboard here
        seen, (_, dtype, sort) = told["seen"][name], name.split()
        assert seen["path"] == [BRIDGE_WORDS["direct"]], seen
        want = expected_image(trainer.k, dtype, sort).reshape(-1, 3)[::97]
        assert np.abs(np.array(seen["pixels"]) - want).max() <= 1, seen
    assert not told["torch"], told
    assert told["current"] == 0, told
    assert told["active"] in (0, -1), f"a CUDA context was made: {told}"


@pytest.mark.parametrize("bridge", BRIDGES)
def test_shot(trainers: dict[str, Trainer], tmp_path: Path, bridge: str) -> None:
    from PIL import Image

    trainer = trainers["expandable"]
    started = Programs(tmp_path)
    try:
        for name in ("ring uint8 HWC", "in-place float16 CHW"):
            program = started.python("-m", "splatview_viewer", "shot", "out.png", "--stream", name,
                                     SPLATVIEW_RUNTIME_DIR=str(trainer.runtime), SPLATVIEW_INTEROP=bridge)
            _, err = program.communicate(timeout=PATIENCE)
            assert program.returncode == 0, err
            got = np.asarray(Image.open(tmp_path / "out.png")).astype(int)
            assert np.abs(got - expected_image(trainer.k, *name.split()[1:])).max() <= 1, name
    finally:
        started.close()


# -- scenes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("renderer", "bridge"), [("gsplat", "import"), ("gsplat", "host"), ("gsplat", ""), ("gl", "")])
@pytest.mark.parametrize("allocator", ["plain", "expandable"])
def test_scenes_are_right_and_follow_densifications(trainers: dict[str, Trainer], open_viewer: Any, allocator: str,
                                                    renderer: str, bridge: str) -> None:
    trainer = trainers[allocator]
    want, after = expected_scene(trainer.k), expected_scene(trainer.k + 1)  # each has an OpenGL context of its own
    viewer = open_viewer(trainer, OffscreenScreen(320, 240), bridge, renderer)
    select(viewer, trainer, "splats")
    view = wait_for_scene(viewer, trainer, want)
    print(f"{renderer} {bridge}: {psnr(viewer.pixels(), want):.1f} dB; {about(viewer)}")
    assert view.path[1] == f"{renderer} renderer"
    if bridge:
        assert view.path[2] == CANVAS_WORDS[bridge]
    if renderer == "gsplat":
        assert view.path[0] == "parameters read in place"
        slot = viewer.user.shown
        assert slot is not None
        assert slot.source.path == "in place (zero-copy)"
    trainer.next()
    wait_for_scene(viewer, trainer, after)
    if renderer == "gsplat":  # where the Gaussians are is looked at anew on demand
        sight = view.content.look()
        assert sight is not None
        sample = np.sort(sight.means[:, 0])
        assert np.allclose(sample, np.sort(NAMES["scene"](trainer.k)["means"][:, 0].numpy()), atol=1e-6)
    assert f"{1500 + 700 * trainer.k:,} Gaussians" in view.details


@pytest.mark.parametrize("show", ["depth", "alpha"])
def test_depth_and_alpha_stay_on_the_gpu(trainers: dict[str, Trainer], open_viewer: Any, show: str,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainers["plain"]
    color, want = expected_scene(trainer.k), expected_scene(trainer.k, show)
    viewer = open_viewer(trainer, OffscreenScreen(320, 240), "", "gsplat")
    select(viewer, trainer, "splats")
    wait_for_scene(viewer, trainer, color)
    from splatview_viewer.render.gsplat.renderer import GsplatPicture

    def never(self: Any) -> Any:
        raise AssertionError("the picture was read back")

    monkeypatch.setattr(GsplatPicture, "pixels", never)
    slot = viewer.user.shown
    assert slot is not None
    see(slot.view, show=show)
    viewer.user.mark()
    wait_for_scene(viewer, trainer, want, least=24.0 if show == "depth" else 36.0)  # Turbo is steep
