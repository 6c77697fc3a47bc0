"""A disk that is full costs what cannot be written, nothing that is there, and no training."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from support.programs import ROOT
from support.wait import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from support.programs import Programs


def test_a_disk_that_is_full_while_recording(tmp_path: Path, programs: Programs) -> None:
    """Nothing is left half written, what was recorded before stays whole, and it goes on when there is room."""
    process = programs.code("""
import resource, sys
from pathlib import Path
import numpy as np, pytest
from support.recordings import scene
from splatview.viewer_app.recorder.files import StreamFolder, read_index, read_packed, write_packed
from splatview.viewer_app.recorder.packed import pack
from splatview.viewer_app.recorder.recording import Recording, Snapshot
folder = StreamFolder(Path(sys.argv[1]), "run", "splats")
recording, made = Recording(1.0, limit=10**9, folder=folder), pack(scene(5000), None)
def record(number):
    file = folder.file(recording.next_number)
    size = write_packed(file, made)
    recording.add(Snapshot(recording.next_number, number, number, 1, 5000, size, file=file))
    folder.write_index(recording.every, recording.lines())
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for number in (1, 2):
    record(number)
for size in (0, 100, 50_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    for _ in range(3):
        with pytest.raises(OSError):
            record(3)
    with pytest.raises(OSError) if size < 200 else open("/dev/null"):
        folder.write_index(recording.every, recording.lines())
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert len(list(folder.path.iterdir())) == 3, list(folder.path.iterdir())
    assert [line.step for line in read_index(folder.path).snapshots] == [1, 2]
record(3)
index = read_index(folder.path)
assert [line.step for line in index.snapshots] == [1, 2, 3]
assert len(read_packed(folder.path / index.snapshots[-1].file)) == 5000
print("whole")
""", str(tmp_path / "recorded"), PYTHONPATH=os.pathsep.join(
        filter(None, [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH")])))
    said, errors = process.communicate(timeout=PATIENCE)
    assert said == "whole\n", errors
