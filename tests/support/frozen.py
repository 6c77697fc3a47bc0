"""Frozen behaviour of the viewer: references, their comparison, inputs, and a client of the page's protocol.

Nothing here imports the viewer. A reference is a file in `tests/soak/frozen/references`;
`python tools/freeze.py` writes them anew, with `-k name` some of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
from PIL import Image

from support.programs import environment
from support.scene_files import SH_C0, Truth
from support.wait import PATIENCE, clock, turns
from support.web_clients import address, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from support.programs import Programs

FOLDER = Path(__file__).resolve().parents[1] / "soak" / "frozen" / "references"
VARIABLE = "SPLATVIEW_FREEZE"
"""Set in the environment: references are written, not compared."""
TOLERANCE = 2
"""Steps of 255."""
EDGE_SHARE = 0.0005
"""Share of the pixels that may differ by more: edges that another rounding moves, 38 pixels of 320x240."""
QUIET_S = 1.0
"""A page without a message for this long shows all that was sent. Only where pictures cannot tell."""
REST_S = 1.5
"""The same before a reference is written: toasts and fades are over."""


def freezing() -> bool:
    return bool(os.environ.get(VARIABLE))


def pixels_of(path: Path) -> np.ndarray:
    """Return a picture as (H, W, 3) uint8, or (H, W, 4) where it has alpha."""
    with Image.open(path) as image:
        return np.asarray(image)


def difference(name: str, pixels: np.ndarray) -> str:
    """Describe how a picture differs from its reference; "" if it does not. Freezing: write it."""
    path = FOLDER / f"{name}.png"
    if freezing():
        Image.fromarray(pixels).save(path, optimize=True)
        return ""
    assert path.is_file(), f"no reference {path}: run tools/freeze.py and look at the picture"
    reference = pixels_of(path)
    if reference.shape != pixels.shape:
        return f"{name}: {pixels.shape}, frozen is {reference.shape}"
    apart = np.abs(_over_black(reference) - _over_black(pixels)).max(2)
    if (apart > TOLERANCE).mean() <= EDGE_SHARE:
        return ""
    y, x = np.nonzero(apart > TOLERANCE)
    return (f"{name}: {len(x)} pixels are up to {apart.max()} of 255 apart, in x {x.min()} to {x.max()}, "
            f"y {y.min()} to {y.max()}")


def _over_black(pixels: np.ndarray) -> np.ndarray:
    """Multiply colours by alpha, which is kept: they mean nothing where it is 0."""
    wide = pixels.astype(float)
    if wide.shape[2] == 4:
        wide[..., :3] *= wide[..., 3:] / 255
    return wide


def check_picture(name: str, pixels: np.ndarray, folder: Path) -> None:
    """Compare (H, W, 3|4) uint8 with the reference; a picture that differs is written into `folder`."""
    if wrong := difference(name, pixels):
        Image.fromarray(pixels).save(folder / f"{name}.png")
        raise AssertionError(f"{wrong}: see {folder / name}.png, and {FOLDER / name}.png")


def eventually(name: str, draw: Callable[[], np.ndarray], folder: Path) -> str:
    """Draw until the picture fits its reference; describe how it differs if it never does, "" if it does."""
    if freezing():  # once nothing changes any more
        before = None
        for _ in turns(name):
            pixels = draw()
            if before is not None and np.array_equal(pixels, before):
                return difference(name, pixels)
            before = pixels
    end = clock() + PATIENCE / 3
    while wrong := difference(name, pixels := draw()):
        if clock() > end:
            Image.fromarray(pixels).save(folder / f"{name}.png")
            return f"{wrong}: see {folder / name}.png"
    return ""


def check_text(name: str, text: str) -> None:
    path = FOLDER / name
    if freezing():
        path.write_text(text)
    assert text == path.read_text(), f"{name} differs; tools/freeze.py writes it anew"


TALL, WIDE, SMALL = (600, 760), (600, 266), (320, 240)
"""Sizes of a tab: all of the panel is seen; a panel beside 320x240 pixels of picture; as kept pictures are frozen."""
PANEL, VIEW = (0, 0, 280, 760), (280, 0, 600, 240)
"""x0, y0, x1, y1: the panel of a TALL tab, and the picture of a WIDE one. Below is the status line, which varies."""


class Page:
    """One tab: a WebSocket client that acknowledges every picture. Times are a counter: 1000 ms between two events."""

    def __init__(self, port: int, token: str, size: tuple[int, int], *, id: str = "page") -> None:
        self.port, self.token, self.size = port, token, size
        self.at = 0.0
        self.heard: list[dict[str, Any]] = []
        """All messages, in order of arrival, without the bytes of pictures."""
        self.said: list[dict[str, Any]] = []
        """All messages that were sent."""
        self.shown = np.zeros((1, 1, 3), np.uint8)
        """The last lossless picture of the tab, panel included."""
        self._loop = asyncio.new_event_loop()
        self._do(self._open(id))
        assert self.read()["t"] == "welcome"

    def send(self, t: str, **fields: Any) -> None:
        """Send a message; those of events get a time."""
        if t not in ("hello", "resize", "visible", "ack"):
            self.at += 1000.0
            fields["at"] = self.at
        self.said.append({"t": t, **fields})
        self._do(self._socket.send_str(json.dumps(self.said[-1])))

    def key(self, name: str, *mods: str) -> None:
        self.send("key", name=name, pressed=True, mods=mods)
        self.send("key", name=name, pressed=False, mods=mods)
        self.settle()

    def click(self, x: float, y: float, button: str = "left") -> None:
        self.send("move", x=x, y=y)
        self.send("press", x=x, y=y, button=button)
        self.send("release", x=x, y=y, button=button)
        self.settle()

    def resize(self, width: int, height: int) -> None:
        self.size = width, height
        self.send("resize", width=width, height=height, scale=1.0)
        self.settle()

    def read(self, patience: float = PATIENCE) -> dict[str, Any]:
        """Return the next message; {} if none comes in time. Pictures are acknowledged."""
        try:
            got = self._do(asyncio.wait_for(self._socket.receive(), patience))
        except TimeoutError:
            return {}
        assert got.type is aiohttp.WSMsgType.TEXT, f"the connection is closed: {got.data} {got.extra}"
        message = json.loads(got.data)
        if message["t"] == "picture":
            data = self._do(self._socket.receive(PATIENCE)).data
            self.send("ack", number=message["number"])
            if message["lossless"]:
                with Image.open(io.BytesIO(data)) as image:
                    self.shown = np.asarray(image.convert("RGB"))
        self.heard.append(message)
        return message

    def settle(self, quiet: float = QUIET_S) -> None:
        """Wait until the viewer rests after the last event: a picture shows it, and then a lossless one comes. Also
        where nothing comes for `quiet` seconds, because nothing changed."""
        shown = False
        while message := self.read(quiet):
            if message["t"] == "picture" and message["size"] == [*self.size]:
                shown |= message["at"] >= self.at
                if shown and message["lossless"] and quiet == QUIET_S:
                    return

    def until(self, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Read until a message fits, and return it."""
        while not condition(message := self.read()):
            assert message, "nothing comes any more"
        return message

    def keep(self) -> np.ndarray:
        """Have the picture kept, as the page's button does; (H, W, 3) uint8, without the panel."""
        self.send("screenshot")
        message = self.until(lambda m: m.get("t") == "offer")
        with Image.open(io.BytesIO(self.ask("GET", f"/download?key={message['key']}")[2])) as image:
            return np.asarray(image.convert("RGB"))

    def loaded(self) -> None:
        """Read until a lossless picture has red and green beside the panel: a file is shown, and no progress."""
        def colourful(message: dict[str, Any]) -> bool:
            red, green, _ = np.moveaxis(self.shown[:, self.shown.shape[1] // 2:].astype(int), 2, 0)
            return bool(message.get("lossless")) and bool((red > green + 60).any() and (green > red + 60).any())

        self.until(colourful)

    def check_kept(self, name: str, folder: Path) -> None:
        """Wait until a kept picture of a SMALL tab is as frozen."""
        before = self.size
        self.resize(*SMALL)
        if freezing():
            self.keep()
            self.settle(REST_S)
        wrong = eventually(name, self.keep, folder)
        self.resize(*before)
        assert not wrong, wrong

    def check_seen(self, name: str, folder: Path, cut: tuple[int, int, int, int]) -> None:
        """Wait until this part of the tab, x0, y0, x1, y1, is as frozen."""
        def draw() -> np.ndarray:
            self.settle(REST_S if freezing() else QUIET_S)
            while self.shown.shape[1::-1] != self.size:
                assert self.read(), "no lossless picture comes"
            return np.ascontiguousarray(self.shown[cut[1]:cut[3], cut[0]:cut[2]])

        self.send("leave")
        if wrong := eventually(name, draw, folder):
            raise AssertionError(wrong)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, bytes]:
        """Return status, headers and body that answer an HTTP request of the page."""
        own = {"X-Splatview-Token": self.token, "Origin": f"http://127.0.0.1:{self.port}"}
        return ask(self.port, path, body, method, **own, **headers)[:3]

    def refusal(self, text: str) -> list[Any]:
        """Say this on a connection of its own; what the viewer answers, and the code with which it closes."""
        async def say() -> list[Any]:
            socket = await self._connect()
            await socket.send_str(text)
            answers: list[Any] = []
            while (got := await socket.receive(PATIENCE)).type is aiohttp.WSMsgType.TEXT:
                answers.append(json.loads(got.data))
            await socket.close()
            return [*answers, socket.close_code]

        return self._do(say())

    def close(self) -> None:
        self._do(self._socket.close())
        self._do(self._session.close())
        self._loop.close()

    def _do(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    async def _open(self, id: str) -> None:
        self._session = aiohttp.ClientSession()
        self._socket = await self._connect()
        hello = {"t": "hello", "id": id, "width": self.size[0], "height": self.size[1], "scale": 1.0, "visible": True}
        await self._socket.send_str(json.dumps(hello))

    async def _connect(self) -> aiohttp.ClientWebSocketResponse[Any]:
        return await self._session.ws_connect(
            f"http://127.0.0.1:{self.port}/ws", protocols=("splatview", f"token.{self.token}"), max_msg_size=0,
            headers={"Origin": f"http://127.0.0.1:{self.port}"})


def serve(programs: Programs, *args: Any, **env: str) -> tuple[int, str]:
    """Start `splatview serve --web ARGS`; return port and token."""
    viewer = programs.splatview("serve", "--web", "--port", "0", *args, SPLATVIEW_RENDERER="gl", TZ="UTC", **env)
    return address(viewer, [])


def opened(where: tuple[int, str], size: tuple[int, int] = TALL, id: str = "page") -> contextlib.closing[Page]:
    """A tab of a viewer that `serve` started."""
    return contextlib.closing(Page(*where, size, id=id))


def run_all(commands: Mapping[str, Sequence[Any]], folder: Path, **env: str) -> dict[str, tuple[int, str, str]]:
    """Run `splatview ARGS` for each; return status, output and errors by name. A few at a time."""
    def run(args: Sequence[Any]) -> tuple[int, str, str]:
        done = subprocess.run([sys.executable, "-m", "splatview", *map(str, args)], cwd=folder, capture_output=True,
                              text=True, timeout=4 * PATIENCE, stdin=subprocess.DEVNULL, check=False,
                              env=environment(SPLATVIEW_RENDERER="gl", COLUMNS="100", **env))
        return done.returncode, done.stdout, done.stderr

    with ThreadPoolExecutor(3) as pool:
        return dict(zip(commands, pool.map(run, commands.values()), strict=True))


def scene(seed: int = 0, n: int = 240) -> dict[str, np.ndarray]:
    """Return a ball on a floor with SH of degree 3: gsplat's names, log scales, logit opacities. Red is right (+x),
    green is down (+y), blue is far (+z)."""
    r = np.random.default_rng(seed)
    ball = r.normal(size=(n, 3))
    ball /= np.linalg.norm(ball, axis=1, keepdims=True)
    angle, far = r.uniform(0, 2 * np.pi, n // 2), 2.2 * np.sqrt(r.uniform(0, 1, n // 2))
    floor = np.stack([far * np.cos(angle), np.full(n // 2, 1.1), far * np.sin(angle)], 1)
    means = np.concatenate([ball, floor])
    quats = r.normal(size=(len(means), 4))
    quats[n:] = 1, 0, 0, 0
    scales = r.uniform(-2.8, -1.7, (len(means), 3))
    scales[n:] = -1.5, -4.0, -1.5
    rgb = np.concatenate([0.5 + 0.42 * np.roll(ball, seed, 1), np.tile([[0.35, 0.38, 0.33]], (n // 2, 1))])
    rest = r.uniform(-0.14, 0.14, (len(means), 15, 3))
    rest[n:] = 0
    opacities = np.concatenate([r.uniform(-1, 4, n), np.full(n // 2, 2.0)])
    parts = {"means": means, "quats": quats, "scales": scales, "opacities": opacities,
             "sh0": (rgb[:, None] - 0.5) / SH_C0, "shN": rest}
    return {name: np.round(part, 4).astype(np.float32) for name, part in parts.items()}


def truth(seed: int = 0) -> Truth:
    """Return the same scene for the writers of `scene_files`."""
    parts = scene(seed)
    return Truth(**{**parts, "sh0": parts["sh0"][:, 0]})


def picture(height: int = 96, width: int = 144) -> np.ndarray:
    """Return (H, W, 3) uint8: redder to the right, greener downwards, a bright disc at the upper right."""
    y, x = np.mgrid[0:height, 0:width]
    disc = (x - 100) ** 2 + (y - 30) ** 2 < 20**2
    smooth = np.stack([40 + 1.4 * x, 40 + 2 * y, 0 * x + 90], -1).clip(0, 255)
    return np.where(disc[..., None], (235, 220, 150), smooth).astype(np.uint8)
