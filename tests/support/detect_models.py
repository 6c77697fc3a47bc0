"""Small networks in ONNX files, for tests of detectors: some give numbers that are fixed, one really looks."""

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
    """A network that gives the same numbers for every picture. Its path."""
    nodes = [
        helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value))
        for name, value in outputs.items()
    ]
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
        )
        for name, value in outputs.items()
    ]
    return save(path, nodes, (1, 3, 64, 96), values, metadata or {}, {})


def save(
    path: Path,
    nodes: list[Any],
    shape: Sequence[int],
    outputs: list[Any],
    metadata: Mapping[str, str],
    constants: Mapping[str, np.ndarray],
) -> str:
    """A network whose input is called "images". Its path."""
    given = helper.make_tensor_value_info("images", TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        nodes,
        "test",
        [given],
        outputs,
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    helper.set_model_props(model, dict(metadata))
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
    return str(path)


def bright(path: Path, across: int, down: int) -> str:
    """A YOLO of one class that finds the one bright thing in a dark picture, with score 0.9: its box is from the first
    to the last column and row with a value over 0.75 in all channels. Gives (1, 5, 2): the second box is empty.
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
    ]
    for axis, name in ((1, "x"), (2, "y")):
        nodes += [node("ReduceMax", ["lit"], [f"{name} lit"], axes=[axis], keepdims=0)]
        for end, last in (("0", 0), ("1", 1)):
            nodes += [
                node(
                    "ArgMax",
                    [f"{name} lit"],
                    [f"{name}{end} int"],
                    axis=1,
                    keepdims=0,
                    select_last_index=last,
                ),
                node(
                    "Cast",
                    [f"{name}{end} int"],
                    [f"{name}{end} at"],
                    to=TensorProto.FLOAT,
                ),
            ]
        nodes += [
            node("Cast", ["one"], [f"{name} one"], to=TensorProto.FLOAT),
            node("Add", [f"{name}1 at", f"{name} one"], [f"{name}1 end"]),
            node("Add", [f"{name}0 at", f"{name}1 end"], [f"{name} sum"]),
            node("Div", [f"{name} sum", "two"], [f"{name} middle"]),
            node("Sub", [f"{name}1 end", f"{name}0 at"], [f"{name} extent"]),
        ]
    nodes += [
        node(
            "Concat",
            ["x middle", "y middle", "x extent", "y extent", "sure"],
            ["flat"],
            axis=0,
        ),
        node("Reshape", ["flat", "shape"], ["column"]),
        node("Concat", ["column", "nothing"], ["table"], axis=1),
        node("Reshape", ["table", "batch"], ["output0"]),
    ]
    output = helper.make_tensor_value_info("output0", TensorProto.FLOAT, (1, 5, 2))
    return save(
        path,
        nodes,
        (1, 3, down, across),
        [output],
        {"names": "{0: 'light'}", "task": "detect"},
        constants,
    )


def yolo(
    boxes: np.ndarray, scores: np.ndarray, count: int, *, rest: np.ndarray | None = None
) -> np.ndarray:
    """A YOLO's table of `count` boxes, most of them empty: `boxes` (N, 4) middle and extent, `scores` (N, C), and what
    follows them for each box (N, R). The full ones lie evenly among the empty ones.
    """
    rows = np.concatenate([boxes, scores, *([] if rest is None else [rest])], axis=1)
    table = np.zeros((count, rows.shape[1]), np.float32)
    table[np.linspace(0, count - 1, len(rows)).astype(int)] = rows
    return np.ascontiguousarray(table.T)[None]
