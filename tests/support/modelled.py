"""Our shared-memory code over a memory that an `explorer.Explorer` explores: the very text of the modules, compiled
once more with another idea of what a segment, a mapping and a fence are.

`code()` compiles it; with `changes` some text is replaced first, so that a test sees that the explorer finds what is
broken. `run(port)` names the process whose accesses the code makes from then on.

Addresses: ("ring", word) of a control page, ("control", word), ("header", byte, part), ("data", slot, cell): a frame's
values.
"""

from __future__ import annotations

import contextlib
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from support.explorer import Port, Stop

if TYPE_CHECKING:
    from collections.abc import Callable

_ORDER = ("splatview_ipc.shm.control_block", "splatview_ipc.shm.slot_writer", "splatview_ipc.shm.slot_reader",
          "splatview_ipc.transports.cpu_ring", "splatview_ipc.transports.gpu_slots",
          "splatview_ipc.transports.device_ring", "splatview_ipc.transports.zero_copy_writer",
          "splatview_ipc.transports.zero_copy_reader")
_port: Port | None = None


def run(port: Port) -> Port:
    """The code runs as this process from now on."""
    global _port
    _port = port
    return port


def now() -> Port:
    """The process that runs."""
    assert _port is not None
    return _port


class Region:
    """A segment's mapping, and any view of it: its 64-bit words by number, its bytes by slice."""

    def __init__(self, label: str):
        self.label = label

    def cast(self, _: str) -> Region:
        return self

    def __getitem__(self, part: Any) -> Any:
        if isinstance(part, int):
            return now().load((self.label, part))
        if not part.start:
            return self
        parts = [now().load(("header", part.start, one)) or b"" for one in range(cells)]
        return b"".join(parts)[: part.stop - part.start]

    def __setitem__(self, part: Any, value: Any) -> None:
        if isinstance(part, int):
            now().store((self.label, part), value)
            return
        for one in range(cells):
            share = value[len(value) * one // cells: len(value) * (one + 1) // cells]
            now().store(("header", part.start, one), share)

    def release(self) -> None:
        pass


class Segment:
    """In place of `splatview_ipc.shm.segment.Segment`."""

    def __init__(self, size: int, label: str):
        self.map = Region(label)
        self.ref = SimpleNamespace(size=max(size, 1 << 30), label=self.map.label)

    def close(self) -> None:
        pass


class Target:
    """A tensor over a slot's data: so many cells, whatever its size."""

    def __init__(self, slot: int):
        self._slot = slot

    def copy_(self, source: Any, non_blocking: bool = False) -> None:
        for cell, value in enumerate(source.flatten().tolist()[:cells]):
            now().store(("data", self._slot, cell), value)

    def values(self) -> list[int]:
        return [now().load(("data", self._slot, cell)) for cell in range(cells)]


MOST_CELLS = 2
cells = MOST_CELLS
"""In how many stores the data of a frame come, and its header: 2, or 1, where much else is to be explored."""


def code(changes: tuple[tuple[str, str, str], ...] = ()) -> SimpleNamespace:
    """The modules by the last part of their names. `changes`: a module, a text that stands there once, and what to
    put instead."""
    made: dict[str, ModuleType] = {}
    assert {module for module, _, _ in changes} <= {*_ORDER}
    before = {name: import_module(name) for name in _ORDER}
    try:
        for name in _ORDER:
            spec = find_spec(name)
            assert spec is not None and spec.origin is not None
            text = Path(spec.origin).read_text(encoding="utf-8")
            for _, old, new in (change for change in changes if change[0] == name):
                assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
                text = text.replace(old, new)
            module = made[name] = ModuleType(name)
            module.__file__ = spec.origin
            exec(compile(text, spec.origin, "exec"), module.__dict__)
            sys.modules[name] = module  # for those that come after it
            _rig(module)
    finally:
        sys.modules.update(before)
    return SimpleNamespace(**{name.rpartition(".")[2]: module for name, module in made.items()})


def _rig(module: ModuleType) -> None:
    rigged: dict[str, Any] = {
        "Segment": Segment, "memoryview": lambda region: region, "full_fence": lambda: now().fence(),
        "close_map": lambda region: None, "open_segment": lambda ref, *_: Region(ref.label),
        "time": SimpleNamespace(time_ns=lambda: now().clock),
        "driver": SimpleNamespace(is_capturing=lambda: False, current_stream=lambda index: 0,
                                  write_value=lambda index, stream, word, value: now().queue(("ring", word), value)),
    }
    for name, value in rigged.items():
        if name in module.__dict__ or name == "memoryview":
            setattr(module, name, value)


def initial(body: Callable[[Port], None], *addresses: tuple[Any, ...]) -> dict[tuple[Any, ...], Any]:
    """The memory when a process has set itself up, with these addresses too."""
    class SetUp(Port):
        def begin(self) -> None:
            raise Stop

    port = SetUp(dict.fromkeys(addresses, 0), lambda address: True, ())
    with contextlib.suppress(Stop):
        body(port)
    return port.memory
