"""Names of classes, in all the forms in which they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from splatview.camera.detectors import labels
from splatview.camera.detectors.base import DetectorError

if TYPE_CHECKING:
    from pathlib import Path


FILES = (
    "person\nbicycle\ntraffic light\n",
    "# ours\r\n\r\nperson\r\n bicycle \r\ntraffic light",
    '["person", "bicycle", "traffic light"]',
    '{"0": "person", "1": "bicycle", "2": "traffic light"}',
    "path: ../coco\nnames: [person, 'bicycle', \"traffic light\"]\nnc: 3\n",
    "names: {0: person, 1: bicycle, 2: traffic light}",
    "train: images\nnames:\n  0: person  # first\n  1: bicycle\n  2: 'traffic light'\ndownload: none\n",
    "nc: 3\nnames:\n- person\n- bicycle\n- traffic light\n",
    "names:\n  - person\n  - bicycle\n  - traffic light\nnc: 3",
)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    for text in FILES:
        path.write_text(text)
        names = labels.read(str(path))
        assert [names.text(i) for i in range(4)] == ["person", "bicycle", "traffic light", "class 3"], text
        assert len(names) == 3


def test_metadata() -> None:
    for text in ("{0: 'person', 1: 'cat'}", '{"0": "person", "1": "cat"}', "['person', 'cat']"):
        names = labels.from_metadata(text)
        assert names is not None
        assert [names.text(i) for i in range(3)] == ["person", "cat", "class 2"]
    for text in (None, "", "person", "17", "{'a': 'person'}", "__import__('os').getcwd()", "(" * 100_000,
                 "{0: 'a'" * 50, "[" + "0," * 600_000 + "]", "{[1]: 2}"):
        assert labels.from_metadata(text) is None


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    for content in (None, b"", b"\n\n", b'{"a": 1}', b"[1, 2", b"\xff\xfe\x00", b"names: person\n",
                    b"x" * (1 << 20) + b"y", b"names:\n  zero: person\n", b"names:\n", b"[" * 100_000):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DetectorError) as caught:
            labels.read(str(path))
        assert str(path) in str(caught.value) and len(str(caught.value)) < 1000
