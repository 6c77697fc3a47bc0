"""Stands for a page that draws scenes by itself, without a browser and without drawing.

`python -m benchmarks.browser.drawing_page JSON`

JSON: {"port", "token", "size", "id"}. It takes all that comes at once, as a page on a
fast GPU does, so that the line and the viewer are measured alone. Where all Gaussians of
a version have the colour of `stamp`, it knows which version it shows. Commands:

| do | what |
|---|---|
| begin | connect and say hello, and that this page draws |
| move, period_s= | move the camera from now on, and let it go so often; 0: rest |
| show, on= | the page is seen, or hidden |
| report | the passes that came whole since the last report, and the bytes of all messages |

Times are of the clock that all programs of this machine share.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from benchmarks import harness
from benchmarks.browser.websocket import Closed, WebSocket
from splatview_viewer.blocks.layout import HEADER
from splatview_viewer.core import events as ev
from splatview_viewer.geometry.turning import axis_rotation
from splatview_viewer.web import messages as m

if TYPE_CHECKING:
    from collections.abc import Callable

    from splatview_viewer.core.handed import HandedPlace

STAMPS = 2048
"""Stamps that differ; they are whole numbers in all forms of blocks."""
_RED_LOW = 16
"""Place of the low of red in a block's header."""
_EXACT_RED = HEADER * 2 + 7
"""Place of the first Gaussian's red in a block in the exact form, as float16."""
_TURN_ANGLE = 0.2
"""Radians by which the camera turns each time."""


def stamp(version: int) -> float:
    """Return the colour of degree 0 that tells a version, in all three channels."""
    return version % STAMPS / STAMPS


def _stamp_of(block: bytes, form: str) -> int:
    """Return the stamp of a version, by its first block."""
    if form == "quick":
        value = float(np.frombuffer(block[: HEADER * 4], np.float32)[_RED_LOW])
    else:
        value = float(np.frombuffer(block[:128], np.float16)[_EXACT_RED])
    return round(value * STAMPS)


class ComingPass:
    """The pass that comes, as its messages and their data follow each other."""

    def __init__(self) -> None:
        self.header: m.SceneBegin | None = None
        self.begun_s = 0.0
        self.stamp = -1
        """The stamp of its version."""
        self._announced: m.Blocks | None = None
        self._first_data = b""
        """The first message of the announced blocks."""
        self._awaited_bytes = 0

    def begin_with(self, header: m.SceneBegin) -> None:
        self.header = header
        self.begun_s = time.monotonic()

    def announce(self, blocks: m.Blocks) -> None:
        self._announced = blocks
        self._awaited_bytes = blocks.bytes
        self._first_data = b""

    def take_data(self, data: bytes) -> m.Blocks | None:
        """Take bytes of blocks; return the blocks once they are whole."""
        blocks = self._announced
        if blocks is None:
            # It is a picture's.
            return None
        self._first_data = self._first_data or data
        self._awaited_bytes -= len(data)
        if self._awaited_bytes > 0:
            return None
        self._announced = None
        if blocks.first == 0 and blocks.part != "harmonics":
            self.stamp = _stamp_of(self._first_data, blocks.part)
        return blocks

    def report(self) -> dict[str, Any]:
        """Return what is told of it, once it has come whole."""
        header = self.header
        assert header is not None
        return {
            "begun_at": self.begun_s,
            "shown_at": time.monotonic(),
            "version": header.version,
            "stamp": self.stamp,
            "count": header.count,
            "total": header.total,
            "form": header.form,
            "has_harmonics": header.has_harmonics,
            "refines": header.refines,
            "bytes": header.bytes,
        }


class CameraHand:
    """Moves the camera of a page, and lets it go again and again."""

    def __init__(self, send: Callable[[ev.Placed], object]) -> None:
        """send: tells where the camera is."""
        self.pane = 0
        self.camera_place: HandedPlace | None = None
        self._send = send
        self._period_s = 0.0
        self._move_numbers = itertools.count(1)
        self._has_period = threading.Event()

    def move(self, period_s: float) -> None:
        """Let the camera go so often from now on; 0: rest."""
        self._period_s = period_s
        self._has_period.set()

    def run(self) -> None:
        """Move until the program ends."""
        while True:
            last_place = self.camera_place
            if not self._period_s or last_place is None:
                self._has_period.wait(0.05)
                continue
            time.sleep(self._period_s)
            turn_matrix = axis_rotation((0.0, 0.0, 1.0), _TURN_ANGLE)
            rotation = np.array(last_place.rotation).reshape(3, 3) @ turn_matrix
            self.camera_place = msgspec.structs.replace(
                last_place, rotation=tuple(rotation.ravel().tolist())
            )
            now_ms = time.perf_counter() * 1e3
            move_number = next(self._move_numbers)
            self._send(ev.Placed(self.pane, move_number, self.camera_place, at=now_ms))


class DrawingPage:
    """Takes passes, and counts them."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._socket: WebSocket | None = None
        self._hello_at = 0.0
        self._received_bytes = 0
        self._passes: list[dict[str, Any]] = []
        self._coming = ComingPass()
        self._hand = CameraHand(self._send)
        self._is_interface_next = False
        """The next binary message has files of the interface."""
        self._why_closed = ""
        self._decoder = msgspec.json.Decoder(m.ServerMessage)

    # -- commands ----------------------------------------------------------------------

    def do_begin(self) -> dict[str, Any]:
        options = self._options
        self._socket = WebSocket(options["port"], f"/ws?token={options['token']}")
        width, height = options["size"]
        self._hello_at = time.monotonic()
        self._send(m.Hello(id=options["id"], width=width, height=height))
        self._send(m.Draws(on=True))
        for run in (self._read, self._hand.run):
            threading.Thread(target=run, daemon=True).start()
        return {"at": self._hello_at}

    def do_move(self, period_s: float) -> None:
        self._hand.move(period_s)

    def do_show(self, on: bool) -> None:
        self._send(m.Visible(on))

    def do_report(self) -> dict[str, Any]:
        if self._why_closed:
            raise RuntimeError(f"the connection is closed: {self._why_closed}")
        passes = self._passes
        self._passes = []
        return {
            "passes": passes,
            "bytes": self._received_bytes,
            "hello_at": self._hello_at,
        }

    # -- the connection ----------------------------------------------------------------

    def _send(self, message: m.ClientMessage) -> None:
        assert self._socket is not None
        self._socket.send(m.encode(message).encode())

    def _read(self) -> None:
        assert self._socket is not None
        try:
            while True:
                is_binary, data = self._socket.receive()
                self._received_bytes += len(data)
                if is_binary:
                    self._take_data(data)
                else:
                    self._take(self._decoder.decode(data))
        except (Closed, OSError, msgspec.MsgspecError) as e:
            self._why_closed = f"{type(e).__name__}: {e}"

    def _take_data(self, data: bytes) -> None:
        """Take bytes of blocks; those of the interface and of pictures are passed over."""
        is_interface = self._is_interface_next
        self._is_interface_next = False
        if is_interface:
            return
        blocks = self._coming.take_data(data)
        if blocks is not None:
            self._send(m.Taken(blocks.number))

    def _take(self, message: m.ServerMessage) -> None:
        match message:
            case m.InterfaceUpdate():
                self._is_interface_next = bool(message.sizes)
                self._send(m.Ack(message.number, layer="interface"))
            case m.Picture():
                self._send(m.Ack(message.number))
            case m.HandedScene():
                self._hand.pane = message.pane
                if message.drawing is not None:
                    self._hand.camera_place = message.drawing.place
            case m.SceneBegin():
                self._coming.begin_with(message)
            case m.Blocks():
                self._coming.announce(message)
            case m.SceneEnd():
                if message.is_whole:
                    self._passes.append(self._coming.report())
                self._send(m.Taken(message.number))


if __name__ == "__main__":
    harness.serve_requests(DrawingPage(json.loads(sys.argv[1])))
