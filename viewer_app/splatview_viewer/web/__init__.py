"""The viewer in a browser: an HTTP and WebSocket server in its own thread, the page,
and its tab as a screen.
"""
