"""Everything about sharing between a trainer and its viewers; knows nothing of either.

The trainer's side is `publisher.publisher.Publisher`, the viewer's `subscriber.subscriber.Subscriber`. Between them are
a run folder, typed messages (viewers send them over a Unix socket, which also brings descriptors, and are answered over
ZeroMQ), and shared memory.
"""
