"""A network in an ONNX file, as Ultralytics exports them, run by onnxruntime on CUDA or the CPU."""

from __future__ import annotations

import ast
import contextlib
import json
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from splatview.camera.detectors import LEGAL, DetectorError, cpu_threads
from splatview.camera.detectors.letterbox import Letterbox
from splatview.camera.detectors.yolo import (
    best,
    layout_of,
    turned_corners,
    without_overlaps,
    without_turned_overlaps,
)
from splatview_ipc.system.optional_packages import install_line
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from splatview.camera.detectors import InferenceSettings

_THRESHOLD = 0.25
_MOST_NUMBERS = 1 << 26
"""Maximum size of one output: 20 times that of the largest networks."""
_MOST_FOUND = 300
_MOST_MASKS = 100
"""Maximum number of things in one picture, those with the highest scores; of things with masks."""
_LONGEST_ENTRY = 1 << 20
"""Maximum length of the metadata entry with names."""
_LONGEST_NAME = 100
_JOINERS = "\u200c\u200d"
_MAX_LABELS_BYTES = 1 << 22
"""Maximum size of a file with names."""
_PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
"""onnxruntime's names, the fastest first."""
_COCO = [
    name.replace("_", " ")
    for name in [
        "person",
        "bicycle",
        "car",
        "motorcycle",
        "airplane",
        "bus",
        "train",
        "truck",
        "boat",
        "traffic_light",
        "fire_hydrant",
        "stop_sign",
        "parking_meter",
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
        "sports_ball",
        "kite",
        "baseball_bat",
        "baseball_glove",
        "skateboard",
        "surfboard",
        "tennis_racket",
        "bottle",
        "wine_glass",
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
        "hot_dog",
        "pizza",
        "donut",
        "cake",
        "chair",
        "couch",
        "potted_plant",
        "bed",
        "dining_table",
        "toilet",
        "tv",
        "laptop",
        "mouse",
        "remote",
        "keyboard",
        "cell_phone",
        "microwave",
        "oven",
        "toaster",
        "sink",
        "refrigerator",
        "book",
        "clock",
        "vase",
        "scissors",
        "teddy_bear",
        "hair_drier",
        "toothbrush",
    ]
]


class OnnxDetector:
    """Finds what a network was trained to find: boxes, with keypoints or masks where it has them."""

    def __init__(self, settings: InferenceSettings) -> None:
        """Raises DetectorError for a file that cannot be run or is no such network."""
        path = Path(settings.detect).expanduser()
        if not path.is_file():
            raise DetectorError(f"no file {str(path)!r}; give {LEGAL}")
        if settings.threshold is None:
            self._threshold = _THRESHOLD
        else:
            self._threshold = settings.threshold
        self._overlap = settings.nms
        self._session, provider = _session(path, settings.provider)
        self.by = f"{printable(path.stem)[:_LONGEST_NAME]} on {provider.upper()}"
        announced = {
            output.name: [n for n in output.shape if isinstance(n, int)]
            for output in self._session.get_outputs()
        }
        _check_sizes(announced)
        self._outputs = list(announced)
        metadata = self._session.get_modelmeta().custom_metadata_map
        own = _names_in(metadata.get("names", ""))
        self._labels = _names_of(settings.labels) if settings.labels else own
        self._input = Letterbox(self._session.get_inputs(), metadata)
        # An empty picture: what is wrong is found now, and the device's memory is ready for the first one.
        across, down = self._input.trial_size
        outputs = self._run(
            self._input.lay(np.full((down, across, 3), 114, np.uint8))[0]
        )
        if not all(isinstance(output, np.ndarray) for output in outputs):
            raise DetectorError(
                f"the network's outputs {', '.join(self._outputs)} are not all tensors"
            )
        _check_sizes(
            {
                name: output.shape
                for name, output in zip(self._outputs, outputs, strict=True)
            }
        )
        self._layout = layout_of(self._outputs, outputs, metadata, len(own))
        named_by = f"--labels {settings.labels}" if settings.labels else "its metadata"
        self._compare_names(path, named_by)

    def _compare_names(self, path: Path, named_by: str) -> None:
        """Say where the number of names is not that of the classes, which the output's shape tells."""
        classes = self._layout.classes
        if classes and self._labels and len(self._labels) != classes:
            print(
                f"{printable(path.name)}: the network has {classes} classes, and {printable(named_by)} "
                f"names {len(self._labels)}: names are given by the class's number",
                file=sys.stderr,
                flush=True,
            )

    def detect(self, image: np.ndarray) -> dict[str, Any]:
        laid, placement = self._input.lay(image)
        outputs = self._run(laid)
        layout = self._layout
        rows = layout.rows(outputs, self._threshold)
        most = _MOST_FOUND if layout.prototypes is None else _MOST_MASKS
        if layout.chosen:
            rows = best(rows, most)
        elif layout.turned:
            rows = without_turned_overlaps(rows, self._overlap, most)
        else:
            rows = without_overlaps(rows, self._overlap, most)
        if layout.turned:
            corners = turned_corners(rows)
        else:
            corners = rows[:, :4].reshape(-1, 2, 2)
        boxes = placement.boxes(
            np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
        )
        inside = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        rows = rows[inside]
        boxes = boxes[inside]
        corners = corners[inside]
        if layout.turned and len(rows):
            boxes = placement.back(corners)
        classes = rows[:, 5].astype(np.int32)
        more = rows[:, 6:]
        found: dict[str, Any] = {
            "boxes": boxes,
            "scores": rows[:, 4],
            "classes": classes,
        }
        if not len(rows):
            return found
        found["labels"] = [
            self._labels.get(int(number)) or f"class {number}" for number in classes
        ]
        if layout.points[0]:
            points = more.reshape(len(more), *layout.points)
            if layout.points[1] == 3:
                sure = points[..., 2:]
            else:
                sure = np.ones_like(points[..., :1])
            found["points"] = np.concatenate(
                [placement.back(points[..., :2]), sure], axis=2
            )
            found |= {"skeleton": "coco"} if layout.points[0] == 17 else {}
        elif layout.prototypes is not None:
            prototypes = outputs[layout.prototypes][0].astype(np.float32, copy=False)
            with np.errstate(invalid="ignore", over="ignore"):
                values = more @ prototypes.reshape(len(prototypes), -1)
            values = np.nan_to_num(values)
            found["masks"] = placement.masks(
                values.reshape(-1, *prototypes.shape[1:]), boxes
            )
        return found

    def _run(self, laid: np.ndarray) -> list[np.ndarray]:
        return self._session.run(self._outputs, {self._input.name: laid})


def _session(path: Path, wanted: str) -> tuple[Any, str]:
    """Return an onnxruntime session for a file, and its provider; `wanted`: as InferenceSettings.provider.

    Raises DetectorError.
    """
    available = onnxruntime.get_available_providers()
    if wanted and _PROVIDERS[wanted] not in available:
        raise DetectorError(
            f"this onnxruntime has no provider {wanted}, only {', '.join(available)}: "
            f"{install_line('camera-gpu')} in place of onnxruntime"
        )
    onnxruntime.set_default_logger_severity(
        4
    )  # else a page about each provider that does not load
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = cpu_threads()
    # Threads that spin while they wait take the processor from capture and viewer.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    failed: list[str] = []
    for name in (
        [wanted]
        if wanted
        else [name for name, full in _PROVIDERS.items() if full in available]
    ):
        try:
            if name == "cuda" and hasattr(onnxruntime, "preload_dlls"):
                with contextlib.redirect_stdout(sys.stderr):
                    onnxruntime.preload_dlls()  # from pip's packages: onnxruntime itself searches the system only
            providers = [
                _PROVIDERS[name],
                *([_PROVIDERS["cpu"]] if name == "cuda" else []),
            ]  # for what CUDA lacks
            session = onnxruntime.InferenceSession(
                str(path), options, providers=providers, enable_fallback=0
            )
            if session.get_providers()[0] == _PROVIDERS[name]:
                print(*failed, sep="\n", end="\n" * bool(failed), file=sys.stderr)
                return session, name
            failed.append(
                f"not on {name.upper()}: its libraries do not load (CUDA 12 or 13 with cuDNN 9)"
            )
        except (
            Exception
        ) as e:  # errors of the file, and of CUDA's libraries, have many types
            failed.append(f"not on {name.upper()}: {' '.join(str(e).split())[:300]}")
    raise DetectorError(f"{path} cannot be run: {'; '.join(failed)}")


def _names_in(text: str) -> dict[int, str]:
    """Return the names of classes in a network's metadata, as Python or JSON writes them; else none."""
    if len(text) > _LONGEST_ENTRY:
        return {}
    for parse in (ast.literal_eval, json.loads):
        try:
            return _numbered(parse(text))
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


def _numbered(names: Any) -> dict[int, str]:
    """Return names by the number of their class: from a list, a mapping from numbers, or one to numbers."""
    if isinstance(names, Mapping):
        pairs = list(names.items())
        if all(isinstance(number, int) for _, number in pairs):
            pairs = [(number, name) for name, number in pairs]
    elif isinstance(names, (list, tuple)):
        pairs = list(enumerate(names))
    else:
        raise TypeError("neither a list of names nor a mapping")
    named = [(int(n), str(name)) for n, name in pairs if name is not None]
    return {n: _drawable(name) for n, name in named}


def _names_of(labels: str) -> dict[int, str]:
    """Return the names of classes in a file, one a line or as JSON, or COCO's. Raises DetectorError."""
    if labels == "coco":
        return dict(enumerate(_COCO))
    path = Path(labels).expanduser()
    try:
        if path.stat().st_size > _MAX_LABELS_BYTES:
            raise ValueError(f"it has over {_MAX_LABELS_BYTES} bytes")
        text = path.read_text("utf-8-sig")
        is_json = text.lstrip()[:1] in ("[", "{")
        names = _names_in(text) if is_json else _names_in_lines(text)
        if not names:
            raise ValueError("there is no name in it")
    except (OSError, ValueError) as e:
        raise DetectorError(
            f"labels {labels!r}: {e}; give a text file with a name on each line, a list or mapping in "
            "JSON, a data.yaml, or coco"
        ) from None
    return names


_YAML_NAMES = re.compile(
    r"^names:[ \t]*(?P<inline>[\[{][^\]}]*[\]}])?[^\n]*\n"
    r"(?P<block>(?:[ \t]*(?:-|\d+[ \t]*:)[^\n]*\n|[ \t]*(?:#[^\n]*)?\n)*)",
    re.MULTILINE,
)
"""The names in Ultralytics' data.yaml: a list or mapping in one piece, or an entry a line."""


def _names_in_lines(text: str) -> dict[int, str]:
    """Return the names in a text file: one a line, or under `names:` as in Ultralytics' data.yaml."""
    entry = _YAML_NAMES.search(f"{text}\n")
    lines = text.splitlines()
    if entry is not None:
        if entry["inline"]:
            return _names_in(entry["inline"]) or _names_in_flow(entry["inline"])
        lines = entry["block"].splitlines()
    names: dict[int, str] = {}
    for line in lines:
        name = line.strip()
        if not name or name.startswith("#"):
            continue
        number = len(names)
        if entry is not None:
            item = re.match(r"(?:-|(\d+)\s*:)\s*", name)
            assert item is not None
            number = int(item[1] or number)
            name = name[item.end() :].split(" #")[0].strip().strip("\"'")
        names[number] = _drawable(name)
    return names


def _names_in_flow(text: str) -> dict[int, str]:
    """Return names of a YAML list in brackets, whose texts may lack quotes."""
    parts = [part.strip().strip("\"'") for part in text[1:-1].split(",")]
    if text[0] == "[":
        return _numbered([part for part in parts if part])
    pairs = [part.partition(":")[::2] for part in parts if ":" in part]
    return _numbered({int(n): name.strip().strip("\"'") for n, name in pairs})


def _drawable(name: str) -> str:
    """Return the name of a class with what is drawn of it: Persian and Hindi need the joiners."""
    return "".join(
        char if char in _JOINERS else printable(char) for char in name[:_LONGEST_NAME]
    )


def _check_sizes(shapes: dict[str, Any]) -> None:
    for name, shape in shapes.items():
        if math.prod(shape) > _MOST_NUMBERS:
            raise DetectorError(
                f"the network's output {name} has {math.prod(shape)} numbers; at most {_MOST_NUMBERS}"
            )
