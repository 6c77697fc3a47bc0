"""Names of classes: from a file, from a network's metadata, or COCO's."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from splatview.camera.detectors.base import DetectorError, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_BYTES = 1 << 20
_MOST_NAMES = 100_000
_NOTHING = {"background", "__background__", "bg", "???", "_", "unlabeled"}
"""What lists call class 0 where it means: nothing."""
_COCO = """person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, -,
stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, -, backpack,
umbrella, -, -, handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove,
skateboard, surfboard, tennis racket, bottle, -, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich,
orange, broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, potted plant, bed, -, dining table, -, -, toilet,
-, tv, laptop, mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, -, book, clock, vase,
scissors, teddy bear, hair drier, toothbrush"""
"""Numbered from 1; ten numbers are not in use."""
_GAPS = {number: name.strip() for number, name in enumerate(_COCO.split(","), 1) if name.strip() != "-"}


class Labels:
    """Names of classes by number."""

    def __init__(self, names: Mapping[int, str], counted: bool = False) -> None:
        """`counted`: the names came one after the other, without numbers, so that the first is number 0 or 1."""
        self._names = {number: printable(name) for number, name in names.items()}
        self._counted = counted and names.get(0, "").strip().lower() not in _NOTHING

    def __len__(self) -> int:
        return len(self._names)

    def text(self, number: int, first: int = 0) -> str:
        """The name of a class. `first`: the lowest number that the network gives to one."""
        name = self._names.get(number - first if self._counted else number)
        return name if name else f"class {number}"


def coco(gaps: bool = False) -> Labels:
    """COCO's 80 names one after the other, or with the gaps that their numbers in the data set have."""
    return Labels(_GAPS) if gaps else Labels(dict(enumerate(_GAPS.values())), counted=True)


def read(path: str) -> Labels:
    """Names from a file: one on each line, a list or a mapping in JSON, or `names` as YOLO's YAML files have them.

    Raises DetectorError.
    """
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as e:
        raise DetectorError(f"labels {path!r}: {e.strerror}; give a text file with a name on each line, or coco") from e
    if len(data) > _MOST_BYTES:
        raise DetectorError(f"labels {path!r}: more than {_MOST_BYTES >> 20} MiB; give a text file with a name on "
                            "each line")
    try:
        names = _parsed(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as e:
        raise DetectorError(f"labels {path!r}: {e}; legal are a name on each line, JSON, and YOLO's YAML") from e
    if not len(names):
        raise DetectorError(f"labels {path!r}: there is no name in it")
    return names


def from_metadata(text: str | None) -> Labels | None:
    """Names as networks carry them in their metadata, the entry "names": a mapping or a list, as Python or JSON
    writes it. None if there are none that can be read."""
    if not text or len(text) > _MOST_BYTES:
        return None
    for read_one in (json.loads, ast.literal_eval):
        try:
            return _numbered(read_one(text))
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    return None


def _parsed(text: str) -> Labels:
    if text.lstrip()[:1] in ("{", "["):
        return _numbered(json.loads(text))
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for i, line in enumerate(lines):
        if match := re.fullmatch(r"names:\s*(.*)", line):
            return _yaml(match[1].strip(), lines[i + 1:])
    return _numbered([line.strip() for line in lines])


def _yaml(inline: str, below: list[str]) -> Labels:
    """What follows `names:` in one of YOLO's YAML files."""
    if inline:
        if (inline[0], inline[-1]) not in (("[", "]"), ("{", "}")):
            raise ValueError(f"names are {inline[:40]!r}, no list or mapping that ends on its line")
        found = [_unquoted(part) for part in re.findall(r"""(?:"[^"]*"|'[^']*'|[^,])+""", inline[1:-1])]
        if inline[0] == "[":
            return _numbered(found)
        below = found
    entries = []
    for line in below:
        entry = line.strip()
        if not inline and entry == line and not entry.startswith("-"):
            break  # the next key
        entries.append(entry)
    if all(entry.startswith("- ") for entry in entries):
        return _numbered([_unquoted(entry[2:]) for entry in entries])
    pairs = (entry.partition(":") for entry in entries)
    return _numbered({_unquoted(number): _unquoted(name) for number, _, name in pairs})


def _unquoted(text: str) -> str:
    text = text.split(" #")[0].strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _numbered(value: Any) -> Labels:
    """A list of names, or a mapping of numbers to names. Raises ValueError."""
    if not isinstance(value, (list, tuple, dict)) or len(value) > _MOST_NAMES:
        raise ValueError(f"names are a {type(value).__name__}, not a list or mapping of at most {_MOST_NAMES}")
    if isinstance(value, dict):
        return Labels({int(number): str(name) for number, name in value.items()})
    return Labels({i: str(name) for i, name in enumerate(value)}, counted=True)
