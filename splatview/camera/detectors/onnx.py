"""Run a network in an ONNX file, as Ultralytics exports them, on CUDA or the CPU."""

from __future__ import annotations

import contextlib
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from splatview.camera.detectors import LEGAL, DetectorError, cpu_threads
from splatview.camera.detectors.class_names import MAX_NAME_LENGTH, names_in, names_of
from splatview.camera.detectors.letterbox import Letterbox
from splatview.camera.detectors.yolo import (
    highest_scores,
    layout_of,
    rotated_corners,
    without_overlaps,
    without_rotated_overlaps,
)
from splatview_ipc.system.optional_packages import install_line
from splatview_ipc.system.terminal import printable

if TYPE_CHECKING:
    from splatview.camera.detectors import InferenceSettings
    from splatview.camera.detectors.letterbox import LetterboxFit

_DEFAULT_THRESHOLD = 0.25
_MAX_OUTPUT_SIZE = 1 << 26
"""Maximum count of numbers of one output: 20 times that of the largest networks."""
_MAX_BOXES = 300
_MAX_MASKS = 100
"""Maximum number of things in one picture, those with the highest scores; of things
with masks."""
_COCO_KEYPOINTS = 17
_PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}
"""onnxruntime's names, the fastest first."""


class OnnxDetector:
    """Finds what a network was trained to find: boxes, with keypoints or masks."""

    def __init__(self, settings: InferenceSettings) -> None:
        """Load a network and try it.

        Raises DetectorError for a file that cannot be run or is no such network.
        """
        path = Path(settings.detect).expanduser()
        if not path.is_file():
            raise DetectorError(f"no file {str(path)!r}; give {LEGAL}")
        self._threshold = _DEFAULT_THRESHOLD
        if settings.threshold is not None:
            self._threshold = settings.threshold
        self._overlap = settings.nms
        self._session, provider = _open_session(path, settings.provider)
        network = printable(path.stem)[:MAX_NAME_LENGTH]
        self.title = f"{network} on {provider.upper()}"
        announced = {
            output.name: [n for n in output.shape if isinstance(n, int)]
            for output in self._session.get_outputs()
        }
        _check_sizes(announced)
        self._outputs = list(announced)
        metadata = self._session.get_modelmeta().custom_metadata_map
        self._input = Letterbox(self._session.get_inputs(), metadata)
        own_names = names_in(metadata.get("names", ""))
        self._names = own_names
        if settings.labels:
            self._names = names_of(settings.labels)
        outputs = self._try()
        self._layout = layout_of(self._outputs, outputs, metadata, len(own_names))
        origin = f"--labels {settings.labels}" if settings.labels else "its metadata"
        self._compare_names(path, origin)

    def _try(self) -> list[np.ndarray]:
        """Run the network on an empty picture; return its outputs.

        What is wrong is found now, and the device's memory is ready for the first
        picture.
        """
        width, height = self._input.trial_size
        tensor, _ = self._input.prepare(np.full((height, width, 3), 114, np.uint8))
        outputs = self._run(tensor)
        if not all(isinstance(output, np.ndarray) for output in outputs):
            raise DetectorError(
                f"the network's outputs {', '.join(self._outputs)} are not all tensors"
            )
        named = zip(self._outputs, outputs, strict=True)
        _check_sizes({name: output.shape for name, output in named})
        return outputs

    def _compare_names(self, path: Path, origin: str) -> None:
        """Print where the number of names is not that of the output's classes."""
        classes = self._layout.classes
        if not classes or not self._names or len(self._names) == classes:
            return
        print(
            f"{printable(path.name)}: the network has {classes} classes, and "
            f"{printable(origin)} names {len(self._names)}: names are given by the "
            "class's number",
            file=sys.stderr,
            flush=True,
        )

    def detect(self, image: np.ndarray) -> dict[str, Any]:
        tensor, fit = self._input.prepare(image)
        outputs = self._run(tensor)
        rows, boxes = self._select(outputs, fit)
        class_ids = rows[:, 5].astype(np.int32)
        annotations: dict[str, Any] = {
            "boxes": boxes,
            "scores": rows[:, 4],
            "classes": class_ids,
        }
        if not len(rows):
            return annotations
        annotations["labels"] = [self._name_of(int(class_id)) for class_id in class_ids]
        extras = rows[:, 6:]
        keypoint_count = self._layout.keypoints[0]
        if keypoint_count:
            annotations["points"] = self._keypoints(extras, fit)
            if keypoint_count == _COCO_KEYPOINTS:
                annotations["skeleton"] = "coco"
        elif self._layout.prototypes is not None:
            prototypes = outputs[self._layout.prototypes][0]
            annotations["masks"] = _masks(extras, prototypes, boxes, fit)
        return annotations

    def _name_of(self, class_id: int) -> str:
        """Return the name of a class."""
        return self._names.get(class_id) or f"class {class_id}"

    def _select(
        self, outputs: list[np.ndarray], fit: LetterboxFit
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows to show, and their boxes in pixels of the picture.

        Returns:
            Rows as of `OutputLayout.rows`; boxes (N, 4) x0 y0 x1 y1, or the corners
            (N, 4, 2) of rotated ones.
        """
        layout = self._layout
        rows = layout.rows(outputs, self._threshold)
        limit = _MAX_BOXES if layout.prototypes is None else _MAX_MASKS
        if layout.is_end_to_end:
            rows = highest_scores(rows, limit)
        elif layout.is_rotated:
            rows = without_rotated_overlaps(rows, self._overlap, limit)
        else:
            rows = without_overlaps(rows, self._overlap, limit)
        if layout.is_rotated:
            corners = rotated_corners(rows)
        else:
            corners = rows[:, :4].reshape(-1, 2, 2)
        extents = [corners.min(axis=1), corners.max(axis=1)]
        boxes = fit.picture_boxes(np.concatenate(extents, axis=1))
        is_inside = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        rows = rows[is_inside]
        if layout.is_rotated and len(rows):
            return rows, fit.to_picture(corners[is_inside])
        return rows, boxes[is_inside]

    def _keypoints(self, extras: np.ndarray, fit: LetterboxFit) -> np.ndarray:
        """Return the keypoints (N, K, 3) x y confidence of boxes with these numbers."""
        points = extras.reshape(len(extras), *self._layout.keypoints)
        if self._layout.keypoints[1] == 3:
            confidences = points[..., 2:]
        else:
            confidences = np.ones_like(points[..., :1])
        return np.concatenate([fit.to_picture(points[..., :2]), confidences], axis=2)

    def _run(self, tensor: np.ndarray) -> list[np.ndarray]:
        """Return the outputs of the network for an input (1, 3, H, W)."""
        return self._session.run(self._outputs, {self._input.name: tensor})


def _masks(
    weights: np.ndarray, prototypes: np.ndarray, boxes: np.ndarray, fit: LetterboxFit
) -> np.ndarray:
    """Return the masks (N, h, w), bool, of boxes.

    Args:
        weights: the weights of the prototypes, (N, P).
        prototypes: (P, h', w').
        boxes: (N, 4), pixels of the picture.
        fit: position of the picture in the input.
    """
    prototypes = prototypes.astype(np.float32, copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        logits = weights @ prototypes.reshape(len(prototypes), -1)
    logits = np.nan_to_num(logits)
    return fit.picture_masks(logits.reshape(-1, *prototypes.shape[1:]), boxes)


def _open_session(path: Path, provider: str) -> tuple[Any, str]:
    """Return an onnxruntime session for a file, and its provider.

    Raises DetectorError.

    Args:
        provider: as InferenceSettings.provider.
    """
    available = onnxruntime.get_available_providers()
    if provider and _PROVIDERS[provider] not in available:
        raise DetectorError(
            f"this onnxruntime has no provider {provider}, only {', '.join(available)}: "
            f"{install_line('camera-gpu')} in place of onnxruntime"
        )
    # Otherwise it prints a page about each provider that does not load.
    onnxruntime.set_default_logger_severity(4)
    if provider:
        names = [provider]
    else:
        names = [name for name, full in _PROVIDERS.items() if full in available]
    failures: list[str] = []
    for name in names:
        try:
            session = _session_on(path, name)
            if session.get_providers()[0] == _PROVIDERS[name]:
                end = "\n" if failures else ""
                print(*failures, sep="\n", end=end, file=sys.stderr)
                return session, name
            reason = "its libraries do not load (CUDA 12 or 13 with cuDNN 9)"
        except Exception as error:
            # Errors of the file, and of CUDA's libraries, have many types.
            reason = " ".join(str(error).split())[:300]
        failures.append(f"not on {name.upper()}: {reason}")
    raise DetectorError(f"{path} cannot be run: {'; '.join(failures)}")


def _session_on(path: Path, provider: str) -> Any:
    """Return an onnxruntime session for a file by a provider that is available."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = cpu_threads()
    # Threads that spin while they wait take the processor from capture and viewer.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    providers = [_PROVIDERS[provider]]
    if provider == "cuda":
        # For what CUDA lacks.
        providers.append(_PROVIDERS["cpu"])
        if hasattr(onnxruntime, "preload_dlls"):
            # From pip's packages: onnxruntime itself searches the system only.
            with contextlib.redirect_stdout(sys.stderr):
                onnxruntime.preload_dlls()
    return onnxruntime.InferenceSession(
        str(path), options, providers=providers, enable_fallback=0
    )


def _check_sizes(shapes: dict[str, Any]) -> None:
    """Raise DetectorError for an output, by its name, that is too large."""
    for name, shape in shapes.items():
        if math.prod(shape) > _MAX_OUTPUT_SIZE:
            raise DetectorError(
                f"the network's output {name} has {math.prod(shape)} numbers; at most "
                f"{_MAX_OUTPUT_SIZE}"
            )
