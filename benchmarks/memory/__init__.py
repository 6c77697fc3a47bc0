"""Measure memory snapshots of 22 thousand, 1 million and 10 million events.

Loading, pictures, answers; SnapViewer beside them.

The first is a real one, in the folder that SPLATVIEW_TEST_DATA names; the others repeat
it (`traces`; 10 million events take 8 GB to write; they are kept in the folder that
SPLATVIEW_BENCH_TRACES names, if it does). "Peak" is the memory of all processes of the
viewer together, as RSS, so that what two of them share counts twice. "Pictures" are of
the real program, `splatview serve FILE`, 1920x1080 without a window, while a hand drags
and turns the wheel 125 times a second: new pictures of the plot, not frames in which
the old one is moved. "CPU" is processor time, over all threads: what a busy machine
changes least.

Checked in the same run: the live bytes at every moment are those of a replay of the
pickle in plain Python, and what is picked is what lies there by adding up sizes.
SPLATVIEW_SNAPVIEWER names SnapViewer's converter (convert_snap.py of its repository),
SPLATVIEW_PEER_PYTHON a Python that can run it, if this one cannot; SPLATVIEW_MEMORY_VIZ
PyTorch's torch/utils/viz/MemoryViz.js, of which node runs what comes before drawing.
"""

from __future__ import annotations


def run() -> list[dict[str, str]]:
    from benchmarks.memory.measure import run as measure

    return measure()
