"""The products that customers liked together: their ratings' correlation, in pure Python.

This is the shop's heavy page on purpose. It looks at every rating in the catalogue and never
gives the GIL up by itself, like many a report, export or template that grew over the years.
"""

import math

Ratings = dict[int, dict[int, int]]


def similarity(one: dict[int, int], other: dict[int, int]) -> float:
    """Pearson's correlation over the customers that two products share, from -1 to 1."""
    shared = [(stars, other[customer]) for customer, stars in one.items() if customer in other]
    if len(shared) < 3:
        return 0.0
    mean_one = sum(a for a, _ in shared) / len(shared)
    mean_other = sum(b for _, b in shared) / len(shared)
    product = sum((a - mean_one) * (b - mean_other) for a, b in shared)
    spread_one = sum((a - mean_one) ** 2 for a, _ in shared)
    spread_other = sum((b - mean_other) ** 2 for _, b in shared)
    return product / math.sqrt(spread_one * spread_other) if product else 0.0


def most_similar(ratings: Ratings, product_id: int, limit: int) -> list[tuple[int, float]]:
    """The products most like this one, best first, each with its similarity."""
    mine = ratings[product_id]
    scored = [
        (other_id, similarity(mine, other))
        for other_id, other in ratings.items()
        if other_id != product_id
    ]
    scored.sort(key=lambda pair: (-pair[1], pair[0]))
    return scored[:limit]
