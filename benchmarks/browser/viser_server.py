"""The peer: viser's background image, as nerfview shows its pictures. Needs viser, numpy; torch only for "cuda".

`python -m benchmarks.browser.viser_server JSON` with {"base", "size", "quality", "hz" (0: as fast as it goes),
"values" ("uint8": what costs least, or "float32": what gsplat's examples hand to nerfview), "opencv" (whether viser may
use it to encode; else Pillow), "device"}. Feeds every picture to the first client as nerfview does, never more than one
that waits while one is sent: one that is replaced in the queue would have been encoded in vain. Commands: feed: begin;
report: how many were handed over and the processor time of the whole process since the last report.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import numpy as np

from benchmarks import programs
from benchmarks.browser import numbered


class Server:
    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        if not options["opencv"]:
            sys.modules["cv2"] = None  # type: ignore[assignment]
        import viser  # pyright: ignore[reportMissingImports]

        encoder = "Pillow"
        if options["opencv"]:
            import cv2  # pyright: ignore[reportMissingImports]

            cv2.setNumThreads(1)  # it encodes in one anyway
            encoder = f"OpenCV {cv2.__version__}"
        self._float = options["values"] == "float32"
        self._pool = numbered.moving(numbered.load(options["base"]), tuple(options["size"]), numbered.POOL)
        self._torch = None
        if options["device"] == "cuda":
            import torch

            self._torch = torch
        self._pictures = [self._as_given(p) for p in self._pool]
        self._times: list[tuple[int, float]] = []
        self._cpu = time.process_time()
        self._begun = threading.Event()
        self._server = viser.ViserServer(host="127.0.0.1", port=0, verbose=False)
        threading.Thread(target=self._feed, daemon=True).start()
        programs.say(port=self._server.get_port(), version=viser.__version__, encoder=encoder)

    def _as_given(self, picture: np.ndarray) -> Any:
        value = picture.astype(np.float32) / 255 if self._float else picture
        return value if self._torch is None else self._torch.from_numpy(value).cuda()

    def _numbered(self, number: int) -> np.ndarray:
        """The picture in host memory with its number; only the strip with the number is made anew."""
        picture = self._pictures[number % numbered.POOL]
        if self._torch is not None:
            picture = picture.cpu().numpy()
        height = 3 * numbered.BLOCK * picture.shape[1] // 1920
        if self._float:
            strip = np.zeros((height, picture.shape[1], 3), np.uint8)
            numbered.write(strip, number)
            side, margin = numbered.extent(picture.shape[1])
            picture[margin:margin + 2 * side, margin:margin + numbered.BITS * side] = (
                strip[margin:margin + 2 * side, margin:margin + numbered.BITS * side].astype(np.float32) / 255)
        else:
            numbered.write(picture[:height], number)
        return picture

    def _feed(self) -> None:
        self._begun.wait()
        while not (clients := self._server.get_clients()):
            time.sleep(0.02)
        client = next(iter(clients.values()))
        buffer = client.scene._websock_interface.get_message_buffer()
        number, due, hz = 0, time.monotonic(), self._options["hz"]
        while True:
            number += 1
            picture = self._numbered(number)
            while buffer.message_from_id:  # the one before has not been taken yet
                time.sleep(0.0005)
            self._times.append((number, time.monotonic()))
            client.scene.set_background_image(picture, format="jpeg", jpeg_quality=self._options["quality"])
            client.flush()  # at once, not by the next sixtieth of a second
            if hz:
                due = max(due + 1 / hz, time.monotonic() - 0.05)
                time.sleep(max(due - time.monotonic(), 0))

    def do_feed(self) -> None:
        self._begun.set()

    def do_report(self) -> dict[str, Any]:
        times, self._times = self._times, []
        before, self._cpu = self._cpu, time.process_time()
        return {"times": times, "cpu_ms": (self._cpu - before) * 1e3}


if __name__ == "__main__":
    programs.obey(Server(json.loads(sys.argv[1])))
