"""Training cameras as they are drawn: content of a stream, frusta, photographs, and which one is under the pointer."""
