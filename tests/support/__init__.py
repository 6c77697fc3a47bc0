"""What the tests share: programs, waiting, frames, scenes, viewers."""
