"""What turns Gaussians into pixels: one protocol (`base`), one file per implementation."""
