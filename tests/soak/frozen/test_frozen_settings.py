"""Files that the viewer writes for a user: what is in them, and that those of today are read."""

from __future__ import annotations

import json
import shutil
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from support import frozen

import splatview

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from support.programs import Programs

LIGHT = 265, 745
"""The word in the panel's corner, of a TALL tab with one file in the list."""
RECORDING = frozen.FOLDER / "recording"


def rounded(value: Any) -> Any:
    """The same with numbers of six digits."""
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return round(value, 6) + 0.0 if isinstance(value, float) else value


def look(x: float) -> str:
    return json.dumps({"position": [x, -1.5, -6], "look_at": [0, 0.2, 0]})


def test_settings_are_written_as_frozen(inputs: Path, tmp_path: Path, programs: Programs,
                                        wait_until: Callable[..., Any]) -> None:
    """Two keyframes of a path, a bookmark, light colours."""
    kept = tmp_path / "splatview" / "viewer.json"
    with frozen.opened(frozen.serve(programs, inputs / "scene.ply", XDG_STATE_HOME=str(tmp_path))) as page:
        page.loaded()
        for x in (-1.0, 1.5):
            page.send("text", text=look(x))
            page.settle()
            page.key("k")
        page.key("3", "shift")
        page.click(*LIGHT)
        wait_until(lambda: kept.is_file() and "light" in kept.read_text())
    frozen.check_text("settings.json", json.dumps(rounded(json.loads(kept.read_text())), indent=1) + "\n")


def test_settings_of_today_are_read(inputs: Path, tmp_path: Path, programs: Programs) -> None:
    (tmp_path / "splatview").mkdir(mode=0o700)
    shutil.copy(frozen.FOLDER / "settings.json", tmp_path / "splatview" / "viewer.json")
    path = json.loads((frozen.FOLDER / "settings.json").read_text())["path/scene.ply"]
    (tmp_path / "path.json").write_text(json.dumps(path))
    film = "video", "film", inputs / "scene.ply", "--path", "path.json", "--size", "160x120", "--fps", "1"
    code, _, err = frozen.run_all({"": film}, tmp_path)[""]
    assert code == 0, err
    frozen.check_picture("film-path", frozen.pixels_of(tmp_path / "film" / "000001.png"), tmp_path)
    with frozen.opened(frozen.serve(programs, inputs / "scene.ply", XDG_STATE_HOME=str(tmp_path))) as page:
        page.loaded()
        page.check_seen("panel-light", tmp_path, frozen.PANEL)
        page.key("3")
        page.check_kept("bookmark", tmp_path)


def header_of(file: Path) -> dict[str, Any]:
    """Magic and header of a recorded scene."""
    data = file.read_bytes()
    (size,) = struct.unpack_from("<I", data, 8)
    return {"magic": data[:8].decode(), "header": json.loads(data[12:12 + size]), "bytes": len(data)}


def test_recording_is_written_as_frozen(tmp_path: Path, programs: Programs, monkeypatch: pytest.MonkeyPatch,
                                        wait_until: Callable[..., Any]) -> None:
    monkeypatch.setenv("SPLATVIEW_NAME", "train")
    programs.splatview("serve", "--offscreen", "--record", "kept", "--record-every", "10")
    small = {name: torch.from_numpy(part) for name, part in frozen.scene(0, 40).items()}

    def recorded() -> list[Path]:
        """Publish once more; the indices that name a snapshot."""
        splatview.publish(small, step=20)
        indices = (tmp_path / "kept").rglob("recording.json")
        return [path for path in indices if json.loads(path.read_text())["snapshots"]]

    (file,) = wait_until(recorded)
    index = json.loads(file.read_text())
    scene = file.parent / index["snapshots"][0]["file"]
    if frozen.freezing():
        shutil.rmtree(RECORDING, ignore_errors=True)
        shutil.copytree(file.parent, RECORDING)
    line = index["snapshots"][0]
    found = {"index": {**index, "snapshots": [{**line, "time_ns": "int", "version": "int"}]}, "scene": header_of(scene)}
    frozen.check_text("recording.json", json.dumps(found, indent=1) + "\n")


def test_recording_of_today_is_read(tmp_path: Path, programs: Programs) -> None:
    with frozen.opened(frozen.serve(programs, RECORDING, XDG_STATE_HOME=str(tmp_path)), frozen.SMALL) as page:
        page.until(lambda m: m.get("lossless") and (np.ptp(page.shown, axis=2) > 30).mean() > 0.02)  # it is loaded
        page.check_kept("recording", tmp_path)
