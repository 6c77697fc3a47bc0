"""Every interleaving of a few processes over shared words, each of them real code of ours.

A process is a function that is given a `Port`, its only access to the memory. What it does next depends on nothing but
the values that it has loaded so far: so its code is run once for each series of such values, up to the load that comes
next, and remembered as a tree (`_Program`). Interleavings are then explored on these trees alone, as far as any process
can go, and with the death of some of them (SIGKILL) wherever it makes a difference.

Two memories:
- `TSO`, as x86: stores wait in a buffer, in order, until they are seen; a full fence waits for them.
- `WEAK`, as ARM with its stores seen by all others at once: stores between two fences are seen in any order, but for
  those to one word; a load may have been made at any moment since the last fence, but two of one word in order.
  Control dependencies, which order more on real processors, are not relied on.

Bounds are what the scenarios say: how many publishes and reads. Within them nothing is left out.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

TSO, WEAK = "tso", "weak"
_STORE, _QUEUE, _FENCE, _GHOST, _LOAD, _BOUNDARY, _WRONG, _END = range(8)
Address = tuple[Any, ...]


class Wrong(Exception):  # noqa: N818 (what is wrong, said by a process or the audit)
    """An invariant does not hold."""


class Stop(BaseException):
    """The code has come as far as is known."""


class Port:
    """A process's access to the memory. While it sets itself up, it is alone and stores at once."""

    def __init__(self, memory: dict[Address, Any], owns: Callable[[Address], bool], history: tuple[Any, ...]):
        self.memory = memory
        self.events: list[tuple[int, Any, Any]] = []
        self._owns, self._history, self._at = owns, history, 0
        self._alone, self._stopped = True, False
        self.clock = 0
        """What the code takes for the time; the process sets it."""

    def begin(self) -> None:
        """The set-up has ended: the others come in."""
        self._alone = False

    def load(self, address: Address) -> Any:
        if self._alone or self._owns(address):
            self._go_on()
            return self.memory.get(address, 0)
        return self._next(_LOAD, address)

    def store(self, address: Address, value: Any) -> None:
        self._go_on()
        if self._alone or self._owns(address):
            self.memory[address] = value
        if not self._alone:
            self.events.append((_STORE, address, value))

    def queue(self, address: Address, value: Any) -> None:
        """Have a GPU store it, behind what was queued before, at some later moment."""
        self._go_on()
        self.events.append((_QUEUE, address, value))

    def fence(self) -> None:
        self._go_on()
        if not self._alone:
            self.events.append((_FENCE, None, None))

    def ghost(self, address: Address, value: Any) -> None:
        """A store that no code of ours makes, seen as soon as all before it are: what the audit goes by."""
        self._go_on()
        self.events.append((_GHOST, address, value))

    def boundary(self, key: Hashable) -> None:
        """An operation has ended, and `key` is all that the process remembers of what it has loaded."""
        self._next(_BOUNDARY, key)

    def _go_on(self) -> None:
        if self._stopped:  # an exception handler of the code, on the way out
            raise Stop

    def _next(self, what: int, about: Any) -> Any:
        self._go_on()
        if self._at < len(self._history):
            self._at += 1
            self.events.clear()
            return self._history[self._at - 1]
        self.events.append((what, about, None))
        self._stopped = True
        raise Stop


@dataclass(frozen=True)
class Process:
    """One of those that share the memory."""

    name: str
    body: Callable[[Port], None]
    """Sets itself up, calls `Port.begin`, works."""
    owns: Callable[[Address], bool] = lambda address: False
    """The addresses that nobody else stores to: it knows what they hold."""
    maker: bool = False
    """Whether it is its set-up that makes the memory what it is at first."""
    mortal: bool = False
    """Whether it may be killed, wherever that makes a difference (one process in an exploration, or none)."""


class _Program:
    """The tree of what a process may do: `events[segment]` are those after a series of loads, up to the next one."""

    def __init__(self, process: Process, initial: dict[Address, Any]):
        self.process = process
        self.events: list[tuple[tuple[int, Any, Any], ...]] = []
        self._histories: list[tuple[Any, ...]] = []
        self._initial = dict.fromkeys(initial, 0) if process.maker else initial
        self._known: dict[Any, int] = {}
        self._run(())

    def _run(self, history: tuple[Any, ...]) -> int:
        port = Port(dict(self._initial), self.process.owns, history)
        try:
            self.process.body(port)
            port.events.append((_END, None, None))
        except Stop:
            pass
        except Wrong as e:
            port.events.append((_WRONG, str(e), None))
        self._histories.append(history)
        self.events.append(tuple(port.events))
        return len(self.events) - 1

    def after(self, segment: int, value: Any = None, *, boundary: Any = None) -> int:
        """Return the segment that follows when a load gives this value, or the one that follows a boundary: operations
        that come after the same one, knowing the same, are the same."""
        key = (segment, value) if boundary is None else ("boundary", boundary)
        if key not in self._known:
            self._known[key] = self._run((*self._histories[segment], value))
        return self._known[key]


@dataclass
class Found:
    """What an exploration came to."""

    states: int
    steps: int
    ends: int
    """Different memories in which all had ended."""
    wrong: str = ""
    """The invariant that does not hold; "": all do."""
    trace: tuple[str, ...] = ()
    """How it came to that."""

    def __str__(self) -> str:
        lines = "\n  ".join(self.trace)
        return f"{self.states} states, {self.steps} steps, {self.ends} ends; {self.wrong or 'all holds'}\n  {lines}"


class _Local(NamedTuple):
    """A process in a state."""

    segment: int
    at: int = 0
    """Its next event."""
    buffer: tuple[Any, ...] = ()
    """Its stores that the others have not seen: number of the address, value, whether it is a ghost (seen behind all
    before it), whether the processor is known to have come to it."""
    queued: tuple[Any, ...] = ()
    """What its GPU is to store."""
    old: tuple[Any, ...] = ()
    """By number of an address, values before the present one that it may still load."""
    alive: bool = True


class _Numbers:
    """Numbers of values that are compared often."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._known: dict[Any, int] = {}

    def of(self, value: Any) -> int:
        number = self._known.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


_State = tuple[int, ...]
"""Of the whole: the number of the memory's contents, then of each process's `_Local`."""
_Label = tuple[Any, ...]
"""A step: process, what it does, value, number of the address."""


class Explorer:
    """Explores what may become of some programs."""

    def __init__(self, processes: list[Process], initial: dict[Address, Any], memory: str = TSO,
                 audit: Callable[[dict[Address, Any]], None] = lambda memory: None):
        """`initial`: the memory at first. `audit` is given the memory when all have ended and everything stored is
        seen; it raises Wrong."""
        self._programs = [_Program(p, initial) for p in processes]
        self._weak, self._audit = memory == WEAK, audit
        self._addresses = {address: n for n, address in enumerate(initial)}
        self._initial = tuple(initial.values())
        self._memories, self._locals = _Numbers(), [_Numbers() for _ in processes]
        # Many global states have the same parts.
        self._choices, self._loads = functools.cache(self._choices), functools.cache(self._loads)
        self._written, self._aged = functools.cache(self._written), functools.cache(self._aged)

    def explore(self) -> Found:
        """Go everywhere, or to the first place where something is wrong."""
        found = Found(0, 0, 0)
        seen: set[_State] = set()
        ends: set[int] = set()
        # Depth first, with the way here on the stack: what is still to be tried at each place.
        stack: list[tuple[_Label, list[tuple[_Label, _State]]]] = []
        label: _Label = ()
        state = (self._memories.of(self._initial),
                 *(self._number(n, _Local(0)) for n in range(len(self._programs))))
        while True:
            if state not in seen:
                seen.add(state)
                try:
                    moves = self._moves(state)
                    if not moves and state[0] not in ends:
                        ends.add(state[0])
                        self._audit(dict(zip(self._addresses, self._memories.values[state[0]], strict=True)))
                except Wrong as e:
                    found.wrong = str(e)
                    found.trace = tuple(self._told(*way) for way in (*(way for way, _ in stack), label) if way)
                    break
                found.steps += len(moves)
                stack.append((label, moves))
            while stack and not stack[-1][1]:
                stack.pop()
            if not stack:
                break
            label, state = stack[-1][1].pop()
        found.states, found.ends = len(seen), len(ends)
        return found

    def _moves(self, state: _State) -> list[tuple[_Label, _State]]:
        """What may happen next. Raises Wrong where a process has found something."""
        moves = []
        for n, number in enumerate(state[1:], 1):
            address, choices = self._choices(n - 1, number)
            if address is not None:
                choices = self._loads(n - 1, number, address, self._memories.values[state[0]][address]) + choices
            for label, after, stored in choices:
                memory, others = state[0], (*state[1:n], after, *state[n + 1:])
                if stored is not None:
                    memory = self._written(state[0], *stored)
                    if self._weak and memory != state[0]:
                        before = self._memories.values[state[0]][stored[0]]
                        others = tuple(other if i == n - 1 else self._aged(i, other, stored[0], before)
                                       for i, other in enumerate(others))
                moves.append((label, (memory, *others)))
        return moves

    def _choices(self, n: int, number: int) -> tuple[int | None, list[tuple[_Label, int, Any]]]:
        """Return the address that a process in one of its states loads next, if any, and what may happen to it beside:
        the step, its state afterwards, and address and value that the others see then. Raises Wrong."""
        local: _Local = self._locals[n].values[number]
        process = self._programs[n].process
        what, about, _ = self._programs[n].events[local.segment][local.at]
        if local.alive and what == _WRONG:
            raise Wrong(f"{process.name}: {about}")
        choices: list[tuple[_Label, int, Any]] = []
        if local.alive and what != _END and process.mortal:
            choices += [((n, "is killed", None, None), self._number(n, after), None) for after in self._deaths(local)]
        for i, (to, value, ghost, _) in enumerate(local.buffer if self._weak else local.buffer[:1]):
            before = local.buffer[:i]
            if any(ghost or b[0] == to or b[2] for b in before):
                continue  # behind an earlier one
            left = (*((*b[:3], True) for b in before), *local.buffer[i + 1:])
            choices.append(((n, "is seen in", value, to), self._number(n, local._replace(buffer=left)), (to, value)))
        for to, value in local.queued[:1]:
            after = self._number(n, local._replace(queued=local.queued[1:]))
            choices.append(((n, "is stored by its GPU to", value, to), after, (to, value)))
        return self._address(about) if local.alive and what == _LOAD else None, choices

    def _loads(self, n: int, number: int, address: int, current: Any) -> list[tuple[_Label, int, Any]]:
        """What a load may give where memory holds `current`: its own last store that waits in the buffer, the present
        value, or an older one, after which no still older one is loaded."""
        local: _Local = self._locals[n].values[number]
        own = [entry[1] for entry in local.buffer if entry[0] == address]
        found = [(own[-1], local.old)] if own else [(current, tuple(o for o in local.old if o[0] != address))]
        for values in (values for known, values in local.old if known == address and not own):
            found += [(value, tuple((a, values[i:] if a == address else v) for a, v in local.old))
                      for i, value in enumerate(values) if value != current]
        made = tuple((*entry[:3], True) for entry in local.buffer)
        return [((n, "loads", value, address), self._number(n, _Local(self._programs[n].after(local.segment, value),
                                                                      0, made, local.queued, old)), None)
                for value, old in found]

    def _written(self, memory: int, to: int, value: Any) -> int:
        contents = self._memories.values[memory]
        return self._memories.of((*contents[:to], value, *contents[to + 1:]))

    def _aged(self, n: int, number: int, to: int, before: Any) -> int:
        """Return the state of a process that may still load a value that was replaced."""
        local: _Local = self._locals[n].values[number]
        if not local.alive or self._programs[n].events[local.segment][local.at][0] == _END:
            return number
        known = dict(local.old)
        known[to] = (*known.get(to, ()), before)
        return self._number(n, local._replace(old=tuple(sorted(known.items()))))

    def _deaths(self, local: _Local) -> list[_Local]:
        """The process is killed: what it had stored by then is seen sooner or later, the rest it never stored. Its
        GPU stops with it: what it stored after that it may as well have stored just before."""
        buffer = local.buffer
        made = max((i + 1 for i, entry in enumerate(buffer) if entry[3]), default=0)
        # Where stores are seen in order, one that is not seen when it is killed may as well never have been made.
        kept = range(made, len(buffer) + 1) if self._weak else (made,)
        return [_Local(local.segment, local.at, buffer[:most], alive=False) for most in kept]

    def _number(self, n: int, local: _Local) -> int:
        """Return the number of a process's state past all steps that no other process observes: at a load, a fence
        that waits, or its end."""
        segment, at, buffer, queued, old, alive = local
        events = self._programs[n].events
        while alive:
            what, about, value = events[segment][at]
            at += 1
            if what in (_STORE, _GHOST):
                buffer = (*buffer, (self._address(about), value, what == _GHOST, False))
            elif what == _QUEUE:
                queued = (*queued, (self._address(about), value))
            elif what == _FENCE and not buffer:
                old = ()
            elif what == _BOUNDARY:
                segment, at = self._programs[n].after(segment, boundary=about), 0
            else:
                at -= 1
                old = () if what == _END else old
                break
        return self._locals[n].of(_Local(segment, at, buffer, queued, old, alive))

    def _address(self, address: Address) -> int:
        if address not in self._addresses:
            raise Wrong(f"{address} is no address of this scenario: name it in `initial`")
        return self._addresses[address]

    def _told(self, n: int, what: str, value: Any, number: int | None) -> str:
        """A step in words."""
        name = self._programs[n].process.name
        if number is None:
            return f"{name} {what}"
        address = list(self._addresses)[number]
        return f"{name} loads {value!r} from {address}" if what == "loads" else f"{name}'s {value!r} {what} {address}"
