"""Ends with an exception that nobody catches, in a thread and then in the main thread."""

import threading

thread = threading.Thread(target=lambda: 1 / 0, name="doomed")
thread.start()
thread.join()
raise RuntimeError("nobody catches this")
