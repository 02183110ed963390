"""msgspec decodes a large document in one call, beside a thread that does little."""

import msgspec
from ticker import beside_a_ticker

DATA = msgspec.json.encode([{"name": "item", "values": [n, n + 1]} for n in range(200_000)])
beside_a_ticker(lambda: msgspec.json.decode(DATA))
