"""networkx computes in Python, beside a thread that does little."""

import networkx
from ticker import beside_a_ticker

graph = networkx.gnm_random_graph(400, 2000, seed=1)
beside_a_ticker(lambda: networkx.betweenness_centrality(graph, k=20, seed=1))
