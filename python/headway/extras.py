"""How to install the packages of an extra, and headway-lab. Headway runs without them."""

from __future__ import annotations

HOW_TO_INSTALL_LAB = (
    "in Headway's source tree run `make lab`, or `pip install ./lab` in an environment of your own "
    "that has Headway"
)


def how_to_install(extra: str) -> str:
    """The commands to run in Headway's source tree: one for an environment that `make build` made,
    which has no pip, and one for the user's own environment."""
    return (
        f"in Headway's source tree run `make build EXTRAS={extra}`, "
        f"or `pip install '.[{extra}]'` in an environment of your own"
    )
