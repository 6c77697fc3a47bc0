"""Names of classes, in all the forms in which they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from splatview.camera.detectors import labels
from splatview.camera.detectors.base import DetectorError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("text", [
    "person\nbicycle\ntraffic light\n",
    "# ours\r\n\r\nperson\r\n bicycle \r\ntraffic light",
    '["person", "bicycle", "traffic light"]',
    '{"0": "person", "1": "bicycle", "2": "traffic light"}',
    "path: ../coco\nnames: [person, 'bicycle', \"traffic light\"]\nnc: 3\n",
    "names: {0: person, 1: bicycle, 2: traffic light}",
    "train: images\nnames:\n  0: person  # first\n  1: bicycle\n  2: 'traffic light'\ndownload: none\n",
    "nc: 3\nnames:\n- person\n- bicycle\n- traffic light\n",
    "names:\n  - person\n  - bicycle\n  - traffic light\nnc: 3",
])
def test_files(tmp_path: Path, text: str) -> None:
    path = tmp_path / "labels"
    path.write_text(text)
    names = labels.read(str(path))
    assert [names.text(i) for i in range(4)] == ["person", "bicycle", "traffic light", "class 3"]
    assert len(names) == 3


def test_numbers_from_one(tmp_path: Path) -> None:
    """Some networks call the first class 1."""
    path = tmp_path / "labels.txt"
    path.write_text("person\nbicycle\n")
    names = labels.read(str(path))
    assert [names.text(i, 1) for i in range(4)] == ["class 0", "person", "bicycle", "class 3"]
    for nothing in ("background", "__background__", "???"):  # such lists say so themselves
        path.write_text(f"{nothing}\nperson\nbicycle\n")
        assert labels.read(str(path)).text(1, 1) == "person"
    path.write_text('{"1": "person", "17": "cat"}')
    assert labels.read(str(path)).text(17, 1) == "cat"


def test_cocos_names() -> None:
    names, gaps = labels.coco(), labels.coco(gaps=True)
    assert (len(names), len(gaps)) == (80, 80)
    assert [names.text(i) for i in (0, 15, 79, 80)] == ["person", "cat", "toothbrush", "class 80"]
    assert [gaps.text(i, 1) for i in (1, 12, 13, 17, 90)] == ["person", "class 12", "stop sign", "cat", "toothbrush"]
    assert names.text(80, 1) == "toothbrush"


@pytest.mark.parametrize("text", ["{0: 'person', 1: 'cat'}", '{"0": "person", "1": "cat"}', "['person', 'cat']"])
def test_metadata(text: str) -> None:
    names = labels.from_metadata(text)
    assert names is not None
    assert [names.text(i) for i in range(3)] == ["person", "cat", "class 2"]


@pytest.mark.parametrize("text", [
    None, "", "person", "17", "{'a': 'person'}", "__import__('os').getcwd()", "(" * 100_000, "{0: 'a'" * 50,
    "[" + "0," * 600_000 + "]", "{[1]: 2}",
], ids=lambda text: str(text)[:20])
def test_metadata_that_says_nothing(text: str | None) -> None:
    assert labels.from_metadata(text) is None


def test_names_are_made_fit_to_be_shown() -> None:
    names = labels.from_metadata("{0: 'a\\nb\\x00c', 1: 'x" + "y" * 5000 + "', 2: ''}")
    assert names is not None
    assert (names.text(0), len(names.text(1)), names.text(2)) == ("a b c", 100, "class 2")


@pytest.mark.parametrize(("content", "words"), [
    (None, "No such file"), (b"", "no name"), (b"\n\n", "no name"), (b'{"a": 1}', "legal are"), (b"[1, 2", "legal are"),
    (b"\xff\xfe\x00", "legal are"), (b"names: person\n", "no list or mapping"),
    (b"x" * (1 << 20) + b"y", "more than 1 MiB"), (b"names:\n  zero: person\n", "legal are"), (b"names:\n", "no name"),
    (b"[" * 100_000, "legal are"),
], ids=lambda given: str(given)[:20])
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "labels.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DetectorError, match=words) as caught:
        labels.read(str(path))
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 1000
