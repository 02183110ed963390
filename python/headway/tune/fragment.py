"""A setting as a part of a TOML file of `headway serve`."""

from __future__ import annotations

from headway.options import SWITCH_INTERVAL
from headway.tune.setting import Setting


def toml_fragment(group: str, setting: Setting) -> str:
    name = group if group.replace("-", "").replace("_", "").isalnum() else f'"{group}"'
    return (
        f"[process-group.{name}]\n"
        f'policy = "{setting.policy}"\n'
        f"switch-interval = {SWITCH_INTERVAL.show(setting.switch_interval_s)}"
    )
