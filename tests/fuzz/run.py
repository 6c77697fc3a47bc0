"""Fuzz one target for as long as you like: `python -m fuzz.run TARGET [ARGUMENTS OF ATHERIS]`, from within tests/.

With atheris (`pip install splatview[fuzz]`) the run is guided by what of our code is reached, and what it finds is
kept in a folder; without it `--plain SECONDS` mutates the seeds blindly. `--crafted` runs the crafted inputs alone.
Each input of `--plain` and `--crafted` has limits of memory and of CPU time. The kernel keeps the latter, also where a
library holds the interpreter's lock: a process that takes more is ended (SIGXCPU).
"""

from __future__ import annotations

import importlib
import math
import os
import random
import resource
import sys
import tempfile
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from support.wait import clock

from fuzz import CRAFTED, SEEDS, TARGETS, load
from fuzz.damage import mutated

if TYPE_CHECKING:
    from collections.abc import Iterator

_USAGE = """python -m fuzz.run TARGET --plain SECONDS
python -m fuzz.run --crafted [TARGET ...]
python -m fuzz.run TARGET [CORPUS] [-max_total_time=SECONDS] [...]     with atheris; see its -help=1

targets: {}
"""
CPU_SECONDS = 30
"""For one input. Linear readers take a fifth of it, quadratic ones more."""


@contextmanager
def cpu_limit(seconds: int = CPU_SECONDS) -> Iterator[None]:
    """End this process if what is within takes more CPU time, all threads together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    before = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime) + seconds, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, before)


def main(arguments: list[str]) -> int:
    atheris = None
    name, rest = (arguments[0] if arguments else ""), arguments[1:]
    if name == "--crafted":
        load()
        return max(_crafted(name) for name in rest or CRAFTED)
    if rest[:1] == ["--plain"]:
        load()
    else:
        try:
            atheris = importlib.import_module("atheris")
        except ImportError:
            pass
        if atheris is None:
            load()
        else:
            with atheris.instrument_imports(include=["splatview"]):
                load()
    if name not in TARGETS:
        print(_USAGE.format(", ".join(sorted(TARGETS))), end="", file=sys.stderr)
        return 2
    if rest[:1] == ["--plain"]:
        return _plain(name, float(rest[1]) if len(rest) > 1 else 60.0)
    if atheris is None:
        print("atheris is not installed: pip install 'splatview[fuzz]', or run this with "
              "--plain SECONDS, which does without it", file=sys.stderr)
        return 2
    if not [a for a in rest if not a.startswith("-")]:
        rest = [tempfile.mkdtemp(prefix=f"fuzz-{name}-"), *rest]
    folder = Path(next(a for a in rest if not a.startswith("-")))
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]()):
        (folder / f"seed-{number}").write_bytes(seed)
    print(f"corpus: {folder}", file=sys.stderr)
    atheris.Setup([f"fuzz.run {name}", *rest], TARGETS[name])
    atheris.Fuzz()
    return 0


def _crafted(name: str) -> int:
    inputs = CRAFTED[name]() if name in CRAFTED else {}
    for seed in SEEDS[name]():  # imports and compiles what the target needs, which does not count
        TARGETS[name](seed)
    for what, data in inputs.items():
        print(f"{name}: {what} ({len(data):,} bytes)", flush=True)  # the last one, where the process is ended
        if not _passes(name, data):
            return 1
    print(f"{name}: {len(inputs)} crafted inputs, nothing found", flush=True)
    return 0


def _plain(name: str, seconds: float) -> int:
    if _crafted(name):
        return 1
    seeds, luck, end, count = SEEDS[name](), random.Random(), clock() + seconds, 0
    while clock() < end:
        count += 1
        if not _passes(name, mutated(seeds, luck)):
            print(f"after {count} inputs", file=sys.stderr)
            return 1
    print(f"{name}: {count} inputs in {seconds:g} s, nothing found")
    return 0


def _passes(name: str, data: bytes) -> bool:
    """Run one input. One that fails is kept in a file, also where the kernel ends this process for its CPU time."""
    fd, path = tempfile.mkstemp(prefix=f"crash-{name}-")
    with os.fdopen(fd, "wb") as f:
        f.write(data)
    try:
        with cpu_limit():
            TARGETS[name](data)
    except Exception:
        traceback.print_exc()
        print(f"the input that did it: {path}", file=sys.stderr)
        return False
    Path(path).unlink(missing_ok=True)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
