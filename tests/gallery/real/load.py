"""Clients in a process of their own, for the servers of these programs.

`python load.py PORT SECONDS TARGET:CLIENTS ...` asks for each target with so many connections, one
request after the other.
"""

import http.client
import subprocess
import sys
import threading
import time


def clients(port, seconds, *targets):
    """Starts the clients; each of `targets` is "/path:number"."""
    return subprocess.Popen([sys.executable, __file__, str(port), str(seconds), *targets])


def ask(port, end_s, path):
    while time.monotonic() < end_s:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            while time.monotonic() < end_s:
                connection.request("GET", path)
                connection.getresponse().read()
        except OSError:
            # The server begins, or ends.
            time.sleep(0.05)


def main():
    port, seconds, *targets = sys.argv[1:]
    end_s = time.monotonic() + float(seconds)
    for target in targets:
        path, _, number = target.rpartition(":")
        for _ in range(int(number)):
            threading.Thread(target=ask, args=(int(port), end_s, path)).start()


if __name__ == "__main__":
    main()
