"""Texts, frames and stacks, each kept once."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from splatview_viewer.core.errors import FileError
from splatview_viewer.kinds.snapshot.model import NO_STACK, Stacks, Texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FEW = 3
"""How many stacks are compared one by one; of more, those are chosen that have the same frame at one place."""
HELD = 1 << 18
"""How many stacks and frames are known by identity; a file that shares none would hold all of them."""
MAX_LINE = 2**31 - 1


class _Branch:
    """Known stacks of one length, chosen by the identity of the frame at one place."""

    __slots__ = ("next", "place")

    def __init__(self, place: int) -> None:
        self.place = place
        self.next: dict[int, _Branch | list[tuple[list[Any], int]]] = {}


class Interner:
    """Gives the same number to equal texts, frames and stacks.

    PyTorch's files share the dictionaries of frames, but each entry has a list of its own: a tree of choices by the
    identity of a frame leads to few lists, which are compared; that mostly looks at identities too.
    """

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._frames: dict[tuple[int, int, int], int] = {}
        self._stacks: dict[bytes, int] = {}
        self._known: dict[int, tuple[dict[Any, Any], int]] = {}  # by identity; holding what it knows keeps that valid
        self._trees: dict[int, _Branch | list[tuple[list[Any], int]]] = {}
        self._leaves = 0

    def text(self, text: str) -> int:
        """The number of a text."""
        return self._texts.setdefault(text, len(self._texts))

    def stack(self, frames: list[int]) -> int:
        """The number of a stack of frames with these numbers."""
        return self._stacks.setdefault(array("i", frames).tobytes(), len(self._stacks))

    def stacks(self, lists: Sequence[Any], where: Callable[[int], str]) -> np.ndarray:
        """The numbers int32 (N,) of stacks as a file holds them: lists of dictionaries; None: no stack.

        Args:
            where: what to call the i-th of them in an error.

        Raises:
            FileError: no stack.
        """
        ids = list(map(id, lists))
        numbers: dict[int, int] = {}
        trees = self._trees
        for i, (identity, frames) in enumerate(zip(ids, lists, strict=True)):
            if identity in numbers:
                continue
            if type(frames) is not list or not frames:
                numbers[identity] = self._odd(frames, where, i)
                continue
            node = trees.get(len(frames))
            while type(node) is _Branch:
                node = node.next.get(id(frames[node.place]))
            for known, of_known in node or ():  # type: ignore[union-attr]
                if known == frames:
                    number = of_known
                    break
            else:
                number = self._new(frames, where, i)
            numbers[identity] = number
        return np.fromiter(map(numbers.__getitem__, ids), np.int32, len(ids))

    def _odd(self, frames: Any, where: Callable[[int], str], i: int) -> int:
        if frames is None or frames in ((), []):
            return NO_STACK
        if type(frames) is not tuple:
            raise FileError(f"{where(i)} is {shown(frames)}, not a list of frames")
        return self._new(list(frames), where, i)

    def _new(self, frames: list[Any], where: Callable[[int], str], i: int) -> int:
        """The number of a stack that is not known by identity."""
        known = self._known
        found = [known.get(id(f)) for f in frames]
        number = self.stack([self.frame(frames[k], lambda k=k: f"{where(i)}[{k}]") if f is None else f[1]
                             for k, f in enumerate(found)])
        if self._leaves >= HELD:
            self._trees.clear()
            self._leaves = 0
        self._leaves += 1
        self._plant(list(frames), number)
        return number

    def _plant(self, frames: list[Any], number: int) -> None:
        """Make a stack one that is found by identity."""
        nodes: Any = self._trees
        key = len(frames)
        while type(node := nodes.get(key)) is _Branch:
            nodes, key = node.next, id(frames[node.place])
        leaf: list[tuple[list[Any], int]] = nodes.setdefault(key, [])
        leaf.append((frames, number))
        if len(leaf) <= FEW:
            return
        kinds = [len(set(map(id, place))) for place in zip(*(known for known, _ in leaf), strict=True)]
        most = max(kinds)
        if most == 1:  # all the same frames: no place tells them apart, and comparing finds the first
            leaf.pop()
            return
        branch = _Branch(kinds.index(most))
        for known, n in leaf:
            branch.next.setdefault(id(known[branch.place]), []).append((known, n))  # type: ignore[union-attr]
        nodes[key] = branch

    def frame(self, frame: Any, where: Callable[[], str]) -> int:
        """The number of a frame as a file holds it. `where`: what to call it in an error. Raises FileError."""
        def fault(what: str) -> FileError:
            return FileError(f"{where()}{what}")

        if type(frame) is not dict:
            raise fault(f" is {shown(frame)}, not a mapping with filename, line and name")
        file, line, name = frame.get("filename", ""), frame.get("line", 0), frame.get("name", "")
        if type(file) is not str or type(name) is not str:
            key, value = ("filename", file) if type(file) is not str else ("name", name)
            raise fault(f"[{key!r}] is {shown(value)}, not a text")
        if type(line) is not int:
            raise fault(f"['line'] is {shown(line)}, not a whole number")
        if not -MAX_LINE <= line <= MAX_LINE:
            line = 0  # what C++ frames say where nothing is known
        number = self._frames.setdefault((self.text(file), line, self.text(name)), len(self._frames))
        if len(self._known) >= HELD:
            self._known.clear()
        self._known[id(frame)] = (frame, number)
        return number

    def finish(self) -> tuple[Texts, Stacks]:
        """All of it as columns."""
        encoded = [t.encode("utf-8", "replace") for t in self._texts]
        blob = np.frombuffer(b"".join(encoded), np.uint8)
        start = _starts([len(t) for t in encoded])
        frames = np.array(list(self._frames), np.int32).reshape(-1, 3)
        stacks = list(self._stacks)
        inner = np.frombuffer(b"".join(stacks), np.int32)
        file, line, name = (np.ascontiguousarray(frames[:, i]) for i in range(3))
        return Texts(blob, start), Stacks(file, line, name, _starts([len(s) // 4 for s in stacks]), inner)


def shown(value: Any) -> str:
    """A value in an error: short, and never its whole inside."""
    if value is None or isinstance(value, (bool, float)):
        return repr(value)
    if isinstance(value, int):
        return f"{value:#x}" if value.bit_length() > 64 and value.bit_length() < 200 else (
            str(value) if value.bit_length() <= 64 else "a very large number")
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else value[:40] + "...")
    return f"a {type(value).__name__}"


def _starts(lengths: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))]).astype(np.int64)
