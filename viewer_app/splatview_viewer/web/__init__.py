"""The viewer in a browser: an HTTP and WebSocket server in a thread of its own, and what goes over the socket."""
