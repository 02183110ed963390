"""A setting as a part of a TOML file of `headway serve`."""

from __future__ import annotations

from headway.options import SWITCH_INTERVAL
from headway.tune.setting import Setting


def toml_fragment(group: str, setting: Setting) -> str:
    name = group if group.replace("-", "").replace("_", "").isalnum() else f'"{group}"'
    lines = [
        f"[process-group.{name}]",
        f'policy = "{setting.policy}"',
        f"switch-interval = {SWITCH_INTERVAL.show(setting.switch_interval_s)}",
        *(f"{option} = {count}" for option, count in setting.shape.varied().items()),
    ]
    return "\n".join(lines)
