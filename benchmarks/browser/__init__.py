"""What the benchmarks of the browser screen share: numbered pictures, the page without a browser.

Every part of a measurement is a program of its own, started by `harness.Program`: `publisher` publishes, `serve` is
the command `serve` itself, which only tells its threads' names as well, `page` stands for the page. They answer
commands that come as lines of JSON.
"""
