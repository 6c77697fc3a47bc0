"""A viewer comes late to a trainer that computes for long without a call: it sees what was published last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from support.reading import newest

from splatview_ipc.subscriber.subscriber import Subscriber

if TYPE_CHECKING:
    from support.programs import Programs

PUBLISHES = """
import math, signal, torch, splatview
for value in range(1, 8):
    splatview.publish(torch.full((90, 160, 3), value, dtype=torch.uint8), "render", step=value)
    splatview.publish({"means": torch.full((300, 3), float(value)), "quats": torch.ones(300, 4),
                       "scales": torch.zeros(300, 3), "opacities": torch.zeros(300),
                       "sh0": torch.zeros(300, 1, 3)}, "scene", step=value)
print("published", flush=True)
"""
COMPUTES = {
    "python": "x = 0\nwhile True: x = (x * 31 + 7) % 1000003",
    "torch": "a = torch.rand(700, 700)\nwhile True: a = torch.tanh(a @ a)",
    "asleep": "signal.pause()",
    "sort": "numbers = [math.sin(i) for i in range(300_000)]\nwhile True: sorted(numbers)",
}
"""The last one holds the interpreter's lock for a tenth of a second or more at a time."""


@pytest.mark.parametrize("how", COMPUTES)
def test_it_sees_what_was_published_last(programs: Programs, how: str) -> None:
    trainer = programs.code(PUBLISHES + COMPUTES[how])
    assert trainer.line() == "published"
    with Subscriber() as viewer:
        for name, tensor in (("render", "image"), ("scene", "means")):
            version, meta, tensors = newest(viewer, name)
            assert (version, meta["step"]) == (7, 7) and np.all(tensors[tensor] == 7)
    assert trainer.poll() is None
