"""Any bytes from outside give a value or a declared error, in bounded time and memory:
each target, in a program.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.programs import TESTS

from fuzz.targets import TARGETS
from splatview_viewer.kinds.files import FORMATS

pytestmark = [pytest.mark.soak, pytest.mark.programs]


@pytest.mark.parametrize("name", TARGETS)
def test_readers_take_or_refuse_any_input_within_limits(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.run", name, "600"],
        cwd=TESTS,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]


def test_every_format_is_a_target() -> None:
    assert {f.name for f in FORMATS} == {
        target.format for target in TARGETS.values() if target.format
    }
