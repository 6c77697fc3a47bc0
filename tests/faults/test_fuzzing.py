"""Whatever bytes come from outside: each reader refuses them with the errors that it declares, or takes them.

The targets are in tests/fuzz/. Longer runs: `python -m fuzz.run TARGET`, from within tests/.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fuzz
import pytest
from fuzz.damage import damaged
from hypothesis import HealthCheck, given, settings
from meters import many

TARGETS = fuzz.load()


@pytest.mark.parametrize("name", TARGETS)
def test_it_refuses_or_takes_whatever_comes(name: str) -> None:
    seeds = fuzz.SEEDS[name]()
    for seed in seeds:
        TARGETS[name](seed)

    @settings(max_examples=many(20_000, 300), deadline=None, database=None,
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(damaged(seeds))
    def holds(data: bytes) -> None:
        TARGETS[name](data)

    holds()


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fuzz.run", *arguments], cwd=Path(fuzz.__file__).parent.parent,
                          capture_output=True, text=True)


def test_one_can_be_run_for_longer() -> None:
    done = _run("to_trainer", "--plain", "0.3")
    assert done.returncode == 0, done.stderr
    assert "nothing found" in done.stdout
    wrong = _run("no-such-target")
    assert wrong.returncode == 2
    assert "to_trainer" in wrong.stderr
