"""A supervisor on the settings in a JSON file, read again on SIGHUP.

    python supervise_file.py SETTINGS.json

The file has the fields of `ServerSettings`; groups as `ProcessGroup` has them, with defaults.
"""

import json
import sys
from pathlib import Path

from headway.errors import CommandError
from headway.server.settings import ProcessGroup, ServerSettings
from headway.server.supervisor.loop import supervise


def read() -> ServerSettings:
    values = json.loads(Path(sys.argv[1]).read_text())
    default = json.loads(ProcessGroup().to_json())
    groups = [ProcessGroup.from_json(json.dumps(default | each)) for each in values.pop("groups")]
    return ServerSettings(groups=tuple(groups), **values)


try:
    sys.exit(supervise(read(), read))
except CommandError as error:
    print(f"headway serve: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
