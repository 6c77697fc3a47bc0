"""Start the viewer with a user at it, in its own process, and talk to that user."""

from __future__ import annotations

import queue
import sys
import time
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Program, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


class Viewer(Program):
    """`splatview serve --offscreen` with these options, as a context manager.

    It is ended on the way out.
    """

    def __init__(
        self,
        *options: str,
        size: tuple[int, int] = (1920, 1080),
        env: dict[str, str] | None = None,
        program: str = "benchmarks.gpu.driver",
    ) -> None:
        """Start the viewer.

        program: `driver`, or a module that knows what it knows and more.
        """
        self.changes: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        """The reports of `watch`: {"seen": RGB, "ns", "moments"} whenever the pixel in
        the middle changed."""
        super().__init__(
            program,
            "serve",
            "--offscreen",
            "--size",
            f"{size[0]}x{size[1]}",
            *options,
            env=env,
        )

    def handle_message(self, message: dict[str, Any]) -> None:
        if "seen" in message:
            self.changes.put(message)
        else:
            super().handle_message(message)

    def ready(
        self, meanwhile: Callable[[], object] | None = None, timeout: float = 240.0
    ) -> dict[str, Any]:
        """Wait until it shows something, then hide the panel; return its state.

        `meanwhile` is the trainer's work.
        """
        state: dict[str, Any] = {}

        def shows() -> bool:
            state.update(self.request("state", timeout=timeout))
            if state["fault"]:
                raise RuntimeError(f"the viewer cannot show it: {state['fault']}")
            if not state["shows"]:
                time.sleep(0.02)
            return bool(state["shows"])

        wait_until("the viewer's first picture", shows, timeout, meanwhile)
        print(
            "  viewer:",
            ", ".join(state["path"]),
            *state["notes"],
            sep="; ",
            file=sys.stderr,
            flush=True,
        )
        if state["panel"]:
            self.request(
                "key", name="h"
            )  # the panel away: the picture fills the screen
        wait_until(
            "the panel's end",
            lambda: not self.request("state")["panel"],
            timeout,
            meanwhile,
        )
        return state

    def pixel(self) -> tuple[int, int, int]:
        """Return the RGB in the middle of the picture."""
        r, g, b = self.request("pixel")["rgb"]
        return r, g, b
