"""Processes of `splatview camera`: one captures pictures, one runs a detector on them."""
