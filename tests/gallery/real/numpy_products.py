"""numpy multiplies matrices in two threads, and drops the GIL meanwhile."""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy
from ticker import beside_a_ticker

matrix = numpy.random.default_rng(1).random((600, 600))
beside_a_ticker(lambda: matrix @ matrix, 2)
