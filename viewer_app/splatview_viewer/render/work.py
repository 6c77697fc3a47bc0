"""How much work one picture may be, and what is said when a scene asks for more.

A million Gaussians that each cover the whole picture are billions of pairs of Gaussian and tile: minutes in which a GPU
answers nobody, until its driver ends the program, and more memory than there is. So each renderer counts what a picture
is going to cost and draws the Gaussians from the nearest on until that is spent. What is left out lies behind all
that is drawn. Scenes as they are trained stay far below these bounds.
"""

from __future__ import annotations

PAIRS_MAX = 1 << 27
"""Pairs of Gaussian and tile (16 pixels a side) that the CUDA renderer draws: 1.2 GB, a fifth of a second."""
LISTED_MAX = 1 << 26
"""Pairs of Gaussian and tile (8 pixels a side) that OpenGL goes through, of those that nothing finished hides: some
seconds of a software rasteriser."""
PIXELS_MAX = 1 << 33
"""Pixels that OpenGL fills with Gaussians, each time that one is filled: a second or two of a graphics card."""
SOFTWARE_PIXELS_MAX = PIXELS_MAX >> 4
"""The same of a software rasteriser."""


def words(wanted: float, spent: float) -> str:
    """What a picture lacks that would have cost `wanted` and was stopped after `spent`; "" where it lacks nothing."""
    if wanted <= spent:
        return ""
    ratio = wanted / max(spent, 1)
    return f"only the nearest are shown: all would take {ratio:,.{0 if ratio >= 10 else 1}f} times as long"
