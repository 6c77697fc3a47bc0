"""Targets for fuzzing: everything here that reads what somebody else wrote.

A target takes bytes. It may refuse them only with the errors that it declares; whatever else it raises, a hang, or
memory without bound, is a bug. The tests run each with what Hypothesis makes of its seeds (`fuzz.damage`), and
`python -m fuzz.run TARGET`, from within tests/, runs one for hours, with atheris where that is installed.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[[bytes], None]
    Seeds = Callable[[], list[bytes]]

TARGETS: dict[str, Run] = {}
"""What reads, by name. `load` fills it."""
SEEDS: dict[str, Seeds] = {}
"""Makes a few well-formed inputs for a target, for fuzzing to start from. Made by code: nothing is stored."""
CRAFTED: dict[str, Callable[[], dict[str, bytes]]] = {}
"""Makes small inputs, by name, that claim much or are slow to look up. Run within limits of CPU time and memory."""
FORMAT_OF: dict[str, str] = {}
"""The format of `viewer_app.files.FORMATS` that a target reads; targets of other files are not in it."""


def target(name: str, seeds: Seeds) -> Callable[[Run], Run]:
    """Register a function as the target of this name."""

    def register(run: Run) -> Run:
        if name in TARGETS:
            raise ValueError(f"there are two targets {name!r}")
        TARGETS[name], SEEDS[name] = run, seeds
        return run

    return register


def crafted(name: str) -> Callable[[Callable[[], dict[str, bytes]]], Callable[[], dict[str, bytes]]]:
    """Register a function as the maker of a target's crafted inputs."""

    def register(make: Callable[[], dict[str, bytes]]) -> Callable[[], dict[str, bytes]]:
        if name in CRAFTED:
            raise ValueError(f"there are two sets of crafted inputs for {name!r}")
        CRAFTED[name] = make
        return make

    return register


def load() -> dict[str, Run]:
    """TARGETS, once every module of this folder has registered its own."""
    for module in pkgutil.iter_modules(__path__):
        if module.name not in ("run", "conftest") and not module.name.startswith("test_"):
            importlib.import_module(f"{__name__}.{module.name}")
    return TARGETS
