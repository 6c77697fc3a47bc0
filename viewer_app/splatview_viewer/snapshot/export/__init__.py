"""Documents about a snapshot that need nothing else: an HTML page, an SVG."""
