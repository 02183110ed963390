"""multiprocessing with the fork start method: a pool, and a process that is terminated."""

import multiprocessing
import threading
import time


def square(number):
    threading.Thread(target=sum, args=(range(10_000),)).start()
    return number * number


def wait_to_be_terminated(is_up):
    is_up.set()
    time.sleep(60)


if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        print(pool.map(square, range(20)))
        pool.close()
        pool.join()
    is_up = context.Event()
    sleeper = context.Process(target=wait_to_be_terminated, args=(is_up,))
    sleeper.start()
    is_up.wait()
    sleeper.terminate()
    sleeper.join()
    print("terminated with", sleeper.exitcode)
