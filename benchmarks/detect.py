"""What surrounds a network per 1080p picture: it is laid into the input, boxes are read out; against usual NumPy."""

from __future__ import annotations

import statistics
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu import Skipped

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 100
SIDE = 640
BOXES = 8400
CLASSES = 80
THRESHOLD, OVERLAP = 0.25, 0.45


def run() -> list[dict[str, str]]:
    try:
        import cv2
    except ImportError as e:
        raise Skipped(f"needs OpenCV: pip install 'splatview[camera]' ({e})") from e
    from splatview.camera.detectors.letterbox import Letterbox
    from splatview.camera.detectors.yolo import layout_of, without_overlaps

    cv2.setNumThreads(1)
    image = np.random.default_rng(1).integers(0, 256, (1080, 1920, 3), dtype=np.uint8)
    output = _output()
    letterbox = Letterbox([SimpleNamespace(name="images", type="tensor(float)", shape=[1, 3, SIDE, SIDE])], {})
    layout = layout_of(["output0"], [output], {}, CLASSES)
    laid, placement = letterbox.lay(image)

    def read() -> np.ndarray:
        return placement.boxes(without_overlaps(layout.rows([output], THRESHOLD), OVERLAP, 300)[:, :4])

    usual_input, usual_boxes = _lay_as_usual(image, cv2), _read_as_usual(output, cv2)
    assert np.allclose(laid, usual_input, atol=1e-6), "the inputs differ"
    assert np.allclose(_sorted(read()), _sorted(usual_boxes), atol=0.01), "the boxes differ"
    rows = []
    for what, ours, usual in (("lay 1920x1080 into 640x640", lambda: letterbox.lay(image),
                               lambda: _lay_as_usual(image, cv2)),
                              (f"read {len(usual_boxes)} boxes out of {BOXES} x {4 + CLASSES}", read,
                               lambda: _read_as_usual(output, cv2))):
        mine, theirs = _milliseconds(ours), _milliseconds(usual)
        rows.append({"what": what, "splatview (ms, p50)": f"{mine:.2f}", "usual NumPy (ms, p50)": f"{theirs:.2f}",
                     "less by": f"{theirs / mine:.1f} x"})
    return rows


def _output() -> np.ndarray:
    """What a YOLOv8 gives for 20 things, each found by 8 boxes that overlap."""
    rng = np.random.default_rng(0)
    table = rng.uniform(0, 0.1, (1, 4 + CLASSES, BOXES)).astype(np.float32)
    places = rng.choice(BOXES, 160, replace=False)
    for i, place in enumerate(places):
        thing = i // 8
        middle = 80 + thing % 5 * 120, 160 + thing // 5 * 100
        table[0, :4, place] = [*(middle + rng.normal(size=2)), 60, 60]
        table[0, 4 + thing, place] = rng.uniform(0.5, 0.95)
    return table


def _lay_as_usual(image: np.ndarray, cv2: Any) -> np.ndarray:
    """As scripts around YOLO do it."""
    scale = min(SIDE / image.shape[0], SIDE / image.shape[1])
    small = cv2.resize(image, (round(image.shape[1] * scale), round(image.shape[0] * scale)))
    top, left = (SIDE - small.shape[0]) // 2, (SIDE - small.shape[1]) // 2
    whole = cv2.copyMakeBorder(small, top, SIDE - small.shape[0] - top, left, SIDE - small.shape[1] - left,
                               cv2.BORDER_CONSTANT, value=(114, 114, 114))
    return (np.ascontiguousarray(whole.transpose(2, 0, 1)).astype(np.float32) / 255)[None]


def _read_as_usual(output: np.ndarray, cv2: Any) -> np.ndarray:
    """As scripts around YOLO do it."""
    rows = output[0].T
    scores, classes = rows[:, 4:].max(axis=1), rows[:, 4:].argmax(axis=1)
    good = scores > THRESHOLD
    rows, scores, classes = rows[good], scores[good], classes[good]
    corners = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, 2:4]], axis=1)
    kept = cv2.dnn.NMSBoxesBatched(corners.tolist(), scores.tolist(), classes.tolist(), THRESHOLD, OVERLAP)
    boxes = np.concatenate([corners[kept, :2], corners[kept, :2] + corners[kept, 2:]], axis=1)
    boxes[:, [1, 3]] -= (SIDE - 360) / 2
    return np.clip(boxes * 3, 0, [1920, 1080, 1920, 1080])


def _sorted(boxes: np.ndarray) -> np.ndarray:
    return boxes[np.lexsort(boxes.T)]


def _milliseconds(call: Callable[[], Any]) -> float:
    call()
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3
