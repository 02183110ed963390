"""A service that answers each request after 200 ms.

It prints its port and serves until it is ended.
"""

import asyncio
import json

DELAY_S = 0.2
HEAD = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
    "Connection: close\r\n\r\n"
)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        request = await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(DELAY_S)
        book = request.split()[1].decode().strip("/")
        body = json.dumps({"book": book, "days": 1 + len(book)})
        writer.write((HEAD.format(len(body)) + body).encode())
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        # The client went.
        pass
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
