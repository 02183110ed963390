"""multiprocessing by one of its start methods: a pool, processes, their ends, shared memory."""

import multiprocessing
import signal
import sys
import threading
import time
from multiprocessing import shared_memory


def square(number):
    return number * number


def run(context, target, *arguments):
    process = context.Process(target=target, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def main(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2, maxtasksperchild=2) as pool:
        print("pool:", pool.map(square, range(8), chunksize=1), flush=True)
        pool.close()
        pool.join()
    print("status:", run(context, sys.exit, 5), flush=True)
    terminated = context.Process(target=time.sleep, args=(600,))
    terminated.start()
    terminated.terminate()
    terminated.join()
    print("terminated:", terminated.exitcode, flush=True)
    in_thread = []
    thread = threading.Thread(target=lambda: in_thread.append(run(context, sys.exit, 6)))
    thread.start()
    thread.join()
    print("from a thread:", in_thread, flush=True)
    memory = shared_memory.SharedMemory(create=True, size=64)
    memory.close()
    memory.unlink()
    print("children:", multiprocessing.active_children(), flush=True)
    # Ended by the pool's finalizer.
    pool = context.Pool(2)
    print("pool:", pool.map(square, range(2)), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    print("is up", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
