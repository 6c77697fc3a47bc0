"""Measure what it takes to pack a scene for pages that draw it by themselves."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

import torch

from benchmarks.gpu.scenes import ball
from benchmarks.harness import wait_until
from splatview_viewer.blocks.packing_request import (
    PackingForm,
    SceneToPack,
    VersionFacts,
)
from splatview_viewer.blocks.versions import PackedVersions
from splatview_viewer.scene.scene import GaussianScene

if TYPE_CHECKING:
    from splatview_viewer.blocks.layout import BlockPart

_TIMES = 6
_FORMS: tuple[tuple[str, tuple[BlockPart, ...], float], ...] = (
    ("a fifth in the quick form, the most important ones", ("quick",), 0.2),
    ("all in the quick form", ("quick",), 1.0),
    ("all exactly", ("exact",), 1.0),
    ("all exactly, with harmonics", ("exact", "harmonics"), 1.0),
)


def measure(gaussians: int, device: str) -> list[dict[str, str]]:
    """Return a row for each form."""
    raw = ball(gaussians, device)
    scene = GaussianScene(
        means=raw["means"],
        quats=raw["quats"],
        scales=raw["scales"],
        opacities=raw["opacities"],
        sh0=raw["sh0"][:, 0],
        shN=raw["shN"],
    )
    return [_measure_form(scene, *form) for form in _FORMS]


def _measure_form(
    scene: GaussianScene, title: str, block_parts: tuple[BlockPart, ...], share: float
) -> dict[str, str]:
    versions = PackedVersions()
    form = PackingForm(block_parts, int(len(scene) * share))
    seconds = []
    gpu_ms: list[float] = []
    size_bytes = 0
    for _ in range(_TIMES):
        versions.put(VersionFacts(0, len(scene), 3, False, (0.0, 0.0, 0.0)))
        started_at = time.perf_counter()
        listener = _nothing
        packing = versions.request(form, None, listener)
        assert packing is not None
        versions.start_requested(partial(_source, scene), started_at)
        wait_until(
            "a packing", partial(_is_done, packing), 60, partial(time.sleep, 1e-4)
        )
        seconds.append(time.perf_counter() - started_at)
        gpu_ms += [gpu_time.ms for gpu_time in versions.gpu_times]
        versions.gpu_times.clear()
        size_bytes = packing.bytes
        versions.release(packing, listener)
    row = {
        "what": f"packing {len(scene):,}: {title}",
        "ms": f"{statistics.median(seconds[1:]) * 1e3:.1f}",
        "MB": f"{size_bytes / 1e6:.1f}",
    }
    if gpu_ms:
        row["of which the GPU ms"] = f"{statistics.median(gpu_ms[1:]):.2f}"
    return row


def _nothing() -> None:
    """Stand for who waits."""


def _is_done(packing: object) -> bool:
    return packing.is_done  # type: ignore[attr-defined]


def _source(scene: GaussianScene) -> SceneToPack:
    ready = None
    if scene.on_gpu:
        ready = torch.cuda.current_stream().record_event()
    return SceneToPack(scene, ready)
