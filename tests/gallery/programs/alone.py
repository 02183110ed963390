"""One thread that computes."""

import time

END_S = time.monotonic() + 2
while time.monotonic() < END_S:
    sum(range(1000))
