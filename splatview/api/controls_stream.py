"""The stream by which viewers see a script's controls, and their messages to it."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import torch

from splatview.adapters import NamedTensors
from splatview.api.session import session
from splatview_ipc.kinds.controls import encode
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from splatview.api.script_controls import ControlRegistry
    from splatview_ipc.control.messages import Open, SetControl
    from splatview_ipc.kinds.controls import Control
    from splatview_ipc.publisher.publisher import Publisher

_log = logging.getLogger("splatview")

NAME = "controls"
"""The stream's name, and its kind."""
_LAYOUT = NamedTensors("controls", ("controls",), dtype="uint8")
_PERIOD_S = 0.02
"""Shortest time between two versions."""
_UNSEEN_PERIOD_S = 1.0
"""The same while no viewer reads them."""
_COST_FACTOR = 20
"""The same in times that the last version took: 10,000 controls take no core for long."""
_WRITING_PERIOD_S = 1.0
"""Shortest time between two writings of the file."""
_MAX_LOGGED = 20
"""Controls of which a wrong message of a viewer is logged."""


class ControlsStream:
    """Publishes the controls of a script, and sets them as viewers say."""

    def __init__(self, publisher: Publisher, registry: ControlRegistry) -> None:
        """Make the stream.

        Args:
            publisher: the run.
            registry: the controls.

        Raises:
            ValueError: the script publishes something else under the stream's name.
        """
        self._registry = registry
        self._now = publisher.now
        other_stream = publisher.streams.get(NAME)
        if other_stream is not None and other_stream.kind != "controls":
            raise ValueError(
                f"this script publishes {other_stream.kind} under the name {NAME!r}, which "
                "its controls need; publish that under another name"
            )
        self._stream = publisher.stream(NAME, "controls")
        self._stream.describe(_LAYOUT, copy=True)
        self._published: dict[str, Control] = {}
        """The controls as they were published last, by name."""
        self._next_at = 0.0
        """When the next version may be published."""
        self._next_writing_at = 0.0
        self._logged_names: set[str] = set()
        registry.note_all()
        publisher.on_request["SetControl", NAME] = self.take
        publisher.on_request["Open", NAME] = self._hasten

    # On the helper thread.

    def take(self, message: SetControl) -> None:
        """Set a control as a viewer says; drop what it cannot be set to."""
        control = self._registry.controls.get(message.control)
        if control is None:
            self._log_once(message.control, "the script has no control of this name")
            return
        try:
            control.take(message.value, message.clicks)
        except ValueError as error:
            self._log_once(message.control, str(error))

    def _log_once(self, name: str, reason: str) -> None:
        if name in self._logged_names or len(self._logged_names) >= _MAX_LOGGED:
            return
        self._logged_names.add(name)
        _log.warning(
            "splatview: a viewer cannot set control %r: %s", name, printable(reason)
        )

    def _hasten(self, _: Open) -> None:
        """Publish what has changed now, and not in a while: a viewer begins to read."""
        self._next_at = 0.0
        session().wake()

    # On the worker thread.

    def tick(self, now: float) -> float:
        """Publish and write what has changed; return when to be called again."""
        due = math.inf
        if self._registry.has_changed:
            if now >= self._next_at:
                self._publish(now)
            else:
                due = self._next_at
        remembered = self._registry.remembered
        if remembered is not None and remembered.has_changed:
            if now < self._next_writing_at:
                return min(due, self._next_writing_at)
            self._next_writing_at = now + _WRITING_PERIOD_S
            remembered.write()
        return due

    def _publish(self, begun_at: float) -> None:
        """Publish the next version.

        Args:
            begun_at: the clock's seconds.
        """
        remembered = self._registry.remembered
        for control in self._registry.take_changed():
            self._published[control.name] = control.current()
            if remembered is not None and control.is_remembered:
                remembered.put(control)
        names = list(self._registry.controls)
        # One that was declared a moment ago comes with the next version.
        packed = encode([self._published[n] for n in names if n in self._published])
        tensor = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
        self._stream.publish_awaited(((tensor,), {}))
        period_s = _PERIOD_S if self._stream.readers else _UNSEEN_PERIOD_S
        cost_s = self._now() - begun_at
        self._next_at = begun_at + max(period_s, _COST_FACTOR * cost_s)

    def close(self) -> None:
        """Publish and write the last values. The script may declare others then."""
        self._publish(self._now())
        self._registry.allow_replacing()
        remembered = self._registry.remembered
        if remembered is not None and remembered.has_changed:
            remembered.write()
