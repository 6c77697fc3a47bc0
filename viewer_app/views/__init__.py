"""What shows one kind of stream: one protocol (`base`), one file per kind."""
