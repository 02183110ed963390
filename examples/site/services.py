"""Runs a command with what the bookshop needs: a PostgreSQL of its own and the delivery service.

    python services.py headway serve bookshop.wsgi:application --threads 4

PostgreSQL is Debian's (package postgresql). Its data are in a temporary folder and are gone at the
end; it listens on a socket in that folder alone. As root it runs as the user postgres.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
SAMPLE_DATA = str(HERE / "sample_data.py")
# A crash of the machine loses data that are made anew anyway.
SETTINGS = ("listen_addresses=", "fsync=off", "max_connections=200", "shared_buffers=128MB")
START_S = 60.0


class Missing(Exception):
    """Something that the bookshop needs is not installed."""


class Database(NamedTuple):
    """`folder` has the socket. The site logs in as bookshop, which owns its database alone."""

    folder: Path
    password: str
    pid: int


class Services:
    """`environment` is what the bookshop's processes need; PostgreSQL is process `postgres_pid`."""

    def __init__(self, database: Database, port: int) -> None:
        self.environment = {
            "BOOKSHOP_DATABASE": str(database.folder),
            "BOOKSHOP_PASSWORD": database.password,
            "BOOKSHOP_DELIVERY": str(port),
            "DJANGO_SETTINGS_MODULE": "bookshop.settings",
            "PYTHONPATH": str(HERE),
        }
        self.postgres_pid = database.pid

    def restore(self) -> None:
        """Removes what visitors left in the database."""
        self.run(SAMPLE_DATA, "--restore")

    def run(self, *words: str) -> None:
        """Runs a Python program of the bookshop's."""
        environment = {**os.environ, **self.environment}
        subprocess.run([sys.executable, *words], env=environment, check=True)


def postgres_folder() -> Path:
    """The folder of the newest installed PostgreSQL's programs."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"),
        key=lambda path: [int(digits) for digits in re.findall(r"\d+", str(path))],
    )
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise Missing("PostgreSQL is not installed: apt-get install postgresql")
    return Path(on_path).resolve().parent


def database_user() -> str | None:
    """The user that PostgreSQL runs as; None is the present one. It refuses to run as root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        raise Missing("PostgreSQL does not run as root, and there is no user postgres") from None


@contextmanager
def postgres() -> Iterator[Database]:
    """A server with an empty database bookshop. Whoever reaches its socket needs the password."""
    programs, user = postgres_folder(), database_user()
    # Another user may not reach the folder that TMPDIR names.
    place = None if user is None else "/tmp"
    with tempfile.TemporaryDirectory(prefix="bookshop-", dir=place) as name:
        folder = Path(name)
        if user is not None:
            shutil.chown(folder, user)
            # The site may run as yet another user.
            folder.chmod(0o755)
        data, log, secret = folder / "data", folder / "log", folder / "secret"
        administrator, password = secrets.token_hex(16), secrets.token_hex(16)
        # Not the user's locale, which Debian may lack.
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "PGPASSWORD": administrator}
        with open(secret, "x", opener=private) as file:
            file.write(administrator)
        if user is not None:
            shutil.chown(secret, user)
        groups: list[int] | None = None if user is None else []

        def run(program: str, *words: str | Path, said: str = "") -> None:
            ended = subprocess.run(
                [programs / program, *words],
                input=said,
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                user=user,
                group=user,
                extra_groups=groups,
            )
            if ended.returncode != 0:
                raise Missing(f"{program}: {ended.stderr.strip() or ended.stdout.strip()}")

        run("initdb", "-D", data, "-U", "postgres", "-A", "scram-sha-256", "-N", "--pwfile", secret)
        words: list[str | Path] = [programs / "postgres", "-D", data, "-k", folder]
        words += [word for setting in SETTINGS for word in ("-c", setting)]
        with log.open("w") as said:
            server = subprocess.Popen(
                words,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                # Ctrl-C is for what uses it, which ends first.
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=groups,
            )
        try:
            wait_until_ready(programs, folder, server, log)
            role = f"CREATE ROLE bookshop LOGIN PASSWORD '{password}'"
            run("psql", "-q", "-h", folder, "-U", "postgres", "-v", "ON_ERROR_STOP=1", said=role)
            run("createdb", "-h", folder, "-U", "postgres", "-O", "bookshop", "bookshop")
            yield Database(folder, password, server.pid)
        finally:
            # Fast shutdown: sessions end now.
            server.send_signal(signal.SIGINT)
            server.wait()


def private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def wait_until_ready(
    programs: Path, folder: Path, server: subprocess.Popen[bytes], log: Path
) -> None:
    end_s = time.monotonic() + START_S
    asked = (programs / "pg_isready", "--quiet", "-h", folder)
    while subprocess.run(asked).returncode != 0:
        if server.poll() is not None or time.monotonic() > end_s:
            raise Missing(f"PostgreSQL does not start: {log.read_text().strip()[-500:]}")
        time.sleep(0.05)


@contextmanager
def delivery() -> Iterator[int]:
    """The delivery service; yields its port."""
    service = subprocess.Popen(
        [sys.executable, str(HERE / "delivery_service.py")],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert service.stdout is not None
    try:
        yield int(service.stdout.readline())
    finally:
        service.terminate()
        service.wait()
        service.stdout.close()


@contextmanager
def services() -> Iterator[Services]:
    """PostgreSQL with the bookshop's data, and the delivery service."""
    with postgres() as database, delivery() as port:
        found = Services(database, port)
        found.run("-m", "django", "migrate", "--run-syncdb", "--verbosity", "0")
        found.run(SAMPLE_DATA)
        yield found


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The exit status of a command, which SIGINT and SIGTERM end, also while it starts."""
    programs: list[subprocess.Popen[bytes]] = []
    is_ended = threading.Event()

    def end(*_: object) -> None:
        is_ended.set()
        for program in programs:
            program.terminate()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    programs.append(subprocess.Popen(command, env=environment, cwd=HERE))
    if is_ended.is_set():
        end()
    return programs[0].wait()


def main() -> int:
    command = sys.argv[1:]
    if not command or command[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if command else 2
    # SIGTERM ends the services too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with services() as found:
            print("bookshop: PostgreSQL and the delivery service run", file=sys.stderr)
            status = run(command, {**os.environ, **found.environment})
            # The status that a shell gives a program that a signal ended.
            return status if status >= 0 else 128 - status
    except Missing as missing:
        print(f"bookshop: {missing}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError:
        # It said what is wrong.
        return 1
    except FileNotFoundError as error:
        print(f"bookshop: {command[0]}: {error.strerror}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
