"""The recipes of docs/how-to/recipes: each is a tool that people use, and the line that changes.

A recipe's page, its program in examples/recipes, its measurement (`bench/recipes.py`) and its tests
(tests/recipes) follow the description here.
"""

from __future__ import annotations

from typing import NamedTuple

EXAMPLES = {"PORT": "8000", "SECONDS": "10", "FOLDER/": "", "RECIPES/": ""}


class Recipe(NamedTuple):
    """A tool's command, and how its latency is measured.

    - `name`: the argument of `bench/recipes.py --recipe`, and the name of the page.
    - `title`: the tool in the table, in words.
    - `packages`: the distributions whose versions the table names, and which a test needs.
    - `command`: the tool's command. It runs with examples/recipes on PYTHONPATH. In it and in
      `client`, PORT stands for a free port, FOLDER for an empty folder, RECIPES for
      examples/recipes, and SECONDS for the length of the measurement.
    - `value`: the value of HEADWAY that the page adds.
    - `is_job`: whether the tool ends by itself. Otherwise it ends at SIGTERM.
    - `client`: the command of a program that waits for the tool, uses it and ends, without Headway.
      If there is none and the tool is no job, it is an HTTP server with the pages `/` and
      `/heavy`, and the visitors of `visits` use it.
    - `light`, `heavy`: the work that is measured, as the page's sentences call it. A job or a
      client prints one line with `latencies.print_latencies` of examples/recipes.
    - `page`: the page below docs/, if it is not how-to/recipes/NAME.md.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    command: str
    value: str = "priority"
    is_job: bool = False
    client: str = ""
    light: str = "a light request"
    heavy: str = "heavy requests"
    page: str = ""

    @property
    def path(self) -> str:
        """The page, below docs/."""
        return self.page or f"how-to/recipes/{self.name}.md"

    @property
    def shown(self) -> str:
        """The command with the line that changes, as the page and the table have it."""
        shown = self.command
        for word, example in EXAMPLES.items():
            shown = shown.replace(word, example)
        return f"HEADWAY={self.value} {shown}"


RECIPES = (
    Recipe(
        name="uvicorn",
        title="uvicorn, Starlette's threads",
        packages=("uvicorn", "starlette"),
        command="uvicorn uvicorn_app:app --port PORT",
    ),
)


def named(name: str) -> Recipe:
    """Raises KeyError."""
    return {each.name: each for each in RECIPES}[name]
