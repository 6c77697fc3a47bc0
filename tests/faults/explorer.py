"""Every interleaving of a few processes over shared words, each of them real code of ours.

A process is a function that is given a `Port`, its only access to the memory. What it does next depends on nothing but
the values that it has loaded so far: so its code is run once for each series of such values, up to the load that comes
next, and remembered as a tree (`_Program`). Interleavings are then explored on these trees alone: states that were
met before are passed over (told apart by a hash of 64 bits), as far as any process can go, and with the death of some
of them (SIGKILL) wherever it makes a difference.

Two memories:
- `TSO`, as x86: stores wait in a buffer, in order, until they are seen; a full fence waits for them.
- `WEAK`, as ARM with its stores seen by all others at once: stores between two fences are seen in any order, but for
  those to one word; a load may have been made at any moment since the last fence, but two of one word in order.
  Control dependencies, which order more on real processors, are not relied on.

Bounds are what the scenarios say: how many publishes and reads. Within them nothing is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

TSO, WEAK = "tso", "weak"
_STORE, _QUEUE, _FENCE, _GHOST, _LOAD, _BOUNDARY, _WRONG, _END = range(8)
_SEEN, _GPU, _KILLED = "is seen in", "is stored by its GPU to", "is killed"
Address = tuple[Any, ...]


class Wrong(Exception):  # noqa: N818 (what is wrong, said by a process or the audit)
    """An invariant does not hold."""


class _Stop(BaseException):
    """The code has come as far as is known."""


class Port:
    """A process's access to the memory. While it sets itself up, it is alone and stores at once."""

    def __init__(self, memory: dict[Address, Any], owns: Callable[[Address], bool], history: tuple[Any, ...]):
        self.memory = memory
        self.events: list[tuple[int, Any, Any]] = []
        self._owns = owns
        self._history = history
        self._at = 0
        self._alone = True
        self.clock = 0
        """What the code takes for the time; the process sets it."""
        self._stopped = False

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
            raise _Stop

    def _next(self, what: int, about: Any) -> Any:
        self._go_on()
        if self._at < len(self._history):
            self._at += 1
            self.events.clear()
            return self._history[self._at - 1]
        self.events.append((what, about, None))
        self._stopped = True
        raise _Stop


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


@dataclass
class _Segment:
    """What a process does after a series of loaded values, up to the next load."""

    history: tuple[Any, ...]
    events: tuple[tuple[int, Any, Any], ...]
    following: dict[Any, int] = field(default_factory=dict)


class _Program:
    """The tree of what a process may do."""

    def __init__(self, process: Process, initial: dict[Address, Any]):
        self.process = process
        self.segments: list[_Segment] = []
        self._initial = dict.fromkeys(initial, 0) if process.maker else initial
        self._known: dict[Any, int] = {}
        """By the key of a boundary: operations that come after the same one, knowing the same, are the same."""
        self.first = self._run(())

    def _run(self, history: tuple[Any, ...]) -> int:
        port = Port(dict(self._initial), self.process.owns, history)
        try:
            self.process.body(port)
            port.events.append((_END, None, None))
        except _Stop:
            pass
        except Wrong as e:
            port.events.append((_WRONG, str(e), None))
        self.segments.append(_Segment(history, tuple(port.events)))
        return len(self.segments) - 1

    def after(self, segment: int, value: Any) -> int:
        """The segment that follows when a load gives this value."""
        found = self.segments[segment].following.get(value)
        if found is None:
            found = self._run((*self.segments[segment].history, value))
            self.segments[segment].following[value] = found
        return found

    def beyond(self, segment: int, key: Any) -> int:
        """The segment that follows a boundary."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._run((*self.segments[segment].history, None))
        return found


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


class TooMany(Exception):  # noqa: N818
    """The bound on states was met: nothing is proven."""


# A process in a state: segment, next event, buffer of stores, queue of its GPU, old values that it may still load,
# alive. An entry of a buffer: number of the address, value, whether it is a note (seen behind all before it), whether
# the processor is known to have come to it.
_ProcessState = tuple[int, int, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], bool]
_State = tuple[tuple[Any, ...], tuple[_ProcessState, ...]]
_Move = tuple[tuple[Any, ...], _State]
"""What happens (the process's number, what it does, value, number of the address), and what comes of it."""


class Explorer:
    """Explores what may become of some processes."""

    def __init__(self, processes: list[Process], initial: dict[Address, Any], memory: str = TSO,
                 audit: Callable[[dict[Address, Any]], None] = lambda memory: None, most: int = 2_000_000):
        """`initial`: the memory at first, 0 elsewhere. `audit` is given the memory when all have ended and everything
        stored is seen; it raises Wrong. `most`: states, beyond which `explore` raises TooMany."""
        self._programs = [_Program(p, initial) for p in processes]
        self._weak = memory == WEAK
        self._audit = audit
        self._most = most
        self._numbers: dict[Address, int] = {}
        self._initial = initial

    def explore(self) -> Found:
        """Go everywhere, or to the first place where something is wrong."""
        found = Found(0, 0, 0)
        seen: set[int] = set()
        ends: set[int] = set()
        start = self._start()
        # Depth first, with the way here on the stack: what is still to be tried at each place.
        stack: list[tuple[tuple[Any, ...], list[_Move]]] = []
        label: tuple[Any, ...] = ()
        state: _State | None = start
        while True:
            if state is not None and (mark := hash(state)) not in seen:
                seen.add(mark)
                if len(seen) > self._most:
                    raise TooMany(f"more than {self._most} states")
                try:
                    moves = self._moves(state)
                    if not moves and (end := hash(state[0])) not in ends:
                        ends.add(end)
                        self._audit({a: state[0][n] for a, n in self._numbers.items()})
                except Wrong as e:
                    found.wrong = str(e)
                    found.trace = tuple(self._told(way) for way in (*(way for way, _ in stack), label) if way)
                    break
                found.steps += len(moves)
                stack.append((label, moves))
            state = None
            while stack and not stack[-1][1]:
                stack.pop()
            if not stack:
                break
            label, state = stack[-1][1].pop()
        found.states, found.ends = len(seen), len(ends)
        return found

    def _start(self) -> _State:
        memory = [*self._initial.values()]
        self._numbers = {address: n for n, address in enumerate(self._initial)}
        return self._settled(tuple(memory), tuple((p.first, 0, (), (), (), True) for p in self._programs))

    def _number(self, address: Address) -> int:
        found = self._numbers.get(address)
        if found is None:
            raise Wrong(f"{address} is no address of this scenario: name it in `initial`")
        return found

    def _settled(self, memory: tuple[Any, ...], processes: tuple[_ProcessState, ...]) -> _State:
        return memory, tuple(self._advanced(n, p) for n, p in enumerate(processes))

    def _advanced(self, number: int, state: _ProcessState) -> _ProcessState:
        """The process gone on with all that concerns nobody else: to a load, a fence that waits, or its end."""
        segment, at, buffer, queued, old, alive = state
        if not alive:
            return state
        program = self._programs[number]
        events = program.segments[segment].events
        while True:
            what, about, value = events[at]
            if what == _STORE or what == _GHOST:
                buffer = (*buffer, (self._number(about), value, what == _GHOST, False))
            elif what == _QUEUE:
                queued = (*queued, (self._number(about), value))
            elif what == _FENCE:
                if buffer:
                    break
                old = ()
            elif what == _BOUNDARY:
                segment, at = program.beyond(segment, about), 0
                events = program.segments[segment].events
                continue
            else:
                break
            at += 1
        if events[at][0] == _END:
            old = ()
        return segment, at, buffer, queued, old, True

    def _moves(self, state: _State) -> list[_Move]:
        """What may happen next. Raises Wrong where a process has found something."""
        memory, processes = state
        moves: list[_Move] = []
        for n, process in enumerate(processes):
            segment, at, buffer, queued, old, alive = process
            program = self._programs[n]
            if alive:
                what, about, _ = program.segments[segment].events[at]
                if what == _WRONG:
                    raise Wrong(f"{program.process.name}: {about}")
                if what == _LOAD:
                    number = self._number(about)
                    made = tuple((to, value, ghost, True) for to, value, ghost, _ in buffer)
                    for value, rest in self._values(memory, buffer, old, number):
                        moved = (program.after(segment, value), 0, made, queued, rest, True)
                        moves.append(((n, "loads", value, number), self._with(memory, processes, n, moved)))
                if what != _END and program.process.mortal:
                    moves += self._deaths(state, n)
            for i in range(len(buffer)) if self._weak else range(len(buffer[:1])):
                to, value, ghost, _ = buffer[i]
                before = buffer[:i]
                if before:
                    if ghost or any(b[0] == to or b[2] for b in before):
                        continue  # behind an earlier one
                    before = tuple((*b[:3], True) for b in before)
                moved = (segment, at, before + buffer[i + 1:], queued, old, alive)
                moves.append(((n, _SEEN, value, to), self._stored(state, n, moved, to, value)))
            if queued:
                to, value = queued[0]
                moved = (segment, at, buffer, queued[1:], old, alive)
                moves.append(((n, _GPU, value, to), self._stored(state, n, moved, to, value)))
        return moves

    def _values(self, memory: tuple[Any, ...], buffer: tuple[Any, ...], old: tuple[Any, ...],
                number: int) -> list[tuple[Any, tuple[Any, ...]]]:
        """What a load may give, each with what older values may be loaded from then on."""
        own = [entry[1] for entry in buffer if entry[0] == number]
        if own:
            return [(own[-1], old)]
        found = [(memory[number], tuple(o for o in old if o[0] != number))]
        for address, values in old:
            if address == number:
                found += [(value, tuple((a, values[i:] if a == number else v) for a, v in old))
                          for i, value in enumerate(values) if value != memory[number]]
        return found

    def _with(self, memory: tuple[Any, ...], processes: tuple[_ProcessState, ...], n: int,
              moved: _ProcessState) -> _State:
        return memory, (*processes[:n], self._advanced(n, moved), *processes[n + 1:])

    def _stored(self, state: _State, n: int, moved: _ProcessState, to: int, value: Any) -> _State:
        """Everybody sees a value from now on."""
        memory, processes = state
        before = memory[to]
        memory = (*memory[:to], value, *memory[to + 1:])
        others = [*processes]
        if self._weak and value != before:
            for i, (segment, at, buffer, queued, old, alive) in enumerate(processes):
                if i != n and alive and self._programs[i].segments[segment].events[at][0] != _END:
                    known = dict(old)
                    known[to] = (*known.get(to, ()), before)
                    others[i] = segment, at, buffer, queued, tuple(sorted(known.items())), alive
        others[n] = self._advanced(n, moved)
        return memory, tuple(others)

    def _deaths(self, state: _State, n: int) -> list[_Move]:
        """The process is killed: what it had stored by then is seen sooner or later, the rest it never stored. Its
        GPU stops with it: what it stored after that it may as well have stored just before."""
        memory, processes = state
        segment, at, buffer, _, _, _ = processes[n]
        made = max((i + 1 for i, entry in enumerate(buffer) if entry[3]), default=0)
        # Where stores are seen in order, one that is not seen when it is killed may as well never have been made.
        kept = range(made, len(buffer) + 1) if self._weak else (made,)
        return [((n, _KILLED, None, None), (memory, (
            *processes[:n], (segment, at, buffer[:most], (), (), False), *processes[n + 1:]))) for most in kept]

    def _told(self, move: tuple[Any, ...]) -> str:
        """A move in words."""
        n, what, value, number = move
        name = self._programs[n].process.name
        if what == _KILLED:
            return f"{name} {what}"
        address = next(a for a, found in self._numbers.items() if found == number)
        return f"{name} loads {value!r} from {address}" if what == "loads" else f"{name}'s {value!r} {what} {address}"
