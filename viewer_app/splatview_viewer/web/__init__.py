"""The viewer in a browser: its server in a thread of its own, and tabs as screens."""
