"""What the tests of pictures share: the whole viewer on a screen in memory, and the pictures it is held to.

A picture is held to a reference in `tests/soak/pictures`, each pixel within one step of 255. What depends on the clock
or on the machine is held still here, and nothing else: the numbers of the status line, the number of the process, the
time zone. What threads bring is waited for.

Other versions of Mesa and of imgui draw other pictures, and a processor without fused multiply-add rounds otherwise.
`made_with.json` says which ones drew the references; with others the tests are skipped. To make all references anew
(look at each of them before it is committed):

    SPLATVIEW_NEW_PICTURES=1 python -m pytest tests/soak/test_pictures.py

and with `-k name` some of them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import imgui_bundle
import numpy as np
import pytest
from PIL import Image

from splatview_viewer.app.loop import AppOptions
from splatview_viewer.compare.pair_view import PairView
from splatview_viewer.core.events import PointerLeave
from splatview_viewer.core.settings import State, Timings
from splatview_viewer.kinds.gaussians.view import GaussianView
from splatview_viewer.screens.offscreen import OffscreenScreen, create_context
from splatview_viewer.workspace import catalogue
from splatview_viewer.workspace.catalogue import SETTLE
from support.scene_files import SH_C0, Truth, ply_columns, write_ply
from support.viewer import Viewer
from support.wait import turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(__file__).resolve().parents[1] / "soak" / "pictures"
MADE_WITH = FOLDER / "made_with.json"
VARIABLE = "SPLATVIEW_NEW_PICTURES"
TOLERANCE = 1
"""Steps of 255."""
SAID = Timings(60.0, {"render": 4.2, "draw": 0.8}, 2.5, 0.062, 0.1, (5 << 30, 24 << 30))
"""What the status line says of the viewer's speed in all pictures."""


class Still(State):
    """With numbers that stay as they are."""

    @property
    def said(self) -> Timings:  # type: ignore[override]
        return SAID

    @said.setter
    def said(self, _: Timings) -> None: ...  # type: ignore[override]


class Stage:
    """A viewer, and what a user does with it."""

    def __init__(self, size: tuple[int, int], folder: Path) -> None:
        """`size`: in pixels; a screen that is less than 500 points wide has no panel at first."""
        self.folder = folder
        self.app: Any = Viewer(OffscreenScreen(*size), AppOptions(max_fps=500))
        self.app.state.__class__ = Still

    @property
    def seat(self) -> Any:
        return self.app.seat

    @property
    def pane(self) -> Any:
        return self.app.seat.panes.active

    @property
    def view(self) -> Any:
        return self.app.seat.view

    @property
    def settings(self) -> Any:
        return self.view.settings

    def tool(self, name: str) -> Any:
        return self.view.tools[name]

    def until(self, condition: Callable[[], Any]) -> None:
        self.app.until(condition)

    def do(self, *events: Any) -> None:
        self.app.do(*events)

    # -- what there is to be seen ------------------------------------------------------------------------------

    def scene(self, name: str = "scene", seed: int = 0) -> str:
        """Have a file with a scene shown; its key."""
        key = self.open(write_ply(self.folder / f"{name}.ply", ply_columns(scene(seed))))
        self.from_afar()
        return key

    def from_afar(self) -> None:
        """See a scene small where it is the panel that matters: so are the files of references."""
        self.do()
        factor = 2.6 if self.app.state.panel_open else 1.5
        for view in self.view.views if isinstance(self.view, PairView) else [self.view]:
            assert isinstance(view, GaussianView)
            view.orbit.distance *= factor
            view.moved()

    def open(self, path: Path) -> str:
        """Have a file shown, and wait for it; its key."""
        self.app.catalogue.open_file(path, self.pane)
        self.shown(path.name)
        return str(path)

    def shown(self, name: str) -> None:
        """Wait for an entry of this name to be seen, exactly as it is."""
        def there() -> bool:
            entry = self.app.state.shown
            if entry is not None:
                exactly(entry.settings.gaussians)
            return entry is not None and entry.name == name and self.view is not None and not self.view.empty

        self.until(there)
        if isinstance(self.view, GaussianView):
            exactly(self.view.settings)

    def select(self, name: str) -> None:
        """Show an entry that there is."""
        self.until(lambda: any(e.name == name for e in self.app.state.entries))
        self.seat.select(next(e.key for e in self.app.state.entries if e.name == name))
        self.shown(name)

    # -- what a user does --------------------------------------------------------------------------------------

    def parts(self, *titles: str) -> None:
        """Have these parts of the panel open, and no others."""
        self.seat.panel._folds = {title: title in titles for title in ("View", "Camera", "Scenes", *titles)}
        self.seat.mark(SETTLE)

    # -- the picture -------------------------------------------------------------------------------------------

    def picture(self) -> np.ndarray:
        """(H, W, 3) uint8: what is seen once nothing moves any more."""
        self.do(PointerLeave())
        self.app.state.toasts = []
        self.seat.mark(2 * SETTLE)
        self.do()
        before = None
        for _ in turns("it rests"):
            now = np.ascontiguousarray(self.app.screen.pixels()[..., :3])
            if before is not None and np.array_equal(before, now):
                return now
            before = now
            self.seat.mark(SETTLE)
            self.do()
        raise AssertionError

    def close(self) -> None:
        error = self.app.screen.ctx.error
        self.app.close()
        assert error == "GL_NO_ERROR"


def exactly(settings: Any) -> None:
    """No picture is coarse, or another one that was moved."""
    settings.coarse_ms, settings.reproject = math.inf, False


def scene(seed: int = 0, n: int = 240) -> Truth:
    """A ball on a floor, with colours that depend on from where one looks. Numbers of a few digits, so that they are
    the same wherever they are worked out."""
    r = np.random.default_rng(seed)
    ball = r.normal(size=(n, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    angle, far = r.uniform(0, 2 * np.pi, n // 2), 2.2 * np.sqrt(r.uniform(0, 1, n // 2))
    floor = np.stack([far * np.cos(angle), np.full(n // 2, 1.1), far * np.sin(angle)], 1)
    means = np.concatenate([ball, floor])
    m = len(means)
    quats = r.normal(size=(m, 4))
    quats[n:] = 1, 0, 0, 0
    scales = r.uniform(-2.8, -1.7, (m, 3))
    scales[n:] = -1.5, -4.0, -1.5
    rgb = np.concatenate([0.5 + 0.42 * np.roll(ball, seed, 1), np.tile([[0.35, 0.38, 0.33]], (n // 2, 1))])
    rest = r.uniform(-0.14, 0.14, (m, 15, 3))
    rest[n:] = 0
    opacities = np.concatenate([r.uniform(-1, 4, n), np.full(n // 2, 2.0)])
    parts = means, quats, scales, opacities, (rgb - 0.5) / SH_C0, rest
    return Truth(*(np.round(part, 4).astype(np.float32) for part in parts))


# -- references ----------------------------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """What decides how pictures look."""
    ctx = create_context()
    found = {"renderer": str(ctx.info["GL_RENDERER"]), "version": str(ctx.info["GL_VERSION"]),
             "imgui": str(imgui_bundle.__version__), "processor": _processor()}
    ctx.release()
    return found


def _processor() -> str:
    """What llvmpipe makes its code for."""
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        words = set()
    return " ".join([platform.machine(), *(word for word in ("avx2", "fma") if word in words)])


def reason(now: dict[str, str]) -> str:
    """Why pictures drawn here are not as the references are; "" if they are."""
    if os.environ.get(VARIABLE):
        return ""
    then = json.loads(MADE_WITH.read_text())
    if not now["renderer"].startswith("llvmpipe"):
        return f"{now['renderer']} draws here, and not llvmpipe"
    for name, what in (("version", "OpenGL"), ("imgui", "imgui-bundle"), ("processor", "a processor")):
        if now[name] != then[name]:
            return f"the references were drawn with {what} {then[name]!r}, and here is {now[name]!r}"
    return ""


@contextlib.contextmanager
def stage(size: tuple[int, int], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """The viewer for one picture; runs of this process are "train" in it. Skips where pictures look otherwise."""
    now = machine()
    if why := reason(now):
        pytest.skip(why)
    if os.environ.get(VARIABLE):
        MADE_WITH.write_text(json.dumps(now, indent=2) + "\n")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gl")
    monkeypatch.setenv("SPLATVIEW_NAME", "train")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    # what was found stays as new as it came
    monkeypatch.setattr("splatview_viewer.kinds.image.overlay.layers._FRESH", 1e9)
    monkeypatch.setattr(catalogue, "group_of", lambda stream: f"{stream.run.name} \u00b7 4711")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    made = Stage(size, folder)
    yield made
    made.close()
    monkeypatch.undo()
    time.tzset()


def check(name: str, got: np.ndarray, folder: Path) -> None:
    """Compare with the reference, or become it. What is wrong is written into `folder`."""
    path = FOLDER / f"{name}.png"
    if os.environ.get(VARIABLE):
        keep(got, path)
        return
    again = f"to accept it: {VARIABLE}=1 python -m pytest tests/soak/test_pictures.py -k '[{name}]'"
    actual, difference = folder / f"{name}-actual.png", folder / f"{name}-difference.png"
    if not path.is_file():
        Image.fromarray(got).save(actual)
        raise AssertionError(f"there is no reference {path}; this was drawn: {actual}; {again}")
    with Image.open(path) as found:
        wanted = np.asarray(found.convert("RGB"))
    if wanted.shape == got.shape:
        apart = np.abs(got.astype(int) - wanted).max(-1)
        if apart.max() <= TOLERANCE:
            return
        Image.fromarray(np.where(apart > TOLERANCE, np.maximum(8 * apart, 64), 0).clip(0, 255).astype(np.uint8)).save(
            difference)
        y, x = np.nonzero(apart > TOLERANCE)
        what = (f"{len(x)} pixels are up to {apart.max()} of 255 apart, in x {x.min()} to {x.max()}, y {y.min()} to "
                f"{y.max()}; difference: {difference}")
    else:
        what = f"it has {got.shape[1]} x {got.shape[0]} pixels, and not {wanted.shape[1]} x {wanted.shape[0]}"
    Image.fromarray(got).save(actual)
    raise AssertionError(f"{name} looks otherwise: {what}\nactual: {actual}\nreference: {path}\n{again}")


def keep(got: np.ndarray, path: Path) -> None:
    """Write a reference, unless the one that is there shows the same."""
    path.parent.mkdir(exist_ok=True)
    if path.is_file():
        with Image.open(path) as found:
            before = np.asarray(found.convert("RGB"))
        if np.array_equal(before, got):
            return
    picture = Image.fromarray(got)
    if len(colors := picture.getcolors(256) or []) > 0:  # few enough for a palette, which loses nothing
        picture = picture.quantize(len(colors), dither=Image.Dither.NONE)
        picture = picture if np.array_equal(np.asarray(picture.convert("RGB")), got) else Image.fromarray(got)
    picture.save(path, "PNG", optimize=True)
