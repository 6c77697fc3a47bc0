"""The viewer on streams that lie on a GPU: the right pixels whatever the way and the bridge, no CUDA where none is
needed, and its share of the GPU held."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from conftest import Processes
from test_viewer import Viewer
from viewer_programs import BUSY, PATTERN, TRAINER, VIEWER

from viewer_app.app import AppOptions
from viewer_app.cameras import Camera, intrinsics, look_at
from viewer_app.controls import Rect
from viewer_app.events import PointerMove, PointerPress, PointerRelease
from viewer_app.scene import GaussianScene
from viewer_app.screens.offscreen import OffscreenScreen
from viewer_app.shot import save_png
from viewer_app.views.base import BRIDGE_WORDS
from viewer_app.views.gaussians import GaussianView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from viewer_app.screens.base import Screen

pytestmark = pytest.mark.cuda

NAMES: dict[str, Any] = {}
exec(PATTERN, NAMES)  # the trainer's own words
H, W, FORMS = NAMES["H"], NAMES["W"], NAMES["FORMS"]
BRIDGES = ("direct", "import", "register", "host")
CAMERA = Camera(look_at((0, -1, -4), (0, 0, 0)), intrinsics(50, 320, 240), 320, 240)


class Trainer:
    """A training process, and which pattern it shows."""

    def __init__(self, folder: Path, allocator: str):
        (folder / "runtime").mkdir(mode=0o700)
        self.runtime = folder / "runtime"
        self.k = 0
        self._processes = Processes(folder)
        self.process = self._processes.code(TRAINER, PYTORCH_CUDA_ALLOC_CONF=allocator, SPLATVIEW_STRICT="1",
                                            SPLATVIEW_RUNTIME_DIR=str(self.runtime))
        assert self.process.stdout is not None
        line = self.process.stdout.readline()  # ends when the program does
        assert line == "ready\n", f"the trainer failed: {self.last_words()}"

    def last_words(self) -> str:
        self.process.kill()
        return "".join(self.process.communicate(timeout=20))[-3000:]

    def next(self) -> None:
        assert self.process.stdin is not None
        self.k += 1
        self.process.stdin.write("next\n")
        self.process.stdin.flush()

    def alive(self) -> None:
        assert self.process.poll() is None, f"the trainer ended: {self.last_words()}"

    def close(self) -> None:
        self._processes.close()


@pytest.fixture(scope="module")
def trainers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Trainer]]:
    """One with torch's ordinary memory, one with expandable segments, started when they are needed."""
    class Made(dict[str, Trainer]):
        def __missing__(self, allocator: str) -> Trainer:
            folder = Path("/tmp") / f"sv-gpu-{os.getpid()}-{len(self)}"
            folder.mkdir(mode=0o700)
            self[allocator] = Trainer(folder, f"expandable_segments:{allocator == 'expandable'}")
            return self[allocator]

    made = Made()
    yield made
    import shutil

    for trainer in made.values():
        trainer.close()
        shutil.rmtree(trainer.runtime.parent, ignore_errors=True)


@pytest.fixture
def open_viewer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`open_viewer(trainer, screen, bridge, renderer, **options)`: an App that follows this trainer alone."""
    opened: list[Viewer] = []

    def start(trainer: Trainer, screen: Screen, bridge: str = "", renderer: str = "", **options: Any) -> Viewer:
        monkeypatch.setenv("SPLATVIEW_RUNTIME_DIR", str(trainer.runtime))
        for name, value in (("SPLATVIEW_INTEROP", bridge), ("SPLATVIEW_RENDERER", renderer)):
            if value:
                monkeypatch.setenv(name, value)
            else:
                monkeypatch.delenv(name, raising=False)
        opened.append(Viewer(screen, AppOptions(**{"max_fps": 500.0, "panel": False, "gpu_budget": 1.0, **options})))
        return opened[-1]

    yield start
    errors = []
    for viewer in opened:
        errors.append(viewer.screen.ctx.error)
        viewer.close()
    assert errors == ["GL_NO_ERROR"] * len(errors)


def about(viewer: Viewer) -> str:
    slot = viewer.catalogue.shown
    if slot is None:
        return f"nothing is shown; there are {[e.name for e in viewer.state.entries]}"
    view = slot.view
    return (f"{slot.entry.name}: {slot.source.path}, notes {slot.source.notes}, fault {slot.entry.fault!r} "
            f"{slot.entry.fault_of_source!r}, "
            + (f"{view.details}, {view.path}, {view.extras}, stale {view.stale}" if view else "no view"))


def select(viewer: Viewer, trainer: Trainer, name: str) -> None:
    end = time.monotonic() + 30
    while not any(e.name == name for e in viewer.state.entries):
        viewer.turn()
        trainer.alive()
        assert time.monotonic() < end, f"no stream {name!r} within 30 s; there are {viewer.state.entries}"
    slot = next(s for s in viewer.catalogue.slots.values() if s.entry.name == name)
    slot.entry.settings.image.alpha = "ignore"
    viewer.catalogue.select(slot.entry.key)


def expected_image(k: int, dtype: str, sort: str) -> np.ndarray:
    t = NAMES["pattern"](k, dtype, sort)
    t = t.permute(1, 2, 0) if sort == "CHW" else t
    values = t.numpy() if dtype == "uint8" else (t.float() * 255).round().int().numpy()
    values = values.astype(int)
    return np.repeat(values[..., None], 3, axis=2) if values.ndim == 2 else values[..., :3]


def wait_for(viewer: Viewer, trainer: Trainer, want: np.ndarray, rect: Rect | None = None) -> None:
    """Until the picture is this, to one in 255."""
    end, worst = time.monotonic() + 20, -1
    while time.monotonic() < end:
        viewer.turn()
        pixels = viewer.pixels()
        if rect is not None:
            pixels = pixels[rect.y:rect.y + rect.height, rect.x:rect.x + rect.width]
        assert pixels.shape == want.shape
        worst = int(np.abs(pixels - want).max())
        if worst <= 1:
            return
    trainer.alive()
    raise AssertionError(f"off by up to {worst} of 255 after 20 s. {about(viewer)}")


def keep(viewer: Viewer, name: str) -> None:
    """Save the picture where the environment says, to be looked at."""
    if folder := os.environ.get("SPLATVIEW_TEST_PICTURES"):
        viewer._mark(3)
        viewer.do()
        Path(folder).mkdir(parents=True, exist_ok=True)
        viewer._draw()
        save_png(viewer.screen.pixels()[..., :3], Path(folder) / f"{name}.png")


# -- images --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bridge", ["", *BRIDGES])
@pytest.mark.parametrize(("way", "allocator"), [("ring", "plain"), ("in-place", "plain"), ("in-place", "expandable")])
def test_images_are_exact(trainers: dict[str, Trainer], open_viewer: Any, way: str, allocator: str,
                          bridge: str) -> None:
    trainer = trainers[allocator]
    viewer = open_viewer(trainer, OffscreenScreen(W, H), bridge)
    for dtype, sort in FORMS:
        select(viewer, trainer, f"{way} {dtype} {sort}")
        wait_for(viewer, trainer, expected_image(trainer.k, dtype, sort))
    slot = viewer.catalogue.shown
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
    wait_for(viewer, trainer, expected_image(trainer.k, dtype, sort))
    viewer.until(lambda: f"step {trainer.k}" in slot.view.details)


def test_values_and_broken_ones_of_an_image_in_place(trainers: dict[str, Trainer], open_viewer: Any) -> None:
    trainer = trainers["expandable"]
    viewer = open_viewer(trainer, OffscreenScreen(W, H), "direct")
    select(viewer, trainer, "in-place float32 HWC")
    wait_for(viewer, trainer, expected_image(trainer.k, "float32", "HWC"))
    values = NAMES["pattern"](trainer.k, "float32", "HWC")
    assert viewer.image.value_at(13, 29) == pytest.approx(values[29, 13].tolist(), abs=0)
    viewer.do(PointerMove(13.5, 29.5))
    assert viewer.image.readout.startswith("(13, 29)")
    viewer.until(lambda: viewer.image._counted_at > 0 and viewer.image._counting is None)
    assert not any("NaN" in d for d in viewer.image.details)


def test_images_alone_need_no_cuda(trainers: dict[str, Trainer], tmp_path: Path) -> None:
    trainer = trainers["expandable"]
    names = ["ring uint8 HWC", "in-place float32 CHW", "ring bfloat16 CHW", "in-place uint8 RGBA"]
    started = Processes(tmp_path)
    try:
        program = started.code(VIEWER, *names, SPLATVIEW_RUNTIME_DIR=str(trainer.runtime), SPLATVIEW_RENDERER="gl")
        out, err = program.communicate(timeout=90)
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
    started = Processes(tmp_path)
    try:
        for name in ("ring uint8 HWC", "in-place float16 CHW"):
            program = started.python("-m", "viewer_app", "shot", "out.png", "--stream", name,
                                     SPLATVIEW_RUNTIME_DIR=str(trainer.runtime), SPLATVIEW_INTEROP=bridge)
            _, err = program.communicate(timeout=60)
            assert program.returncode == 0, err
            got = np.asarray(Image.open(tmp_path / "out.png")).astype(int)
            assert np.abs(got - expected_image(trainer.k, *name.split()[1:])).max() <= 1, name
    finally:
        started.close()


# -- scenes --------------------------------------------------------------------------------------------------


def expected_scene(k: int, show: str = "color") -> np.ndarray:
    """(240, 320, 3) as OpenGL draws the same numbers from host memory. Before a viewer is opened: it lets go of the
    thread's OpenGL context."""
    from viewer_app.renderers.gl import GlRenderer
    from viewer_app.state import GaussianSettings

    t = {n: v.numpy() for n, v in NAMES["scene"](k).items()}
    scene = GaussianScene(t["means"], t["quats"], t["scales"], t["opacities"], t["sh0"][:, 0], t["shN"], sh_degree=1)
    screen = OffscreenScreen(320, 240)
    view = GaussianView(screen.ctx, GaussianSettings(show=show), renderer=GlRenderer(screen.ctx))  # type: ignore[arg-type]
    try:
        view.update(scene)
        view.use_camera(CAMERA)
        view.draw(screen.framebuffer, Rect(0, 0, 320, 240))
        return screen.pixels()[..., :3].astype(int)
    finally:
        view.close()
        screen.close()


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(-10 * np.log10(((a - b) ** 2).mean() / 255**2 + 1e-12))


def wait_for_scene(viewer: Viewer, trainer: Trainer, want: np.ndarray, least: float = 36.0) -> GaussianView:
    end, best, view = time.monotonic() + 30, 0.0, None
    while time.monotonic() < end:
        viewer.turn()
        slot = viewer.catalogue.shown
        view = slot.view if slot is not None else None
        if not isinstance(view, GaussianView) or view.empty:
            continue
        if view._camera is None:
            view.use_camera(CAMERA)
            viewer._mark()
            continue
        best = max(best, psnr(viewer.pixels(), want))
        if best > least:
            return view
    trainer.alive()
    raise AssertionError(f"{best:.1f} dB after 30 s. {about(viewer)}")


@pytest.mark.parametrize(("renderer", "bridge"), [("gsplat", "import"), ("gsplat", "register"), ("gsplat", "host"),
                                                  ("gsplat", ""), ("gl", "")])
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
    if renderer == "gsplat":
        assert view.path[0] == "parameters read in place"
        slot = viewer.catalogue.shown
        assert slot is not None
        assert slot.source.path == "in place (zero-copy)"
    trainer.next()
    wait_for_scene(viewer, trainer, after)
    assert f"{1500 + 700 * trainer.k:,} Gaussians" in view.details


@pytest.mark.parametrize("show", ["depth", "alpha"])
def test_depth_and_alpha_stay_on_the_gpu(trainers: dict[str, Trainer], open_viewer: Any, show: str,
                                         monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainers["plain"]
    color, want = expected_scene(trainer.k), expected_scene(trainer.k, show)
    viewer = open_viewer(trainer, OffscreenScreen(320, 240), "", "gsplat")
    select(viewer, trainer, "splats")
    wait_for_scene(viewer, trainer, color)
    from viewer_app.renderers.gsplat import GsplatPicture

    def never(self: Any) -> Any:
        raise AssertionError("the picture was read back")

    monkeypatch.setattr(GsplatPicture, "pixels", never)
    slot = viewer.catalogue.shown
    assert slot is not None
    slot.entry.settings.gaussians.show = show  # type: ignore[assignment]
    viewer._mark()
    wait_for_scene(viewer, trainer, want, least=24.0 if show == "depth" else 36.0)  # Turbo is steep


# -- the window ----------------------------------------------------------------------------------------------


@pytest.mark.display
def test_a_window_shows_images_and_scenes(trainers: dict[str, Trainer], open_viewer: Any, display: str) -> None:
    from viewer_app.screens.window import WindowScreen

    trainer = trainers["expandable"]
    window = WindowScreen(900, 520, vsync=False)
    name = window.ctx.info["GL_RENDERER"]
    print(f"window on {display}: {name}")
    viewer = open_viewer(trainer, window, panel=True)
    select(viewer, trainer, "ring uint8 RGBA")
    viewer.until(lambda: viewer.catalogue.shown.view is not None and not viewer.catalogue.shown.view.empty)
    viewer.image.pan_zoom.set_zoom(4.0, viewer._layout())
    viewer.image.pan_zoom.center = (W / 2, H / 2)
    viewer._mark()
    left, top, _ = viewer.image.pan_zoom.placed(viewer._layout())
    want = np.kron(expected_image(trainer.k, "uint8", "RGBA"), np.ones((4, 4, 1), int))
    wait_for(viewer, trainer, want, Rect(round(left), round(top), 4 * W, 4 * H))
    keep(viewer, "window-image")
    bridges = viewer.image.path
    assert bridges == [BRIDGE_WORDS["direct" if "NVIDIA" in name else "host"]], about(viewer)
    select(viewer, trainer, "splats")
    viewer.until(lambda: viewer.catalogue.shown.view is not None and not viewer.catalogue.shown.view.empty)
    viewer.do()
    viewer.until(lambda: viewer.picture().max() > 100, 30)
    keep(viewer, "window-scene")


def test_offscreen_pictures_with_the_panel(trainers: dict[str, Trainer], open_viewer: Any) -> None:
    trainer = trainers["expandable"]
    viewer = open_viewer(trainer, OffscreenScreen(1280, 720), panel=True)
    for name, stream in (("egl-image", "in-place float32 HWC"), ("egl-scene", "splats")):
        select(viewer, trainer, stream)
        viewer.until(lambda: viewer.catalogue.shown.view is not None and not viewer.catalogue.shown.view.empty)
        viewer.until(lambda: viewer.picture().max() > 100, 30)
        for _ in range(30):
            viewer.turn()
        if viewer._panel is not None:
            viewer._panel._folds["Details"] = True
        keep(viewer, name)
    assert viewer.state.timings.latency_ms is not None
    print(f"latency {viewer.state.timings.latency_ms:.1f} ms; {about(viewer)}")


# -- etiquette -----------------------------------------------------------------------------------------------


def test_the_share_of_the_gpu_holds_beside_a_training(open_viewer: Any, processes: Processes,
                                                      runtime_dir: Path) -> None:
    trainer = processes.code(BUSY, SPLATVIEW_RUNTIME_DIR=str(runtime_dir))
    beside = type("Beside", (), {"runtime": runtime_dir})()
    viewer = open_viewer(beside, OffscreenScreen(1920, 1080), gpu_budget=0.1)
    viewer.until(lambda: viewer.catalogue.shown is not None and viewer.catalogue.shown.view is not None
                 and not viewer.catalogue.shown.view.empty, 60)

    def drag(seconds: float) -> tuple[float, float]:
        """Pictures a second and share of the GPU, on average."""
        shares, draws, begin, x = [], viewer.draws, time.monotonic(), 0
        while time.monotonic() < begin + seconds:
            x += 1
            viewer.screen.push(PointerMove(400 + x % 700, 300))
            viewer.turn()
            time.sleep(0.002)
            shares.append((time.monotonic(), viewer.governor.used))
        late = [s for at, s in shares if at > begin + 1]
        return (viewer.draws - draws) / seconds, float(np.mean(late))

    viewer.screen.push(PointerPress(400, 300))
    drag(2.0)
    rate, share = drag(4.0)
    slot = viewer.catalogue.shown
    assert slot is not None
    assert isinstance(slot.view, GaussianView)
    scale = slot.view._scale
    print(f"dragging: {rate:.0f} pictures/s at {scale:.0%}, {share:.1%} of the GPU; {viewer.work.ms}; {about(viewer)}")
    assert trainer.poll() is None
    assert viewer.governor.limited
    assert share <= 0.12
    assert rate >= 15
    viewer.screen.push(PointerRelease(400, 300))
    begin, draws = time.monotonic(), viewer.draws
    while time.monotonic() < begin + 3:
        viewer.turn()
    print(f"at rest: {(viewer.draws - draws) / 3:.0f} pictures/s, {viewer.governor.used:.1%} of the GPU")
    assert slot.view._scale == 1.0
    assert (viewer.draws - draws) / 3 <= 36
    assert viewer.governor.used <= 0.12


def test_doctor_on_a_gpu(processes: Processes) -> None:
    done = subprocess.run([sys.executable, "-m", "splatview", "doctor", "--json"], capture_output=True, text=True,
                          timeout=400, check=False)
    findings = {f["name"]: f for f in json.loads(done.stdout)}
    for name in ("cuda", "cuda sharing", "gsplat", "opengl", "cuda to opengl", "display"):
        print(name, findings[name]["state"], findings[name]["detail"])
    assert done.returncode == 0, done.stdout
    assert findings["cuda sharing"]["state"] == "ok", findings["cuda sharing"]
    assert findings["cuda to opengl"]["state"] == "ok", findings["cuda to opengl"]
    assert torch.cuda.get_device_name(0) in findings["cuda"]["detail"]
