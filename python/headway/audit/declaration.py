"""The declarations of an extension module, read from its definition in memory.

A module of multi-phase initialization (PEP 489) has a `PyModuleDef` with slots. Two kinds of slots,
new in CPython 3.12 and 3.13, declare what the module supports. `PyModule_GetDef` finds the
definition of a loaded module, so no code of the module runs again. From 3.15 on a module may export
slots alone, without a definition (PEP 793); then its export hook is called, which returns a
constant.
"""

from __future__ import annotations

import ctypes
import sys
from types import ModuleType
from typing import Any, Literal, TypedDict

Initialization = Literal["multi-phase", "single-phase", "unknown"]


class Declaration(TypedDict):
    """A value is `None` if the module has no such slot, and "unknown" if its slots could not be
    read."""

    initialization: Initialization
    multiple_interpreters: Literal["not-supported", "supported", "per-interpreter-gil"] | None
    gil: Literal["used", "not-used"] | None


UNKNOWN: Declaration = {"initialization": "unknown", "multiple_interpreters": None, "gil": None}
SINGLE_PHASE: Declaration = {**UNKNOWN, "initialization": "single-phase"}

# The numbers in PyModuleDef_Slot, and those in CPython 3.15's PySlot.
MULTIPLE_INTERPRETERS, GIL = (3, 86), (4, 87)
SLOT_SUBSLOTS, MOD_SLOTS = 92, 94
OF_MULTIPLE_INTERPRETERS = ("not-supported", "supported", "per-interpreter-gil")
OF_GIL = ("used", "not-used")
# CPython has fewer kinds of slots. The limit ends the reading of an array that has no end.
MAX_SLOTS = 256


class OldSlot(ctypes.Structure):
    """`PyModuleDef_Slot`."""

    _fields_ = (("id", ctypes.c_int), ("value", ctypes.c_void_p))


class NewSlot(ctypes.Structure):
    """`PySlot`, from CPython 3.15 on."""

    _fields_ = (
        ("id", ctypes.c_uint16),
        ("flags", ctypes.c_uint16),
        ("reserved", ctypes.c_uint32),
        ("value", ctypes.c_void_p),
    )


class ModuleDefinition(ctypes.Structure):
    """`PyModuleDef`. Apart from the object's head it is the same in every CPython from 3.5 on."""

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        ("init", ctypes.c_void_p),
        ("index", ctypes.c_ssize_t),
        ("copy", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("doc", ctypes.c_void_p),
        ("size", ctypes.c_ssize_t),
        ("methods", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("traverse", ctypes.c_void_p),
        ("clear", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    )


def read_declaration(module: Any, file: str) -> Declaration:
    """The declarations of a loaded module."""
    if not isinstance(module, ModuleType):
        # The module has replaced itself in sys.modules.
        return UNKNOWN
    get_definition = ctypes.pythonapi.PyModule_GetDef
    get_definition.argtypes, get_definition.restype = [ctypes.py_object], ctypes.c_void_p
    address = get_definition(module)
    if address is None:
        return _read_export(module, file)
    definition = ModuleDefinition.from_address(address)
    if definition.slots is None:
        # Only a module of single-phase initialization is copied, or made again, from its
        # definition. A module of two phases without slots declares nothing either.
        is_single = definition.init is not None or definition.copy is not None
        return SINGLE_PHASE if is_single else {**UNKNOWN, "initialization": "multi-phase"}
    return _declared(_read_slots(definition.slots, OldSlot))


def _read_export(module: ModuleType, file: str) -> Declaration:
    name = getattr(module.__spec__, "name", "").rpartition(".")[2]
    if sys.version_info < (3, 15) or not name.isascii():
        return UNKNOWN
    try:
        export = getattr(ctypes.PyDLL(file), f"PyModExport_{name}")
    except (OSError, AttributeError):
        return UNKNOWN
    export.argtypes, export.restype = [], ctypes.c_void_p
    address = export()
    return UNKNOWN if address is None else _declared(_read_slots(address, NewSlot))


def _read_slots(address: int, kind: type[OldSlot] | type[NewSlot]) -> dict[int, int]:
    """The slots' values by their numbers, with those of arrays that slots point at."""
    slots: dict[int, int] = {}
    for place in range(MAX_SLOTS):
        slot = kind.from_address(address + place * ctypes.sizeof(kind))
        if slot.id == 0:
            break
        value = slot.value or 0
        if slot.id == SLOT_SUBSLOTS and value:
            slots.update(_read_slots(value, NewSlot))
        elif slot.id == MOD_SLOTS and value:
            slots.update(_read_slots(value, OldSlot))
        else:
            slots[slot.id] = value
    return slots


def _declared(slots: dict[int, int]) -> Declaration:
    def value(numbers: tuple[int, int], words: tuple[str, ...]) -> Any:
        given = next((slots[number] for number in numbers if number in slots), None)
        return words[given] if given is not None and given < len(words) else None

    return {
        "initialization": "multi-phase",
        "multiple_interpreters": value(MULTIPLE_INTERPRETERS, OF_MULTIPLE_INTERPRETERS),
        "gil": value(GIL, OF_GIL),
    }
