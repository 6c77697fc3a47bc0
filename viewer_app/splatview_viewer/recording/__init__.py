"""Snapshots of scenes during their training, within a limit, and their display."""
