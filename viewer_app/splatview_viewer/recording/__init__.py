"""Snapshots of scenes during their training: taken, kept within a limit, and shown
again.
"""
