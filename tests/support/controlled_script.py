"""A script with controls of its own, as its run shares them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import torch

from splatview_ipc.control.messages import SetControl
from splatview_ipc.kinds.controls import Control, encode
from splatview_ipc.publisher.publisher import Publisher
from support.drawn_scene import FrameLayout


class ControlledScript:
    """Declares controls in a run, and takes what viewers set."""

    def __init__(self, publisher: Publisher, controls: Sequence[Control]) -> None:
        self.controls = {control.name: control for control in controls}
        self.messages: list[SetControl] = []
        self.answers = True
        """What viewers set is taken."""
        self._lock = threading.Lock()
        self._stream: Any = publisher.stream("controls", "controls")
        publisher.on_request["SetControl", "controls"] = self._take
        self.publish()

    def publish(self) -> None:
        packed = bytearray(encode(tuple(self.controls.values())))
        tensor = torch.frombuffer(packed, dtype=torch.uint8)
        layout = FrameLayout("controls", ("controls",), tuple(tensor.shape), "uint8")
        self._stream.describe(layout)
        self._stream.publish_awaited(((tensor,), {}))

    def set(self, name: str, value: Any) -> None:
        """Set a control, as the script itself does."""
        with self._lock:
            old = self.controls[name]
            self.controls[name] = msgspec.structs.replace(old, value=value)
            self.publish()

    def value(self, name: str) -> Any:
        return self.controls[name].value

    def _take(self, message: SetControl) -> None:
        """Take what a viewer sets, on the helper thread."""
        self.messages.append(message)
        control = self.controls.get(message.control)
        if control is None or not self.answers:
            return
        value: Any = message.value
        if control.form == "button":
            assert isinstance(control.value, int)
            value = control.value + message.clicks
        with suppress(ValueError):
            control.check(value)
            self.set(message.control, value)
