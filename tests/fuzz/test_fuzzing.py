"""Whatever bytes come from outside: each reader refuses them with the errors that it declares, or takes them.

The targets are in tests/fuzz/. Longer runs: `python -m fuzz.run TARGET`, from within tests/.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from support.meters import many
from support.repetitions import exhaustive
from support.wait import PATIENCE

import fuzz
import fuzz.run
from fuzz.damage import damaged
from splatview.viewer_app.files import FORMATS

TARGETS = fuzz.load()


@pytest.mark.parametrize("examples", [5, exhaustive(many(20_000, 300), id="300")])
@pytest.mark.parametrize("name", TARGETS)
def test_it_refuses_or_takes_whatever_comes(name: str, examples: int) -> None:
    seeds = fuzz.SEEDS[name]()
    for seed in seeds:
        TARGETS[name](seed)

    @settings(max_examples=examples, deadline=None, database=None,
              suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(damaged(seeds))
    def holds(data: bytes) -> None:
        TARGETS[name](data)

    holds()


@cache
def crafted_run() -> dict[str, str]:
    """Return what each target printed for its crafted inputs. One process runs all of them; after its death, another
    runs the rest."""
    waiting = list(fuzz.CRAFTED)
    printed = dict.fromkeys(waiting, "not run")
    while waiting:
        done = _run("--crafted", *waiting)
        reached = 0
        for line in done.stdout.splitlines():
            name = line.partition(":")[0]
            if name in waiting:
                printed[name], reached = line, max(reached, waiting.index(name) + 1)
        if done.returncode == 0:
            break
        printed[waiting[max(reached - 1, 0)]] += f"; ended with {done.returncode}\n{done.stderr[-3000:]}"
        waiting = waiting[max(reached, 1):]
    return printed


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(fuzz.CRAFTED))
def test_readers_take_crafted_inputs_within_limits(name: str) -> None:
    """Counts of 10^4300, 60,000 properties, 30,000 keys, planes of a hundred bytes that decode to gigabytes."""
    printed = crafted_run()[name]
    assert printed.endswith("crafted inputs, nothing found"), printed


def test_every_format_has_crafted_inputs() -> None:
    assert {f.name for f in FORMATS} == set(fuzz.FORMAT_OF.values())
    assert set(fuzz.FORMAT_OF) <= set(fuzz.CRAFTED)


def test_every_target_that_reads_a_file_has_crafted_inputs() -> None:
    files = {name for name, run in TARGETS.items() if run.__module__ in ("fuzz.files", "fuzz.demo_files")}
    assert files - set(fuzz.CRAFTED) == {"page_message", "sent_picture", "upload_name"}  # what a page sends
    assert set(fuzz.CRAFTED) <= set(TARGETS)


@pytest.mark.exhaustive
def test_limits_end_a_process_that_takes_too_long() -> None:
    code = ("import sys; sys.path.insert(0, '.')\nfrom fuzz.limits import cpu_limit\n"
            "with cpu_limit(0): sum(1 for _ in iter(int, 1))")
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(fuzz.__file__).parent.parent, timeout=PATIENCE)
    assert done.returncode == -signal.SIGXCPU


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "fuzz.run", *arguments], cwd=Path(fuzz.__file__).parent.parent,
                          capture_output=True, text=True)


def test_one_can_be_run_for_longer(capsys: pytest.CaptureFixture[str]) -> None:
    assert fuzz.run.main(["to_trainer", "--plain", "0.3"]) == 0
    assert "nothing found" in capsys.readouterr().out
    assert fuzz.run.main(["no-such-target", "--plain"]) == 2
    assert "to_trainer" in capsys.readouterr().err
