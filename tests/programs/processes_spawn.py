"""multiprocessing with the spawn start method: a pool, and a process that is terminated."""

import multiprocessing
import threading
import time


def square(number):
    threading.Thread(target=sum, args=(range(10_000),)).start()
    return number * number


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    with context.Pool(2) as pool:
        print(pool.map(square, range(20)))
    sleeper = context.Process(target=time.sleep, args=(60,))
    sleeper.start()
    time.sleep(0.05)
    sleeper.terminate()
    sleeper.join()
    print("terminated with", sleeper.exitcode)
