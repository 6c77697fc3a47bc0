"""The parts of the browser's benchmarks: numbered pictures, a page, a socket.

Every part of a measurement is a program of its own, started by `harness.Program`:
`publisher` publishes, `serve` is the command `serve` itself, which only tells its
threads' names as well, `page` stands for the page. They answer commands that come as
lines of JSON.
"""
