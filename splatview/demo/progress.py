"""How the training process tells how far it is: a bar on a terminal, plain lines in a log, JSON to a program."""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import IO, Any, Literal

from splatview_ipc.system.terminal import printable

Style = Literal["bar", "lines", "json"]


def style_for(stream: IO[str], as_json: bool) -> Style:
    return "json" if as_json else "bar" if stream.isatty() else "lines"


class Progress:
    """Events of a training, shown as they come.

    Events are dictionaries with an "event": "note" (text), "camera" (camera), "views" (done, of), "train" (step, of,
    loss, psnr, gaussians) and "done" (steps, of, seconds, psnr, gaussians). One event per line in the JSON style.
    """

    def __init__(self, style: Style, stream: IO[str] | None = None):
        self.style = style
        self._stream = stream or sys.stdout
        self._shown = 0.0
        self._bar = False
        self._began = time.monotonic()

    def __call__(self, event: str, **values: Any) -> None:
        last = event not in ("views", "train") or values.get("done", values.get("step")) == values["of"]
        now = time.monotonic()
        if not last and now - self._shown < {"json": 0.1, "bar": 0.1, "lines": 5.0}[self.style]:
            return
        self._shown = now
        if self.style == "json":
            self._write(json.dumps({"event": event, **values}) + "\n")
            return
        if event == "camera":
            return
        text = describe(event, values)
        if self.style == "bar" and event in ("views", "train"):
            share = values.get("done", values.get("step", 0)) / max(values["of"], 1)
            self._write("\r\x1b[2K" + _bar_line(share, text, now - self._began))
            self._bar = not last
            if last:
                self._write("\n")
            return
        self._write(("\n" if self._bar else "") + text + "\n")
        self._bar = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def describe(event: str, values: dict[str, Any]) -> str:
    """One line of text for an event."""
    if event == "views":
        return f"views {values['done']}/{values['of']}"
    if event == "train":
        return (f"step {values['step']}/{values['of']}  loss {values['loss']:.4f}  PSNR {values['psnr']:.2f} dB  "
                f"{values['gaussians']:,} Gaussians")
    if event == "done":
        quality = "no held-out views" if values["psnr"] is None else f"PSNR {values['psnr']:.2f} dB on held-out views"
        return (f"{quality} after {values['steps']} of {values['of']} steps, {values['gaussians']:,} Gaussians, "
                f"{values['seconds']:.0f} s")
    return printable(values.get("text", ""))


def _bar_line(share: float, text: str, seconds: float) -> str:
    columns = shutil.get_terminal_size().columns
    end = f"  {text}  {seconds:.0f} s"
    width = max(columns - len(end) - 3, 5)
    filled = round(width * min(share, 1.0))
    return ("[" + "=" * filled + " " * (width - filled) + "]" + end)[: columns - 1]
