"""What a scene was like earlier in its training: snapshots of streams, kept within a limit, and looked at again."""
