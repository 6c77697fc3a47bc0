"""What the tests of pictures share: the whole viewer on a screen that nobody sees, and the pictures it is held to.

A picture is held to a reference in `tests/pictures`, each pixel within one step of 255. What depends on the clock or on
the machine is held still here, and nothing else: the numbers of the status line, the number of the process, the time
zone. What threads bring is waited for.

Other versions of Mesa and of imgui draw other pictures, and a processor without fused multiply-add rounds otherwise.
`pictures/made_with.json` says which ones drew the references; with others the tests are skipped. To make all references
anew (look at each of them before it is committed):

    SPLATVIEW_NEW_PICTURES=1 python -m pytest -n 2 --dist loadfile tests/test_pictures*.py

and with `-k name` some of them.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import imgui_bundle
import numpy as np
import pytest
from PIL import Image

from splatview.viewer_app import matching
from splatview.viewer_app.app import AppOptions
from splatview.viewer_app.catalogue import SETTLE
from splatview.viewer_app.comparing.pair_view import PairView
from splatview.viewer_app.events import PointerLeave, PointerMove, PointerPress, PointerRelease
from splatview.viewer_app.screens.offscreen import OffscreenScreen, create_context
from splatview.viewer_app.state import State, Timings
from splatview.viewer_app.views.gaussians import GaussianView
from support.scene_files import SH_C0, Truth, ply_columns, write_ply
from support.viewer import Viewer
from support.wait import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = Path(__file__).parent / "pictures"
MADE_WITH = FOLDER / "made_with.json"
VARIABLE = "SPLATVIEW_NEW_PICTURES"
TOLERANCE = 1
"""Steps of 255."""
SIZE = 320, 264
SAID = Timings(60.0, {"render": 4.2, "draw": 0.8}, 2.5, 0.062, 0.1, (5 << 30, 24 << 30))
"""What the status line says of the viewer's speed in all pictures."""


class Still(State):
    """With numbers that stay as they are."""

    @property
    def said(self) -> Timings:  # type: ignore[override]
        return SAID

    @said.setter
    def said(self, _: Timings) -> None: ...  # type: ignore[override]


@dataclass(frozen=True)
class Case:
    """One picture."""

    draw: Callable[[Stage], object]
    """Has the viewer show it."""
    shows: tuple[str, ...]
    """What is to be seen in it, in the words of `Stage.seen`; checked when it is drawn."""
    size: tuple[int, int] = SIZE
    """In pixels; a screen that is less than 500 points wide has no panel at first."""
    scale: float = 1.0


class Cases(dict[str, Case]):
    """By name, which is that of the reference."""

    def __call__(self, name: str, *shows: str, **more: Any) -> Callable[[Callable[[Stage], object]], Any]:
        """A decorator: this function draws the picture of this name."""
        def taken(draw: Callable[[Stage], object]) -> Callable[[Stage], object]:
            assert name not in self, name
            self[name] = Case(draw, shows, **more)
            return draw

        return taken


class Stage:
    """A viewer, and what a user does with it."""

    def __init__(self, case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch
        self.case = case
        self.app: Any = Viewer(OffscreenScreen(*case.size, case.scale), AppOptions(max_fps=500))
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

    def press(self, x: float, y: float, **more: Any) -> None:
        self.do(PointerMove(x, y, **more))
        self.do(PointerPress(x, y, **more), PointerRelease(x, y, **more))

    def middle(self) -> tuple[float, float]:
        rect = self.seat.layout()
        return rect.x + rect.width / 2, rect.y + rect.height / 2

    # -- the picture -------------------------------------------------------------------------------------------

    def picture(self, *, toasts: bool = False) -> np.ndarray:
        """(H, W, 3) uint8: what is seen once nothing moves any more. `toasts`: also what is told for some seconds."""
        self.do(PointerLeave())
        self.app.state.toasts = [(math.inf, text) for _, text in self.app.state.toasts] if toasts else []
        self.seat.mark(2 * SETTLE)
        self.do()
        before, end = None, time.monotonic() + PATIENCE
        while before is None or not np.array_equal(before, self.app.screen.pixels()[..., :3]):
            assert time.monotonic() < end, "it never rests"
            before = self.app.screen.pixels()[..., :3]
            self.seat.mark(SETTLE)
            self.do()
        return np.ascontiguousarray(before)

    def seen(self) -> set[str]:
        """What is in the picture, in the words with which the list of pictures is checked."""
        seat, out = self.seat, set[str]()
        views = [pane.view for pane in seat.panes.seen if pane.view is not None]
        for view in views:
            out.add(f"view {view.kind}")
            if isinstance(view, PairView):
                out.add(f"compare {view.settings.how}")
            if isinstance(view, GaussianView):
                out |= _seen_of(view)
        if len(seat.panes) > 1:
            out.add("panes maximised" if seat.panes.maximised else f"panes {seat.panes.mode}")
        if seat.panel is None or not seat.state.panel_open:
            return out
        shown = self.pane.describe(True, self.pane.rect)
        folds = seat.panel._folds
        out |= {f"part {s.title}" for s in shown.sections if folds.get(s.title, s.opened)}
        out |= {f"part {title}" for title in ("View", "Details", "Picture") if folds.get(title, False)}
        if isinstance(self.view, GaussianView) and self.tool("navigate").numbers and "part Camera" in out:
            out.add("part Numbers")
        if shown.strip is not None:
            out |= {f"strip {type(part).__name__}" for part in shown.strip.parts}
        out.add("theme light" if seat.state.light else "theme dark")
        return out

    def close(self) -> None:
        error = self.app.screen.ctx.error
        self.app.close()
        assert error == "GL_NO_ERROR"


def _seen_of(view: GaussianView) -> set[str]:
    s = view.settings
    out = {f"show {s.show}", f"projection {view.orbit.model}"}
    if s.show in ("depth", "overdraw"):
        out.add(f"colours {s.color_map}")
    through: Any = view.tools["frustums"]
    if through.through.there:
        out.add(f"through {through.through.how}")
    return out | {f"bar {name}" for name, tool in view.tools.items() if tool.bar_height() > 0}


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


@pytest.fixture(scope="module")
def stages() -> dict[str, str]:
    """Skips where pictures look otherwise."""
    now = machine()
    if why := reason(now):
        pytest.skip(why)
    return now


@pytest.fixture(name="stage")
def stage_fixture(stages: dict[str, str], case: Case, tmp_path: Path,
                  monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """The viewer for a case; runs of this process are seen in it as "train"."""
    if os.environ.get(VARIABLE):
        _write(MADE_WITH, json.dumps(stages, indent=2).encode() + b"\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPLATVIEW_RENDERER", "gl")
    monkeypatch.setenv("SPLATVIEW_NAME", "train")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # what was found stays as new as it came
    monkeypatch.setattr("splatview.viewer_app.views._overlay.layers._FRESH", 1e9)
    monkeypatch.setattr(matching, "_group", lambda stream: f"{stream.run.name} \u00b7 4711")
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    made = Stage(case, tmp_path, monkeypatch)
    yield made
    made.close()
    monkeypatch.undo()
    time.tzset()


def play(stage: Stage, name: str) -> None:
    """Draw a case, and hold it to its reference."""
    toasts = stage.case.draw(stage) == "toasts"
    got = stage.picture(toasts=toasts)
    missing = set(stage.case.shows) - stage.seen()
    assert not missing, f"{name} is to show {missing}; it shows {stage.seen()}"
    check(name, got, stage.folder)


def check(name: str, got: np.ndarray, folder: Path) -> None:
    """Compare with the reference, or become it. What is wrong is written into `folder`."""
    path = FOLDER / f"{name}.png"
    if os.environ.get(VARIABLE):
        keep(got, path)
        return
    again = f"to accept it: {VARIABLE}=1 python -m pytest {' '.join(sorted(_files()))} -k '[{name}]'"
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


def _files() -> list[str]:
    return [f"tests/{path.name}" for path in Path(__file__).parent.glob("test_pictures*.py")]


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
    part = path.with_suffix(f".{os.getpid()}.part")
    picture.save(part, "PNG", optimize=True)
    os.replace(part, path)


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(data)
    os.replace(part, path)
