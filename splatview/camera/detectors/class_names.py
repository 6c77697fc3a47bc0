"""Read the names of a network's classes: from its metadata, a file, or COCO's."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from splatview.camera.detectors import DetectorError
from splatview_ipc.system.terminal import printable

MAX_NAME_LENGTH = 100
_MAX_ENTRY_LENGTH = 1 << 20
"""Maximum length of the metadata entry with names."""
_MAX_FILE_BYTES = 1 << 22
"""Maximum size of a file with names."""
_JOINERS = "\u200c\u200d"
_YAML_NAMES = re.compile(
    r"^names:[ \t]*(?P<inline>[\[{][^\]}]*[\]}])?[^\n]*\n"
    r"(?P<block>(?:[ \t]*(?:-|\d+[ \t]*:)[^\n]*\n|[ \t]*(?:#[^\n]*)?\n)*)",
    re.MULTILINE,
)
"""The names in Ultralytics' data.yaml: a list or mapping in one piece, or an entry a
line."""
_YAML_ITEM = re.compile(r"(?:-|(\d+)\s*:)\s*")
_COCO = (
    "person",
    "bicycle",
    "car",
    "motorcycle",
    "airplane",
    "bus",
    "train",
    "truck",
    "boat",
    "traffic light",
    "fire hydrant",
    "stop sign",
    "parking meter",
    "bench",
    "bird",
    "cat",
    "dog",
    "horse",
    "sheep",
    "cow",
    "elephant",
    "bear",
    "zebra",
    "giraffe",
    "backpack",
    "umbrella",
    "handbag",
    "tie",
    "suitcase",
    "frisbee",
    "skis",
    "snowboard",
    "sports ball",
    "kite",
    "baseball bat",
    "baseball glove",
    "skateboard",
    "surfboard",
    "tennis racket",
    "bottle",
    "wine glass",
    "cup",
    "fork",
    "knife",
    "spoon",
    "bowl",
    "banana",
    "apple",
    "sandwich",
    "orange",
    "broccoli",
    "carrot",
    "hot dog",
    "pizza",
    "donut",
    "cake",
    "chair",
    "couch",
    "potted plant",
    "bed",
    "dining table",
    "toilet",
    "tv",
    "laptop",
    "mouse",
    "remote",
    "keyboard",
    "cell phone",
    "microwave",
    "oven",
    "toaster",
    "sink",
    "refrigerator",
    "book",
    "clock",
    "vase",
    "scissors",
    "teddy bear",
    "hair drier",
    "toothbrush",
)


def names_in(text: str) -> dict[int, str]:
    """Return the names of classes in a network's metadata.

    Python or JSON wrote them; none if neither did.
    """
    if len(text) > _MAX_ENTRY_LENGTH:
        return {}
    for parse in (ast.literal_eval, json.loads):
        try:
            return _by_class(parse(text))
        except (
            ValueError,
            OverflowError,
            SyntaxError,
            RecursionError,
            MemoryError,
            TypeError,
            AttributeError,
        ):
            continue
    return {}


def names_of(labels: str) -> dict[int, str]:
    """Return the names of classes that a setting tells. Raises DetectorError.

    Args:
        labels: a file with one name a line, or with JSON or YAML; or "coco".
    """
    if labels == "coco":
        return dict(enumerate(_COCO))
    path = Path(labels).expanduser()
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise ValueError(f"it has over {_MAX_FILE_BYTES} bytes")
        text = path.read_text("utf-8-sig")
        is_json = text.lstrip()[:1] in ("[", "{")
        names = names_in(text) if is_json else _names_in_lines(text)
        if not names:
            raise ValueError("there is no name in it")
    except (OSError, ValueError) as error:
        raise DetectorError(
            f"labels {labels!r}: {error}; give a text file with a name on each line, a "
            "list or mapping in JSON, a data.yaml, or coco"
        ) from None
    return names


def _by_class(names: Any) -> dict[int, str]:
    """Return names by the numbers of their classes.

    Args:
        names: a list, a mapping from numbers to names, or one from names to numbers.
    """
    if isinstance(names, Mapping):
        pairs = list(names.items())
        if all(isinstance(value, int) for _, value in pairs):
            pairs = [(class_id, name) for name, class_id in pairs]
    elif isinstance(names, (list, tuple)):
        pairs = list(enumerate(names))
    else:
        raise TypeError("neither a list of names nor a mapping")
    named = [(int(key), str(name)) for key, name in pairs if name is not None]
    return {class_id: _drawable(name) for class_id, name in named}


def _names_in_lines(text: str) -> dict[int, str]:
    """Return the names in a text: one a line, or those of Ultralytics' data.yaml."""
    entry = _YAML_NAMES.search(f"{text}\n")
    if entry is not None:
        return _names_in_yaml(entry["inline"] or "", entry["block"])
    names: dict[int, str] = {}
    for line in _text_lines(text):
        names[len(names)] = _drawable(line)
    return names


def _names_in_yaml(inline: str, block: str) -> dict[int, str]:
    """Return the names below `names:` in a YAML file.

    Args:
        inline: a list or mapping in one piece; "" for none.
        block: lines with an entry each.
    """
    if inline:
        return names_in(inline) or _names_in_flow(inline)
    names: dict[int, str] = {}
    for line in _text_lines(block):
        item = _YAML_ITEM.match(line)
        assert item is not None
        class_id = int(item[1] or len(names))
        without_comment = line[item.end() :].split(" #")[0]
        names[class_id] = _drawable(_unquoted(without_comment))
    return names


def _text_lines(text: str) -> list[str]:
    """Return the lines of a text that are neither empty nor comments."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _names_in_flow(text: str) -> dict[int, str]:
    """Return names of a YAML list or mapping in brackets; texts may lack quotes."""
    items = [_unquoted(item) for item in text[1:-1].split(",")]
    if text[0] == "[":
        return _by_class([item for item in items if item])
    pairs = [item.partition(":") for item in items if ":" in item]
    return _by_class({int(key): _unquoted(name) for key, _, name in pairs})


def _unquoted(text: str) -> str:
    """Return a text of YAML without space and quotes around it."""
    return text.strip().strip("\"'")


def _drawable(name: str) -> str:
    """Return the name of a class as it is drawn: Persian and Hindi need the joiners."""
    characters = name[:MAX_NAME_LENGTH]
    return "".join(c if c in _JOINERS else printable(c) for c in characters)
