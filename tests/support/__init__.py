"""Shared by the tests: programs, waiting, frames, scenes, viewers."""
