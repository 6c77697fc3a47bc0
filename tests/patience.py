"""How long tests wait for what must happen."""

from __future__ import annotations

PATIENCE = 240.0
"""Seconds. No promise of speed: who waits so long waits for something that never comes. A machine with other work
to do may well take ten times as long as usual, and a test fails for what is wrong, not for what is late."""
