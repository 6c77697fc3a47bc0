"""Renderers, Gaussians to pixels: one protocol (`base`), one file per implementation."""
