"""Scenes packed into blocks, as GPUs draw them from integer textures."""
