"""Does its last work in atexit callbacks, after its threads ended, and exits 7."""

import atexit
import sys
import threading

atexit.register(print, "registered first, runs last")
atexit.register(sum, range(100_000))
atexit.register(lambda: print("threads:", threading.active_count()))
worker = threading.Thread(target=lambda: print("non-daemon threads end first"))
worker.start()
sys.exit(7)
