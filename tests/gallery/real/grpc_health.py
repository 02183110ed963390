"""grpcio: calls that need next to nothing, beside calls that compute for 300 ms."""

import subprocess
import sys
import time
from concurrent import futures

import grpc

ADDRESS = "127.0.0.1:8795"
SECONDS = 5
METHODS = ("check", "slow")


def ask():
    with grpc.insecure_channel(ADDRESS) as channel:
        grpc.channel_ready_future(channel).result(timeout=20)
        calls = [channel.unary_unary(f"/test/{name}") for name in METHODS]
        end_s, pending = time.monotonic() + SECONDS - 1, []
        while time.monotonic() < end_s:
            pending = [each for each in pending if not each.done()]
            while len(pending) < 2:
                pending.append(calls[1].future(b""))
            calls[0](b"")
            time.sleep(0.01)


def check(request, context):
    return b""


def slow(request, context):
    end_s = time.thread_time() + 0.3
    while time.thread_time() < end_s:
        sum(range(1000))
    return b""


if sys.argv[1:] == ["ask"]:
    ask()
    raise SystemExit
server = grpc.server(futures.ThreadPoolExecutor(4))
handlers = {name: grpc.unary_unary_rpc_method_handler(globals()[name]) for name in METHODS}
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test", handlers)])
server.add_insecure_port(ADDRESS)
server.start()
subprocess.run([sys.executable, __file__, "ask"], check=False)
server.stop(0).wait()
