"""An Apache with mod_wsgi in a folder of its own: its location, its configuration and its start.

Apache's event MPM accepts the connections, and daemon processes of mod_wsgi serve the requests, as
its documentation recommends for production; there is no access log. Apache comes from the system,
mod_wsgi from a Python environment. This module does not know the application, loads or reports.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from functools import cache
from pathlib import Path

from headway.programs.processes import ProgramError

MODULES = Path("/usr/lib/apache2/modules")
APACHE = shutil.which("apache2") or "/usr/sbin/apache2"
TIMEOUT_S = 30
# mod_wsgi does not serve as root, and another user may not reach an interpreter below /root.
USER = "www-data"
AS_USER = (
    *("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--pdeathsig=TERM"),
)
CONFIGURATION = """\
ServerRoot {folder}
ServerName 127.0.0.1
Listen 127.0.0.1:{port}
PidFile {folder}/httpd.pid
Mutex file:{folder}
LoadModule mpm_event_module {modules}/mod_mpm_event.so
LoadModule authz_core_module {modules}/mod_authz_core.so
{wsgi_module}
ServerLimit 1
StartServers 1
ThreadLimit 64
ThreadsPerChild 64
MaxRequestWorkers 64
KeepAlive On
MaxKeepAliveRequests 0
WSGISocketPrefix {folder}/wsgi
{directives}
WSGIScriptAlias / {folder}/application.wsgi
<Directory {folder}>
  Require all granted
</Directory>
"""
TO_STDERR = "ErrorLog /proc/self/fd/2\nLogLevel error\n"


def command(folder: Path, port: int, express: Path, application: str, directives: str) -> list[str]:
    """Writes the configuration, and `application`, the source of the script that has it. The folder
    is given to Apache's user, who writes there, too; it is the home to name for daemon processes,
    since that user's own need not exist. Raises ProgramError if mod_wsgi does not say where it
    is."""
    (folder / "application.wsgi").write_text(application)
    configuration = folder / "httpd.conf"
    configuration.write_text(
        CONFIGURATION.format(
            folder=folder,
            port=port,
            modules=MODULES,
            wsgi_module=module_config(express),
            directives=directives,
        )
    )
    words = [APACHE, "-DFOREGROUND", "-f", str(configuration)]
    if os.geteuid() != 0:
        return words
    os.chown(folder, pwd.getpwnam(USER).pw_uid, -1)
    return [*AS_USER, *words]


@cache
def module_config(express: Path) -> str:
    """The directives that load mod_wsgi."""
    try:
        asked = subprocess.run(
            [express, "module-config"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ProgramError(f"{express} module-config: {error}") from None
    return asked.stdout


def missing() -> str:
    """The part of Apache that is missing on this machine, and how to install it; empty if none
    is."""
    if not Path(APACHE).exists() or not MODULES.exists():
        return "there is no Apache: install it (apt-get install apache2 apache2-dev)"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "root needs setpriv, to start Apache as another user (apt-get install util-linux)"
    return ""


def free_port() -> int:
    """A free port. Apache cannot choose one by itself and report it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
