"""JSON that is well-formed and says something odd: what damage to its bytes hardly ever makes."""

from __future__ import annotations

import copy
import json
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63) - 1, 10**400, -(10**400), 1e308, -1e308, 5e-324,
    float("nan"), float("inf"), -float("inf"), "", "x", "\ud800", "a\0b", "NaN", "1", "9" * 5000, "../../etc/passwd",
    "\u202e", "x" * 20_000, [], {}, [[]], [None], [[[[]]]], {"": None}, [0] * 5000, [[1, 2], [3]], ["a", "b", "c"],
    [10**400] * 16, [float("nan")] * 16, [1e308] * 16, [[10**400] * 4] * 4, {"0": 1}, {"camera": 5}, {"\ud800": 1},
]


def odd(data: bytes, documents: Sequence[Any]) -> str:
    """One of the documents with one to three of its values replaced, doubled, left out or given another name. The same
    bytes always make the same."""
    luck = random.Random(data)
    made = json.loads(json.dumps(luck.choice(documents)))
    for _ in range(luck.randint(1, 3)):
        places = list(_places(made))
        if not places:
            break
        holder, key = luck.choice(places)
        what = luck.randrange(6)
        if what == 0:
            del holder[key]
        elif what == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif what == 1:
            holder[luck.choice(["", "x", "\ud800", "0", "-1", "1" * 400, "a" * 3000])] = holder.pop(key)
        else:
            holder[key] = copy.deepcopy(luck.choice(ODD))
    return json.dumps(made)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Each value within another: what holds it, and where."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 2000:
        holder = waiting.pop()
        items = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, inner in items:
            found.append((holder, key))
            waiting.append(inner)
    return found
