"""Eight threads that download from a server which answers after 50 ms."""

import http.server
import subprocess
import sys
import threading
import time

import httpx

if sys.argv[1:] == ["serve"]:

    class Slow(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            time.sleep(0.05)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *arguments):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", 8796), Slow).serve_forever()

server = subprocess.Popen([sys.executable, __file__, "serve"])
time.sleep(1)
END_S = time.monotonic() + 3


def download():
    with httpx.Client() as client:
        while time.monotonic() < END_S:
            client.get("http://127.0.0.1:8796/")


threads = [threading.Thread(target=download, name=f"download-{n}") for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
server.kill()
server.wait()
