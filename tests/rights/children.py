"""Forks a child, and starts another Python; each runs `program.py`. Prints one line."""

import os
import runpy
import subprocess
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program.py")

child = os.fork()
if child == 0:
    runpy.run_path(PROGRAM)
    os._exit(0)
subprocess.run([sys.executable, PROGRAM], check=True)
os.waitpid(child, 0)
