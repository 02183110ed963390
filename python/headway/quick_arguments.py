"""Options of a verb that starts quickly, parsed without argparse.

argparse and what it imports take 25 ms of CPU time, more than the start of an interpreter. This
parser takes the calls of a verb's `prepare_parser` and knows options with one value and flags. It
gives up on every word that it does not know, on a value that is not allowed and on --help, and
argparse then says what there is to say.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Values:
    """The values of options as attributes, as in `argparse.Namespace`."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...


class QuickParser:
    """Has the attributes and the method of `argparse.ArgumentParser` that a verb may use."""

    description: str | None = None
    epilog: str | None = None
    usage: str | None = None

    def __init__(self) -> None:
        # By option: the name of its value, and how the text of it is parsed; None for a flag.
        self._options: dict[str, tuple[str, Callable[[str], Any] | None]] = {}
        # The values before any option, and that of each flag.
        self._defaults: dict[str, Any] = {}
        self._set_by_flag: dict[str, bool] = {}

    def add_argument(
        self,
        option: str,
        *,
        action: str = "store",
        dest: str = "",
        type: Callable[[str], Any] = str,
        default: Any = None,
        metavar: str = "",
        help: str = "",
    ) -> None:
        """`action` is store, store_true or store_false; `metavar` and `help` are for argparse."""
        name = dest or option.removeprefix("--").replace("-", "_")
        is_flag = action != "store"
        if is_flag:
            self._set_by_flag[name] = action == "store_true"
            default = action != "store_true"
        self._defaults[name] = default
        self._options[option] = name, None if is_flag else type

    def parse(self, words: list[str]) -> Values | None:
        """The values of the options; None if argparse has to look at `words`."""
        values = dict(self._defaults)
        rest = iter(words)
        for word in rest:
            option, has_value, text = word.partition("=")
            if option not in self._options:
                return None
            name, parse = self._options[option]
            if parse is None:
                if has_value:
                    return None
                values[name] = self._set_by_flag[name]
                continue
            if not has_value:
                text = next(rest, "--")
                if text.startswith("-") and text != "-":
                    return None
            try:
                values[name] = parse(text)
            except Exception:
                return None
        return Values(values)
