"""Where a worker finds the functions of an app."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOWHERE = "__main__"
"""The module of a program that is in no file, such as a notebook or `python -c`. No other process can import it."""


def is_the_same_program(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether these are one function of the program that runs, which also imports itself by its name, as with
    `uvicorn.run("main:web")` in main.py."""
    codes = [getattr(inspect.unwrap(each), "__code__", None) for each in (one, other)]
    return (
        NOWHERE in (one.__module__, other.__module__)
        and None not in codes
        and len({(code.co_filename, code.co_firstlineno) for code in codes if code is not None}) == 1
    )


def module_of(function: Callable[..., Any]) -> str:
    """The program that runs is `__main__` only to itself. A worker imports it by its own name: that of the module after
    `python -m`, or of the file."""
    module: str = function.__module__
    if module != NOWHERE:
        return module
    program = sys.modules[NOWHERE]
    if program.__spec__ is not None:
        return program.__spec__.name
    file = getattr(program, "__file__", None)
    return Path(file).stem if file else NOWHERE
