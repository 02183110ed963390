"""sympy simplifies, beside a thread that does little."""

import sympy
from ticker import beside_a_ticker

x = sympy.Symbol("x")
beside_a_ticker(lambda: sympy.integrate(x**3 * sympy.exp(-x) * sympy.sin(x), x))
