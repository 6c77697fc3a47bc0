"""The viewer on streams that lie on a GPU: right pixels by each transport and bridge."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.programs import Programs
from support.renderer_cases import psnr
from support.trainers import ALLOCATORS, Trainer
from support.view_cases import change_state, scene_view
from support.viewer import Viewer
from support.wait import PATIENCE_S

from splatview_viewer.app.loop import AppOptions
from splatview_viewer.core.screen import Rect, Screen
from splatview_viewer.core.shown_view import ShownView
from splatview_viewer.core.view import BRIDGE_WORDS, CANVAS_WORDS, WITHOUT_OPENGL
from splatview_viewer.geometry.cameras import Camera, intrinsics, look_at
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.kinds.image.view import ImageView
from splatview_viewer.recording.options import RecordOptions
from splatview_viewer.render.gl.renderer import GlRenderer
from splatview_viewer.scene.scene import GaussianScene
from splatview_viewer.screens.offscreen import OffscreenScreen

pytestmark = pytest.mark.cuda

PATTERN = """
import torch
H, W = 48, 64
FORMS = [(d, s) for d in ("uint8", "float16", "bfloat16", "float32") for s in ("HWC", "CHW")]
FORMS += [("uint8", "HW"), ("uint8", "RGBA"), ("float32", "HW")]

def pattern(k, dtype, sort):
    channels = {"HWC": 3, "CHW": 3, "HW": 1, "RGBA": 4}[sort]
    y, x = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
    values = torch.stack([(x * 4 + y * 3 * (c + 1) + 37 * k + 50 * c) % 256 for c in range(channels)], -1)
    t = values.to(torch.uint8) if dtype == "uint8" else (values / 255).to(getattr(torch, dtype))
    return {"HW": t[..., 0], "CHW": t.permute(2, 0, 1)}.get(sort, t).contiguous()

def scene(k):
    g = torch.Generator().manual_seed(k)
    n = 1500 + 700 * k
    means = torch.randn(n, 3, generator=g)
    means = means / means.norm(dim=1, keepdim=True)
    return {"means": means, "quats": torch.randn(n, 4, generator=g), "scales": torch.full((n, 3), -2.6),
            "opacities": 1.0 + torch.rand(n, generator=g), "sh0": torch.rand(n, 1, 3, generator=g) * 2 - 1,
            "shN": torch.randn(n, 3, 3, generator=g) * 0.1}
"""
"""What trainers publish and tests expect: `pattern(k, dtype, sort)` and `scene(k)`, on
the CPU."""

PUBLISHES = (
    PATTERN
    + """
images = {(d, s): pattern(0, d, s).cuda() for d, s in FORMS}
splats = {n: t.cuda() for n, t in scene(0).items()}
k, lock = 0, threading.Lock()
def next_pattern():
    global k, splats
    with lock:
        k += 1
        for (d, s), t in images.items():
            t.copy_(pattern(k, d, s))
        splats = {n: t.cuda() for n, t in scene(k).items()}  # a densification: other storages, more Gaussians
def loop():
    while True:
        with lock:
            for (d, s), t in images.items():
                splatview.publish(t, f"in-place {d} {s}", copy=False, meta={"step": k})
                splatview.publish(t.clone(), f"ring {d} {s}", copy=True, meta={"step": k})
            splatview.publish(splats, "splats", sh_degree=1, meta={"step": k})
        time.sleep(0.01)
threading.Thread(target=loop, daemon=True).start()
"""
)
"""Publishes every form of image in both ways, and a scene."""

NAMES: dict[str, Any] = {}
# The expected pictures come from the trainer's own code.
exec(PATTERN, NAMES)
H = NAMES["H"]
W = NAMES["W"]
FORMS = NAMES["FORMS"]
BRIDGES = ("direct", "import", "host")
CAMERA = Camera(look_at((0, -1, -4), (0, 0, 0)), intrinsics(50, 320, 240), 320, 240)


class PatternTrainer(Trainer):
    """A training process, and the number of the pattern that it publishes."""

    def __init__(self, programs: Programs, runtime: Path, allocator: str):
        super().__init__(
            programs,
            ALLOCATORS[allocator],
            SPLATVIEW_STRICT="1",
            SPLATVIEW_RUNTIME_DIR=str(runtime),
        )
        self.runtime = runtime
        self.k = 0
        self.do(PUBLISHES)

    def next(self) -> None:
        self.k += 1
        self.do("next_pattern()")


@pytest.fixture(scope="module")
def trainers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, PatternTrainer]]:
    """Start a trainer with torch's ordinary memory, and one with expandable segments."""
    with ExitStack() as started:
        programs = started.enter_context(Programs(tmp_path_factory.mktemp("trainers")))
        by_allocator = {}
        for allocator in ALLOCATORS:
            # The path is short because sockets are made in the folder.
            folder = Path(f"/tmp/sv-gpu-{os.getpid()}-{allocator}")
            folder.mkdir(mode=0o700)
            started.callback(shutil.rmtree, folder, ignore_errors=True)
            by_allocator[allocator] = PatternTrainer(programs, folder, allocator)
        yield by_allocator


@pytest.fixture
def open_viewer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Viewer]]:
    """Return a function that opens a viewer which follows one trainer alone.

    Call it as `open_viewer(trainer, screen, bridge, renderer, **options)`.
    """
    opened: list[Viewer] = []

    def start(
        trainer: PatternTrainer,
        screen: Screen,
        bridge: str = "",
        renderer: str = "",
        **options: Any,
    ) -> Viewer:
        monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(trainer.runtime))
        for name, value in (
            ("SPLATVIEW_INTEROP", bridge),
            ("SPLATVIEW_RENDERER", renderer),
        ):
            if value:
                monkeypatch.setenv(name, value)
            else:
                monkeypatch.delenv(name, raising=False)
        options = {"max_fps": 500.0, "panel": False, "gpu_budget": 1.0, **options}
        opened.append(Viewer(screen, AppOptions(**options)))
        return opened[-1]

    yield start
    errors = []
    for viewer in opened:
        errors.append(viewer.screen.ctx.error)
        viewer.close()
    assert errors == ["GL_NO_ERROR"] * len(errors)


def select(viewer: Viewer, name: str) -> None:
    def is_listed() -> bool:
        return any(entry.name == name for entry in viewer.state.entries)

    viewer.until(is_listed)
    slot = next(s for s in viewer.catalogue.slots.values() if s.entry.name == name)
    viewer.user.select(slot.entry.key)


def expected_image(k: int, dtype: str, sort: str) -> np.ndarray:
    tensor = NAMES["pattern"](k, dtype, sort)
    if sort == "CHW":
        tensor = tensor.permute(1, 2, 0)
    if dtype != "uint8":
        tensor = (tensor.float() * 255).round().int()
    values = tensor.numpy().astype(int)
    if values.ndim == 2:
        return np.repeat(values[..., None], 3, axis=2)
    return values[..., :3]


def wait_for(viewer: Viewer, want: np.ndarray) -> None:
    """Wait until the picture is this, to one in 255."""

    def fits() -> bool:
        image = viewer.shows(ImageView)
        if image is not None and image.state.alpha != "ignore":
            change_state(viewer.user.view, alpha="ignore")
            viewer.user.mark()
        return bool(np.abs(viewer.pixels() - want).max() <= 1)

    viewer.until(fits)


def expected_scene(k: int, show: str = "color") -> np.ndarray:
    """Draw a scene with OpenGL from host memory; return (240, 320, 3).

    Call it before a viewer is opened: it releases the thread's OpenGL context.
    """
    t = NAMES["scene"](k)
    scene = GaussianScene(
        t["means"],
        t["quats"],
        t["scales"],
        t["opacities"],
        t["sh0"][:, 0],
        t["shN"],
        sh_degree=1,
    )
    screen = OffscreenScreen(320, 240)
    view = scene_view(screen, GlRenderer(screen.ctx), show=show)
    try:
        view.update(scene)
        view.view.rig.use_camera(CAMERA)
        view.draw(screen.framebuffer, Rect(0, 0, 320, 240))
        return screen.pixels()[..., :3].astype(int)
    finally:
        view.close()
        screen.close()


def wait_for_scene(viewer: Viewer, want: np.ndarray, min_psnr: float = 36.0) -> Any:
    """Wait until the viewer shows this, and return the view."""

    def fits() -> bool:
        slot = viewer.user.shown
        if slot is None or not isinstance(slot.view, ShownView) or slot.view.empty:
            return False
        scene: Any = slot.view.view
        if not scene.rig.is_fixed:
            scene.rig.use_camera(CAMERA)
            viewer.user.mark()
            return False
        return psnr(viewer.pixels(), want, 255) > min_psnr

    viewer.until(fits)
    assert viewer.user.shown is not None
    return viewer.user.shown.view


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
            step(app)
            seen[name] = slot.view.info.path
from cuda.bindings import driver
error, device = driver.cuDeviceGet(0)
made = int(error) == 0 and (driver.cuDevicePrimaryCtxGetState(device)[2] or int(driver.cuCtxGetCurrent()[1] or 0))
torch = sys.modules.get("torch")
print(json.dumps([seen, bool(made), bool(torch and torch.cuda.is_initialized())]))
app.close()
"""
"""Looks at streams, its arguments, one after the other.

Prints what it saw, and whether CUDA has a context.
"""


@pytest.mark.parametrize(
    ("transport", "allocator", "bridge"),
    [
        *(("ring", "cudaMalloc", bridge) for bridge in ("", *BRIDGES)),
        *(("in-place", "cudaMalloc", bridge) for bridge in BRIDGES),
        ("in-place", "expandable", ""),
    ],
)
def test_images_are_exact(
    trainers: dict[str, PatternTrainer],
    open_viewer: Any,
    transport: str,
    allocator: str,
    bridge: str,
) -> None:
    trainer = trainers[allocator]
    viewer = open_viewer(trainer, OffscreenScreen(W, H), bridge)
    for dtype, sort in FORMS:
        select(viewer, f"{transport} {dtype} {sort}")
        wait_for(viewer, expected_image(trainer.k, dtype, sort))
    slot = viewer.user.shown
    assert slot is not None
    assert slot.view is not None
    paths = {"ring": "ring in GPU memory", "in-place": "in place (zero-copy)"}
    # Memory of cudaMalloc has no descriptor for OpenGL.
    can_be_direct = (transport, allocator) != ("in-place", "cudaMalloc")
    if bridge == "direct" and not can_be_direct:
        assert slot.source.path == "GPU to pinned host memory"
        assert any("direct" in note for note in slot.source.notes)
    else:
        if not bridge:
            bridge = "direct" if can_be_direct else "import"
        assert slot.source.path == paths[transport]
        assert slot.view.info.path == [BRIDGE_WORDS[bridge]]
    trainer.next()
    wait_for(viewer, expected_image(trainer.k, *FORMS[-1]))

    def shows_step() -> bool:
        return f"step {trainer.k}" in slot.view.info.details

    viewer.until(shows_step)


def test_images_alone_need_no_cuda(
    trainers: dict[str, PatternTrainer], programs: Programs
) -> None:
    trainer = trainers["expandable"]
    names = ["ring uint8 HWC", "in-place float32 CHW", "ring bfloat16 CHW"]
    program = programs.code(
        VIEWER,
        *names,
        SPLATVIEW_RUNTIME_DIR=str(trainer.runtime),
        SPLATVIEW_RENDERER="gl",
    )
    out, err = program.communicate(timeout=PATIENCE_S)
    assert program.returncode == 0, err
    paths, has_context, is_torch_initialized = json.loads(out.splitlines()[-1])
    assert paths == {name: [BRIDGE_WORDS["direct"]] for name in names}, err
    assert not has_context, "CUDA has a context"
    assert not is_torch_initialized, "CUDA has a context"


@pytest.mark.parametrize(
    ("renderer", "bridge"),
    [("gsplat", "import"), ("gsplat", "host"), ("gsplat", ""), ("gl", "")],
)
@pytest.mark.parametrize("allocator", ["cudaMalloc", "expandable"])
def test_scenes_are_right_and_follow_densifications(
    trainers: dict[str, PatternTrainer],
    open_viewer: Any,
    monkeypatch: pytest.MonkeyPatch,
    allocator: str,
    renderer: str,
    bridge: str,
) -> None:
    def leave_to_opengl(*_: object) -> None:
        pass

    if bridge:
        monkeypatch.setattr(GaussianView, "draw_on_device", leave_to_opengl)
    trainer = trainers[allocator]
    # Each of these has an OpenGL context of its own.
    want = expected_scene(trainer.k)
    want_next = expected_scene(trainer.k + 1)
    viewer = open_viewer(
        trainer,
        OffscreenScreen(320, 240),
        bridge,
        renderer,
        record=RecordOptions(every=1),
    )
    select(viewer, "splats")
    view = wait_for_scene(viewer, want)
    assert view.info.path[1] == f"{renderer} renderer"
    if renderer == "gsplat":
        way_to_screen = CANVAS_WORDS[bridge] if bridge else WITHOUT_OPENGL
        assert view.info.path[2] == way_to_screen
    slot = viewer.user.shown
    assert slot is not None
    if renderer == "gsplat":
        assert view.info.path[0] == "parameters read in place"
        assert slot.source.path == "in place (zero-copy)"
    trainer.next()
    wait_for_scene(viewer, want_next)
    if renderer == "gsplat":
        # The sample of where the Gaussians are is taken again on demand.
        sample = view.content.current_sample()
        assert sample is not None
        xs = NAMES["scene"](trainer.k)["means"][:, 0].numpy()
        assert np.allclose(np.sort(sample.means[:, 0]), np.sort(xs), atol=1e-6)
    count = 1500 + 700 * trainer.k
    assert f"{count:,} Gaussians" in view.info.details
    tape = slot.source.tape

    def is_recorded() -> bool:
        snapshots = tape.recording.snapshots
        return bool(snapshots) and snapshots[-1].count == count

    viewer.until(is_recorded)


def test_doctor_on_a_gpu(programs: Programs) -> None:
    program = programs.splatview("doctor", "--json")
    output, errors = program.communicate(timeout=400)
    assert program.returncode == 0, output + errors
    findings = {finding["name"]: finding for finding in json.loads(output)}
    for name in ("cuda sharing", "cuda to opengl"):
        assert findings[name]["state"] == "ok", findings[name]
    assert torch.cuda.get_device_name(0) in findings["cuda"]["detail"]
