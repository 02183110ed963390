"""An echo server on asyncio's streams, with CPU-bound threads beside its loop.

    asyncio_echo_server.py CPU_THREADS SWITCH_INTERVAL_S

The main thread runs the loop; a thread named "control" talks to the benchmark.
"""

from __future__ import annotations

import asyncio
import sys
import threading

import window
from computation import control


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # TCP_NODELAY is asyncio's own default.
    while data := await reader.read(4096):
        writer.write(data)
        await writer.drain()
    writer.close()


def talk(port: int, cpu_threads: int) -> None:
    window.answer(**control(cpu_threads, port=port))


async def serve(cpu_threads: int) -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    talking = threading.Thread(target=talk, args=(port, cpu_threads), name="control")
    talking.start()
    await server.serve_forever()


if __name__ == "__main__":
    sys.setswitchinterval(float(sys.argv[2]))
    asyncio.run(serve(int(sys.argv[1])))
