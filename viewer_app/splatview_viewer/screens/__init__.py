"""Where the picture is seen: one protocol (`base`), one file per implementation."""
