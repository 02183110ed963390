"""How the packages of an extra come into an environment. Headway itself imports none of them."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """What to run in Headway's source tree. It is right for an environment that `make build` made,
    which has no pip, and for one of the user's own."""
    return (
        f"in Headway's source tree run `make build EXTRAS={extra}`, "
        f"or `pip install '.[{extra}]'` in an environment of your own"
    )
