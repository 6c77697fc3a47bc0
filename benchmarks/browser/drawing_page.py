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
import math
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
    from splatview_viewer.core.handed import HandedPlace

STAMPS = 2048
"""Stamps that differ; they are whole numbers in all forms of blocks."""
_RED_LOW = 16
"""Place of the low of red in a block's header."""
_EXACT_RED = HEADER * 2 + 7
"""Place of the first Gaussian's red in a block in the exact form, as float16."""
_TURN = 0.2
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


class DrawingPage:
    """Takes passes, and counts them."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._socket: WebSocket | None = None
        self._hello_at = 0.0
        self._received_bytes = 0
        self._messages = 0
        self._passes: list[dict[str, Any]] = []
        self._coming: m.SceneBegin | None = None
        self._begun_at = 0.0
        self._stamp = -1
        self._first_block = b""
        self._awaited_bytes = 0
        self._announced: m.Blocks | None = None
        self._is_interface_next = False
        """The next binary message has files of the interface."""
        self._place: HandedPlace | None = None
        self._pane = 0
        self._placed = itertools.count(1)
        self._period_s = 0.0
        self._moves = threading.Event()
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
        for run in (self._read, self._move):
            threading.Thread(target=run, daemon=True).start()
        return {"at": self._hello_at}

    def do_move(self, period_s: float) -> None:
        self._period_s = period_s
        self._moves.set()

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
            "messages": self._messages,
            "hello_at": self._hello_at,
            "at": time.monotonic(),
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
                self._messages += 1
                if is_binary:
                    self._take_data(data)
                else:
                    self._take(self._decoder.decode(data))
        except (Closed, OSError, msgspec.MsgspecError) as e:
            self._why_closed = f"{type(e).__name__}: {e}"

    def _take_data(self, data: bytes) -> None:
        """Take bytes of blocks; those of the interface and of pictures are passed over."""
        announced = self._announced
        is_interface = self._is_interface_next
        self._is_interface_next = False
        if is_interface or announced is None:
            return
        if not self._first_block:
            self._first_block = data
        self._awaited_bytes -= len(data)
        if self._awaited_bytes > 0:
            return
        self._announced = None
        is_first = announced.first == 0 and announced.part != "harmonics"
        if is_first:
            self._stamp = _stamp_of(self._first_block, announced.part)
        self._send(m.Taken(announced.number))

    def _take(self, message: m.ServerMessage) -> None:
        match message:
            case m.InterfaceUpdate():
                self._is_interface_next = bool(message.sizes)
                self._send(m.Ack(message.number, layer="interface"))
            case m.Picture():
                self._send(m.Ack(message.number))
            case m.HandedScene():
                self._pane = message.pane
                if message.drawing is not None:
                    self._place = message.drawing.place
            case m.SceneBegin():
                self._coming = message
                self._begun_at = time.monotonic()
            case m.Blocks():
                self._announced = message
                self._awaited_bytes = message.bytes
                self._first_block = b""
            case m.SceneEnd():
                self._end(message)

    def _end(self, end: m.SceneEnd) -> None:
        """Show a pass that has come as a whole."""
        coming = self._coming
        if coming is not None and end.is_whole:
            self._passes.append(
                {
                    "begun_at": self._begun_at,
                    "shown_at": time.monotonic(),
                    "version": coming.version,
                    "stamp": self._stamp,
                    "count": coming.count,
                    "total": coming.total,
                    "form": coming.form,
                    "has_harmonics": coming.has_harmonics,
                    "refines": coming.refines,
                    "bytes": coming.bytes,
                }
            )
        self._send(m.Taken(end.number))

    def _move(self) -> None:
        """Turn the camera, and say where it is whenever it is let go."""
        while True:
            place = self._place
            if not self._period_s or place is None:
                self._moves.wait(0.05)
                continue
            time.sleep(self._period_s)
            turn = axis_rotation((0.0, 0.0, 1.0), _TURN)
            rotation = np.array(place.rotation).reshape(3, 3) @ turn
            self._place = msgspec.structs.replace(
                place, rotation=tuple(rotation.ravel().tolist())
            )
            self._send(ev.Placed(self._pane, next(self._placed), self._place, at=_ms()))


def _ms() -> float:
    return math.ceil(time.perf_counter() * 1e3)


if __name__ == "__main__":
    harness.serve_requests(DrawingPage(json.loads(sys.argv[1])))
