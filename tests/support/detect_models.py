"""Small networks in ONNX files, for tests of detectors.

Some give fixed numbers, one really looks at the picture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def fixed(
    path: Path,
    outputs: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Write a network that gives the same numbers for every picture; return its path."""
    nodes = []
    infos = []
    for name, value in outputs.items():
        constant = numpy_helper.from_array(value)
        nodes.append(helper.make_node("Constant", [], [name], value=constant))
        dtype = helper.np_dtype_to_tensor_dtype(value.dtype)
        infos.append(helper.make_tensor_value_info(name, dtype, value.shape))
    return save(path, nodes, (1, 3, 64, 96), infos, metadata or {}, {})


def save(
    path: Path,
    nodes: list[Any],
    shape: Sequence[int],
    outputs: list[Any],
    metadata: Mapping[str, str],
    constants: Mapping[str, np.ndarray],
) -> str:
    """Write a network whose input is called "images"; return its path."""
    images = helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)
    initializers = [numpy_helper.from_array(v, name) for name, v in constants.items()]
    graph = helper.make_graph(nodes, "test", [images], outputs, initializers)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return str(path)


def bright(path: Path, width: int, height: int) -> str:
    """Write a YOLO of one class that finds the one bright thing in a dark picture.

    Its box, with score 0.9, is from the first to the last column and row with a value
    over 0.75 in all channels. It gives (1, 5, 2): the second box is empty.
    """
    constants = {
        "half": np.array(0.75, np.float32),
        "two": np.array(2, np.float32),
        "score": np.array([0.9], np.float32),
        "one": np.array([1], np.int64),
        "nothing": np.zeros((5, 1), np.float32),
        "shape": np.array([5, 1], np.int64),
        "batch": np.array([1, 5, 2], np.int64),
    }
    node = helper.make_node
    nodes = [
        node("ReduceMin", ["images"], ["all"], axes=[1], keepdims=0),
        node("Greater", ["all", "half"], ["is bright"]),
        node("Cast", ["is bright"], ["lit"], to=TensorProto.FLOAT),
        node("ReduceMax", ["lit"], ["any"], axes=[1, 2], keepdims=0),
        node("Mul", ["any", "score"], ["sure"]),
        *_extent_nodes("x", 1),
        *_extent_nodes("y", 2),
    ]
    columns = ["x middle", "y middle", "x extent", "y extent", "sure"]
    nodes += [
        node("Concat", columns, ["flat"], axis=0),
        node("Reshape", ["flat", "shape"], ["column"]),
        node("Concat", ["column", "nothing"], ["table"], axis=1),
        node("Reshape", ["table", "batch"], ["output0"]),
    ]
    output = helper.make_tensor_value_info("output0", TensorProto.FLOAT, (1, 5, 2))
    metadata = {"names": "{0: 'light'}", "task": "detect"}
    return save(path, nodes, (1, 3, height, width), [output], metadata, constants)


def _extent_nodes(name: str, axis: int) -> list[Any]:
    """Return the nodes that compute middle and extent of what is lit along an axis."""
    node = helper.make_node
    nodes = [node("ReduceMax", ["lit"], [f"{name} lit"], axes=[axis], keepdims=0)]
    for end in (0, 1):
        index = f"{name}{end} int"
        position = f"{name}{end} at"
        options: dict[str, Any] = {"axis": 1, "keepdims": 0, "select_last_index": end}
        nodes += [
            node("ArgMax", [f"{name} lit"], [index], **options),
            node("Cast", [index], [position], to=TensorProto.FLOAT),
        ]
    return [
        *nodes,
        node("Cast", ["one"], [f"{name} one"], to=TensorProto.FLOAT),
        node("Add", [f"{name}1 at", f"{name} one"], [f"{name}1 end"]),
        node("Add", [f"{name}0 at", f"{name}1 end"], [f"{name} sum"]),
        node("Div", [f"{name} sum", "two"], [f"{name} middle"]),
        node("Sub", [f"{name}1 end", f"{name}0 at"], [f"{name} extent"]),
    ]


def yolo(
    boxes: np.ndarray,
    scores: np.ndarray,
    count: int,
    *,
    extras: np.ndarray | None = None,
) -> np.ndarray:
    """Make a YOLO's table of boxes, most of them empty.

    The full ones lie evenly among the empty ones.

    Args:
        boxes: (N, 4) middle and extent.
        scores: (N, C).
        count: Number of boxes of the table.
        extras: (N, R) what follows for each box.
    """
    columns = [boxes, scores]
    if extras is not None:
        columns.append(extras)
    rows = np.concatenate(columns, axis=1)
    table = np.zeros((count, rows.shape[1]), np.float32)
    table[np.linspace(0, count - 1, len(rows)).astype(int)] = rows
    return np.ascontiguousarray(table.T)[None]
