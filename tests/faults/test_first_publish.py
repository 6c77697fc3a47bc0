"""A training whose table of open files is full calls `publish` for the first time: modules cannot even be loaded. It
goes on, hears why once, and is seen when there is room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from patience import PATIENCE

if TYPE_CHECKING:
    from programs import Processes

TRAINING = """
import os, resource, sys, time, torch, splatview
from splatview import publishing
publishing.RETRY = 0.05
image = torch.zeros(8, 8, 3)
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError:
    pass
end = time.monotonic() + 0.5
while time.monotonic() < end:
    splatview.publish(image{name})
assert publishing.begun() is None
for fd in held[:100]:
    os.close(fd)
while publishing.begun() is None:
    splatview.publish(image{name})
    time.sleep(0.01)
print("begun", flush=True)
"""


@pytest.mark.parametrize("name", ["", ", 'picture'"])
def test_no_open_file_is_left_at_the_first_publish(name: str, processes: Processes) -> None:
    process = processes.code(TRAINING.format(name=name))
    said, errors = process.communicate(timeout=PATIENCE)
    assert said == "begun\n", errors
    assert process.returncode == 0
    assert errors.count("met a fault") == len({e for e in errors.splitlines() if "met a fault" in e}) >= 1
    assert "Too many open files" in errors
    assert "Traceback" not in errors
