"""Scenes in place that are handed on to screens which draw them by themselves.

A stand-in reads for CUDA; tests/cuda has the real thing.
"""

from __future__ import annotations

import math
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from support.frames import cloud, gaussian_frame
from support.frames import scene as make_scene
from support.gpu_stand_ins import Reader, scene_on_gpu, stand_in_for_cuda
from support.unpacked_blocks import unpacked
from support.view_cases import RECT, scene_view
from support.wait import PATIENCE_S

from splatview_viewer.blocks.packing_request import (
    GpuTime,
    PackingForm,
    PackingTerms,
    SceneToPack,
)
from splatview_viewer.blocks.unpacking import UnpackedScene
from splatview_viewer.gpu.governor import Governor
from splatview_viewer.kinds.gaussians.packing_pace import PackingPace
from splatview_viewer.recording.packed import pack, unpack
from splatview_viewer.screens.offscreen import OffscreenScreen


def test_an_overwritten_version_is_never_packed(
    screen: OffscreenScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in_for_cuda(monkeypatch)
    view: Any = scene_view(screen, Reader(screen.ctx))
    view.tick(1.0)
    torn = scene_on_gpu()
    torn.show(view)
    handed = view.hand_on(RECT)
    assert handed.drawing is not None
    torn.is_intact = False
    count = len(cloud()["means"])
    done = threading.Event()
    packing = handed.versions.request(PackingForm(("exact",), count), None, done.set)
    assert packing is not None
    for now in (2.0, 2.1):
        view.tick(now)
        assert view.wants.stale, "the newest frame is wanted again"
        assert not packing.is_begun
    scene_on_gpu(1).show(view)
    view.tick(2.2)
    assert done.wait(PATIENCE_S)
    blocks = packing.blocks["exact"]
    page_scene = unpacked(blocks, None, count, packing.version_facts.origin, 0)
    torch.testing.assert_close(page_scene.means.float(), cloud(seed=1)["means"])
    assert view.view.data.renderer.drawings == 0, "nothing was drawn"
    view.close()


def test_packings_beside_a_training_are_far_apart() -> None:
    governor = Governor(0.1)
    pace = PackingPace(governor)
    pace.note_begun(10.0)
    assert pace.may_begin(10.0), "no training needs the GPU"
    assert pace.fresh_from(10.0) == math.inf
    governor.account.shared = True
    assert not pace.may_begin(10.1)
    assert 9.7 < pace.fresh_from(10.0) < 9.9
    # A share of 0.2 %, with two turns of the GPU to the viewer.
    pace.count(GpuTime(("pack", "quick"), 0.2, 0))
    assert not pace.may_begin(10.49)
    assert pace.may_begin(10.51)
    # What a training did in between is not the packing's.
    pace.count(GpuTime(("pack", "quick"), 8.0, 0))
    assert pace.may_begin(10.51)
    # Copying to host memory holds up a training as well.
    pace.count(GpuTime(("pack", "quick"), 0.2, 20_000_000))
    assert not pace.may_begin(10.79)
    assert pace.may_begin(10.81)
    # However much it costs, it has to be soon enough.
    pace.count(GpuTime(("pack", "exact"), 50.0, 0))
    assert not pace.may_begin(14.9)
    assert pace.may_begin(15.1)
    assert not pace.may_begin(10.7, is_first=True)
    assert pace.may_begin(10.9, is_first=True), "that reader sees nothing yet"


def test_a_packing_serves_readers_that_ask_soon_after(
    screen: OffscreenScreen,
) -> None:
    view: Any = scene_view(screen)
    view.update(gaussian_frame(cloud()))
    view.tick(1.0)
    versions = view.hand_on(RECT).versions
    versions.terms = PackingTerms(1.9)
    done = threading.Event()
    form = PackingForm(("exact",), versions.newest.gaussians)
    read = partial(SceneToPack, make_scene(form.gaussians), None)
    first = versions.request(form, None, done.set)
    versions.start_requested(read, 2.0)
    assert done.wait(PATIENCE_S)
    versions.put(versions.newest)
    versions.start_requested(read, 2.1)
    assert versions.request(form, None, done.set) is first
    first_number = first.version_facts.version_number
    second = versions.request(form, None, done.set, newer_than=first_number)
    assert second is not first, "the reader has it"
    versions.start_requested(read, 2.1)
    versions.put(versions.newest)
    versions.start_requested(read, 2.35)
    versions.terms = PackingTerms(2.15)
    third = versions.request(form, None, done.set)
    assert third not in (first, second), "both are old by now"
    # What was not begun with grows for readers on faster lines.
    small = versions.request(PackingForm(("quick",), 100), None, done.set)
    grown = versions.request(PackingForm(("quick",), 200), None, done.set)
    assert grown is small
    assert small.form.gaussians == 200
    view.close()


def test_what_nobody_draws_is_packed_no_longer(screen: OffscreenScreen) -> None:
    """Its order by importance lies on the GPU."""
    view: Any = scene_view(screen)
    view.update(gaussian_frame(cloud()))
    view.tick(1.0)
    handed = view.hand_on(RECT)
    page = object()
    handed.versions.note_sending(page, is_amid=False)
    view.tick(100.0)
    assert handed.versions.newest is not None, "a page may rest for long"
    handed.versions.forget_reader(page)
    view.tick(101.0)
    assert handed.versions.newest is None
    handed_again = view.hand_on(RECT)
    assert handed_again.versions.newest is not None
    view.view.release("idle")
    assert handed_again.versions.newest is None
    view.close()


def test_blocks_of_a_recording_are_handed_on_as_they_are(
    screen: OffscreenScreen,
) -> None:
    packed = pack(make_scene(1500))
    blocks = packed.blocks
    assert blocks is not None
    view: Any = scene_view(screen)
    view.tick(1.0)
    assert view.update(UnpackedScene(unpack(packed), blocks))
    # No screen has asked for the scene for long.
    view.tick(100.0)
    versions = view.hand_on(RECT).versions
    assert versions.newest.origin == blocks.origin
    done = threading.Event()
    form = PackingForm(("exact", "harmonics"), 1500)
    packing = versions.request(form, None, done.set)
    view.tick(100.1)
    assert done.wait(PATIENCE_S)
    assert np.shares_memory(packing.blocks["exact"], packed.data)
    assert np.shares_memory(packing.blocks["harmonics"], packed.data)
    # The most important ones are packed from the same numbers.
    done.clear()
    few = versions.request(PackingForm(("quick",), 1024), None, done.set)
    view.tick(100.2)
    assert done.wait(PATIENCE_S)
    means = unpacked(few.blocks["quick"], None, 1024, blocks.origin).means.float()
    torch.testing.assert_close(means, unpack(packed).means[few.rows], atol=1e-3, rtol=0)
    # What comes live after it has blocks of its own.
    live = make_scene(1500, seed=1)
    assert view.update(live)
    done.clear()
    packing = versions.request(form, None, done.set)
    view.tick(100.3)
    assert done.wait(PATIENCE_S)
    assert not np.shares_memory(packing.blocks["exact"], packed.data)
    means = unpacked(
        packing.blocks["exact"], None, 1500, packing.version_facts.origin
    ).means
    torch.testing.assert_close(means.float(), live.means)
    view.close()
