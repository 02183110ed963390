"""asyncio's handlers of signals, and its subprocesses."""

import asyncio
import signal
import sys


async def main():
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    run = asyncio.create_subprocess_exec
    short = await run(sys.executable, "-c", "raise SystemExit(3)")
    print("short:", await short.wait(), flush=True)
    long = await run(sys.executable, "-c", "import signal; signal.pause()")
    print("is up", flush=True)
    await over.wait()
    long.terminate()
    print("long:", await long.wait(), flush=True)


asyncio.run(main())
