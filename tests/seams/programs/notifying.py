"""A service of type `notify`: it says to its service manager when it is up and when it stops."""

import os
import queue
import signal
import socket

# A handler may put something into it while the main thread is in it.
over = queue.SimpleQueue()
manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
manager.connect(os.environ["NOTIFY_SOCKET"])
signal.signal(signal.SIGTERM, lambda *_: over.put(None))
manager.send(b"READY=1\nMAINPID=%d" % os.getpid())
print("is up", flush=True)
over.get()
manager.send(b"STOPPING=1")
