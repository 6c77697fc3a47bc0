"""Every interleaving of a few processes over shared words, each of them real code of ours.

A process is a function that is given a `Port`, its only access to the memory. What it does next depends on nothing but
the values that it has loaded so far: so its code is run once for each series of such values, up to the load that comes
next, and remembered as a tree (`_Program`). Interleavings are then explored on these trees alone, as far as any process
can go, and with the death of some of them (SIGKILL) wherever it makes a difference. States that were met before are
passed over: each contents of the memory and each state of a process is stored once and has a number, and the state of
the whole is these numbers.

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
_Label = tuple[Any, ...]
"""An event: process number, action, value, address number."""
_Move = tuple[_Label, int]
"""An event with the global state that follows it, or with the change to that state.

A state of the whole is one number: of the memory's contents in the lowest _BITS, then of each process's state among
those that it has been in. What a process does adds the same to it wherever it does it.
"""
_BITS = 24
_MASK = (1 << _BITS) - 1


class _Choices:
    """The choices of a process in one of its states, computed once: there are many times as many global states."""

    def __init__(self, state: _ProcessState):
        self.state = state
        self.wrong = ""
        self.address = -1
        """Address number of the next load; -1: no load."""
        self.loads: dict[Any, list[_Move]] = {}
        """By the value in memory: each value that it may get."""
        self.deaths: list[_Move] = []
        self.stores: list[_Move] = []
        """Each store of its that the others may see next, without what that changes in the memory."""
        self.aged: dict[tuple[int, Any], int] = {}
        """By address and earlier value: what it adds that another process has stored a new one there (weak memory)."""
        self.ended = False


class Explorer:
    """Explores what may become of some programs."""

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
        self._memories: list[tuple[Any, ...]] = []
        self._memory_numbers: dict[tuple[Any, ...], int] = {}
        self._written: dict[tuple[int, int, Any], int] = {}
        """By the memory before, address and value: what a store of it adds to the state."""
        self._local_numbers: list[dict[_ProcessState, int]] = [{} for _ in processes]
        self._local_states: list[list[_ProcessState]] = [[] for _ in processes]
        self._choices: list[list[_Choices | None]] = [[] for _ in processes]

    def explore(self) -> Found:
        """Go everywhere, or to the first place where something is wrong."""
        found = Found(0, 0, 0)
        seen: set[int] = set()
        ends: set[int] = set()
        # Depth first, with the way here on the stack: what is still to be tried at each place.
        stack: list[tuple[_Label, list[_Move]]] = []
        label: _Label = ()
        state = self._start()
        while True:
            if state not in seen:
                seen.add(state)
                if len(seen) > self._most:
                    raise TooMany(f"more than {self._most} states")
                try:
                    moves = self._moves(state)
                    if not moves and (memory := state & _MASK) not in ends:
                        ends.add(memory)
                        self._audit({a: self._memories[memory][n] for a, n in self._numbers.items()})
                except Wrong as e:
                    found.wrong = str(e)
                    found.trace = tuple(self._told(way) for way in (*(way for way, _ in stack), label) if way)
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

    def _start(self) -> int:
        self._numbers = {address: n for n, address in enumerate(self._initial)}
        return self._remembered(tuple(self._initial.values())) + sum(
            self._local(n, (p.first, 0, (), (), (), True)) << _BITS * (n + 1) for n, p in enumerate(self._programs))

    def _number(self, address: Address) -> int:
        found = self._numbers.get(address)
        if found is None:
            raise Wrong(f"{address} is no address of this scenario: name it in `initial`")
        return found

    def _remembered(self, memory: tuple[Any, ...]) -> int:
        """The number of these contents of the memory."""
        found = self._memory_numbers.setdefault(memory, len(self._memories))
        if found == len(self._memories):
            self._memories.append(memory)
        return found

    def _local(self, n: int, state: _ProcessState) -> int:
        """Return the number of a process's state after all its steps that no other process can observe."""
        state = self._advanced(n, state)
        numbers = self._local_numbers[n]
        found = numbers.get(state)
        if found is None:
            found = numbers[state] = len(numbers)
            if found > _MASK:
                raise TooMany(f"more than {_MASK} states of one process")
            self._local_states[n].append(state)
            self._choices[n].append(None)
        return found

    def _added(self, n: int, before: int, after: _ProcessState) -> int:
        """Return the change to the global state when a process goes from one of its states to another."""
        return (self._local(n, after) - before) << _BITS * (n + 1)

    def _advanced(self, number: int, state: _ProcessState) -> _ProcessState:
        """Advance the process past steps that no other process observes: to a load, a fence that waits, or its end."""
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

    def _chosen(self, n: int, number: int) -> _Choices:
        """Return the choices of a process in a state, without loads, which depend on memory."""
        state = self._local_states[n][number]
        segment, at, buffer, queued, old, alive = state
        program, made = self._programs[n], _Choices(state)
        what, about, _ = program.segments[segment].events[at]
        made.ended = not alive or what == _END
        if alive and what == _WRONG:
            made.wrong = f"{program.process.name}: {about}"
        elif alive and what == _LOAD:
            made.address = self._number(about)
        if not made.ended and program.process.mortal:
            made.deaths = [((n, _KILLED, None, None), self._added(n, number, after)) for after in self._deaths(state)]
        for i in range(len(buffer)) if self._weak else range(len(buffer[:1])):
            to, value, ghost, _ = buffer[i]
            before = buffer[:i]
            if before:
                if ghost or any(b[0] == to or b[2] for b in before):
                    continue  # behind an earlier one
                before = tuple((*b[:3], True) for b in before)
            moved = (segment, at, before + buffer[i + 1:], queued, old, alive)
            made.stores.append(((n, _SEEN, value, to), self._added(n, number, moved)))
        if queued:
            to, value = queued[0]
            moved = (segment, at, buffer, queued[1:], old, alive)
            made.stores.append(((n, _GPU, value, to), self._added(n, number, moved)))
        self._choices[n][number] = made
        return made

    def _moves(self, state: int) -> list[_Move]:
        """What may happen next. Raises Wrong where a process has found something."""
        memory = self._memories[state & _MASK]
        moves: list[_Move] = []
        rest = state
        for n, choices in enumerate(self._choices):
            rest >>= _BITS
            can = choices[rest & _MASK] or self._chosen(n, rest & _MASK)
            if can.wrong:
                raise Wrong(can.wrong)
            if can.address >= 0:
                value = memory[can.address]
                loads = can.loads.get(value)
                if loads is None:
                    loads = can.loads[value] = self._loads(n, rest & _MASK, can, value)
                moves += [(label, state + more) for label, more in loads]
            if can.deaths:
                moves += [(label, state + more) for label, more in can.deaths]
            for label, more in can.stores:
                moves.append((label, state + more + self._stored(state, n, label[3], label[2])))
        return moves

    def _loads(self, n: int, number: int, can: _Choices, current: Any) -> list[_Move]:
        """Return the values a load may return where memory holds `current`."""
        segment, _, buffer, queued, old, _ = can.state
        made = tuple((to, value, ghost, True) for to, value, ghost, _ in buffer)
        return [((n, "loads", value, can.address),
                 self._added(n, number, (self._programs[n].after(segment, value), 0, made, queued, rest, True)))
                for value, rest in self._values(current, buffer, old, can.address)]

    def _values(self, current: Any, buffer: tuple[Any, ...], old: tuple[Any, ...],
                number: int) -> list[tuple[Any, tuple[Any, ...]]]:
        """What a load may give, each with what older values may be loaded from then on."""
        own = [entry[1] for entry in buffer if entry[0] == number]
        if own:
            return [(own[-1], old)]
        found = [(current, tuple(o for o in old if o[0] != number))]
        for address, values in old:
            if address == number:
                found += [(value, tuple((a, values[i:] if a == number else v) for a, v in old))
                          for i, value in enumerate(values) if value != current]
        return found

    def _stored(self, state: int, n: int, to: int, value: Any) -> int:
        """Return the change to the state when a value becomes visible to all programs."""
        memory = state & _MASK
        added = self._written.get((memory, to, value))
        if added is None:
            contents = self._memories[memory]
            added = self._remembered((*contents[:to], value, *contents[to + 1:])) - memory
            self._written[memory, to, value] = added
        if self._weak and added:
            before = self._memories[memory][to]
            for i in range(len(self._programs)):
                state >>= _BITS
                if i != n:
                    added += self._aged(i, state & _MASK, to, before)
        return added

    def _aged(self, n: int, number: int, to: int, before: Any) -> int:
        """Return the change to the state that lets a process still load a value that was replaced."""
        can = self._choices[n][number] or self._chosen(n, number)
        if can.ended:
            return 0
        found = can.aged.get((to, before))
        if found is None:
            segment, at, buffer, queued, old, alive = can.state
            known = dict(old)
            known[to] = (*known.get(to, ()), before)
            found = self._added(n, number, (segment, at, buffer, queued, tuple(sorted(known.items())), alive))
            can.aged[to, before] = found
        return found

    def _deaths(self, state: _ProcessState) -> list[_ProcessState]:
        """The process is killed: what it had stored by then is seen sooner or later, the rest it never stored. Its
        GPU stops with it: what it stored after that it may as well have stored just before."""
        segment, at, buffer, _, _, _ = state
        made = max((i + 1 for i, entry in enumerate(buffer) if entry[3]), default=0)
        # Where stores are seen in order, one that is not seen when it is killed may as well never have been made.
        kept = range(made, len(buffer) + 1) if self._weak else (made,)
        return [(segment, at, buffer[:most], (), (), False) for most in kept]

    def _told(self, move: tuple[Any, ...]) -> str:
        """A move in words."""
        n, what, value, number = move
        name = self._programs[n].process.name
        if what == _KILLED:
            return f"{name} {what}"
        address = next(a for a, found in self._numbers.items() if found == number)
        return f"{name} loads {value!r} from {address}" if what == "loads" else f"{name}'s {value!r} {what} {address}"
