"""Words of every command: help, tables, findings and refusals. `tests/cli/messages.json` has more of the last."""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import TYPE_CHECKING, Any

import torch
from support import frozen

import splatview

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

HELP = ["", "serve", "shot", "video", "memory", "status", "doctor", "demo", "camera"]
QUERIES = ["SHOW TABLES", "SELECT state, count(*) AS n, sum(size) AS bytes FROM blocks GROUP BY ALL ORDER BY state",
           "SELECT own_function AS who, count(*) AS n, format_bytes(sum(size)::BIGINT) AS bytes FROM at_peak() LEFT "
           "JOIN stacks USING (stack_id) GROUP BY ALL ORDER BY sum(size) DESC, who",
           "COPY blocks TO 'stolen.csv'"]
MORE = """
memory after.pickle --sql 'SELECT max(live) AS bytes FROM moments'
memory memory.pickle --csv --sql 'SELECT id, size, lifetime_us FROM allocations ORDER BY id LIMIT 3'
memory memory.pickle --csv
memory memory.pickle --png snapshot.png --size 320x240
shot out.png picture.png --nonsense
shot out.png scene.ply --size 64x48
shot out.png scene.ply --size 64x48 --camera '{"position": [0, 0, -4], "look_at": [0, 0, 0], "near": 90}'
video film scene.ply --size 64x48 --fps 1 --seconds 2
video out.mp4 scene.ply --size 64x48 --fps 10 --seconds 0.3
video
serve --port many
status nonsense
doctor --nonsense
camera
demo --nonsense
"""


def said(answers: dict[str, tuple[int, str, str]], folder: Path) -> str:
    """What each command said, without folders and progress."""
    parts = []
    for command, (code, out, err) in answers.items():
        text = "".join(f"{mark} {line}".rstrip() + "\n" for mark, lines in (("|", out), ("!", err))
                       for line in lines.splitlines() if not re.search(r" pictures, [\d.]+/s", line))
        parts.append(f"$ splatview {command}\n{text.replace(str(folder), 'FOLDER')}= {code}\n")
    return "\n".join(parts)


def test_help_is_as_frozen(tmp_path: Path) -> None:
    frozen.check_text("help.txt", said(frozen.run_all({f"{c} --help".strip(): (*c.split(), "--help") for c in HELP},
                                                      tmp_path), tmp_path))


def test_answers_and_refusals_are_as_frozen(inputs: Path, tmp_path: Path) -> None:
    for path in inputs.iterdir():
        (tmp_path / path.name).symlink_to(path)
    queries = (shlex.join(["memory", "memory.pickle", "--sql", query]) for query in QUERIES)
    lines = [*queries, *MORE.strip().splitlines()]
    answers = frozen.run_all({line: shlex.split(line) for line in lines}, tmp_path,
                             XDG_CACHE_HOME=str(tmp_path / "cache"))
    frozen.check_text("answers.txt", said(answers, tmp_path))
    assert not (tmp_path / "stolen.csv").exists()


def keys_of(value: Any) -> Any:
    """The same with types in place of values that depend on the machine."""
    if isinstance(value, dict):
        return {key: keys_of(one) for key, one in value.items()}
    return [keys_of(value[0])] if isinstance(value, list) and value else type(value).__name__


def test_status_and_doctor_are_as_frozen(tmp_path: Path, runtime_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPLATVIEW_NAME", "train")
    splatview.publish(torch.zeros(4, 6, 3), "render", step=1)
    splatview.publish({name: torch.from_numpy(part) for name, part in frozen.scene().items()}, step=2)
    commands = {c: c.split() for c in ("status", "status --json", "status --run nosuch", "doctor --json")}
    answers = frozen.run_all(commands, tmp_path)

    def plain(text: str) -> str:
        run = json.loads(answers["status --json"][1])["runs"][0]["run"]
        for value, name in ((run, "RUN"), (str(runtime_dir), "FOLDER"), (str(os.getpid()), "PID")):
            text = text.replace(value, name)
        return text

    status, findings = (json.loads(answers[f"{command} --json"][1]) for command in ("status", "doctor"))
    kept = "name", "kind", "version", "shape", "dtype", "device", "sharing", "ways"
    found = {"status": plain(answers["status"][1]).splitlines(), "status --json": keys_of(status),
             "streams": [{key: stream[key] for key in kept} for stream in status["runs"][0]["streams"]],
             "status --run nosuch": plain(answers["status --run nosuch"][1]),
             "doctor --json": keys_of(findings), "doctor": [finding["name"] for finding in findings]}
    frozen.check_text("status.json", json.dumps(found, indent=1) + "\n")
