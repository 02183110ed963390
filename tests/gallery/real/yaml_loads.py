"""PyYAML loads a document in Python, beside a thread that does little."""

import yaml
from ticker import beside_a_ticker

TEXT = yaml.safe_dump([{"name": f"item {n}", "values": [n, n + 1]} for n in range(300)])
beside_a_ticker(lambda: yaml.load(TEXT, Loader=yaml.SafeLoader))
