"""Which way suits CUDA tensors best, as told by the caller and by where they lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.gpu_on_cpu import installed, moved, picture, running, scene

from splatview.ipc.preference import Place, Preference


def places(text: str) -> list[int]:
    """"..x." : stays, stays, moves, stays."""
    found, place = [], 0
    for letter in text:
        place += letter == "x"
        found.append(place)
    return found


@pytest.mark.parametrize(("kind", "text", "first"), [
    ("gaussians", "x", "in-place"),
    ("gaussians", "x........", "in-place"),
    ("gaussians", "xx.xx.xx.xx.", "in-place"),
    ("gaussians", "xxx", "device-ring"),
    ("gaussians", "x..........xxx", "device-ring"),
    ("gaussians", "xxxxxx..", "device-ring"),
    ("gaussians", "xxxxxx...", "in-place"),
    ("gaussians", ("." * 99 + "x") * 20, "in-place"),
    ("image", "x", "device-ring"),
    ("image", "x..", "device-ring"),
    ("image", "x...", "in-place"),
    ("image", "x..x..x..x", "device-ring"),
    ("image", "x...xx.xx", "in-place"),
    ("image", "x...xxx", "device-ring"),
])
def test_what_the_tensors_show(kind: str, text: str, first: str) -> None:
    preference = Preference(kind)
    for place in places(text):
        before = preference.ways()
        assert preference.saw(place) == (preference.ways() != before)
    assert preference.ways()[0] == first
    assert preference.ways()[-1] == "host"


@pytest.mark.parametrize(("wishes", "ways"), [
    ((True, False), ("device-ring", "host")),
    ((False, False), ("in-place", "host")),
    ((None, True), ("in-place", "device-ring", "host")),
])
def test_what_the_caller_says(wishes: tuple[bool | None, bool], ways: tuple[str, ...]) -> None:
    for kind in ("image", "gaussians"):
        preference = Preference(kind)
        preference.wishes = wishes
        for place in places("x....xxxxxx......"):
            assert not preference.saw(place)
            assert preference.ways() == ways


def test_a_place_is_where_and_how_tensors_lie() -> None:
    place = Place()
    a, b = torch.zeros(6, 4), torch.zeros(6)
    assert not place.same((a, b))
    assert place.same((a, b))
    assert place.same((a.detach(), b[:])), "other objects, the same memory"
    assert not place.same((a.t(), b))
    assert not place.same((a.view(4, 6), b))
    assert not place.same((a, b.clone()))
    assert not place.same((a, b))
    assert place.number == 5
    a.data = torch.zeros(6, 4)
    assert not place.same((a, b)), "the same object, other memory"
    parameter = torch.nn.Parameter(a)
    assert place.same((parameter, b))
    with torch.no_grad():
        parameter.add_(1)
    assert place.same((parameter, b))
    assert not place.same((parameter,))
    place.forget()
    assert not place.same((parameter,))


@pytest.mark.parametrize(("kind", "way"), [("gaussians", "in-place"), ("image", "device-ring")])
def test_short_visits_do_not_change_the_way(monkeypatch: pytest.MonkeyPatch, kind: str, way: str) -> None:
    """The first publish after the last viewer has left does not show whether its tensors have moved."""
    installed(monkeypatch)
    with running(kind, way) as run:
        value: Any = scene() if kind == "gaussians" else picture(4, 5, 3)
        run.publish(value)
        stream = run.stream
        assert stream._offered.ways[0] == way
        for _ in range(5):
            stream.release(way)
            stream.open(way)
            run.publish(value if kind == "gaussians" else picture(4, 5, 3))
            assert stream._offered.ways[0] == way
        for _ in range(4):  # while it is watched, three in a row do; the first image is a new one
            value = moved(value, "densified") if kind == "gaussians" else value
            run.publish(value)
        other = {"in-place": "device-ring", "device-ring": "in-place"}[way]
        assert stream._offered.ways[0] == other
