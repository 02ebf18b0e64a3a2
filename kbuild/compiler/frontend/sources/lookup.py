"""Finds the modules of a project: the files that an import names, found only by their names, without being
read.

A place is a path without suffix; at it stands a package with `__init__.py`, or a file, or a folder of
modules: the first of these that exists, as for Python.
"""

from __future__ import annotations

import os


def absolute(directory: str, name: str) -> str | None:
    """The place of a module by its full name: beside an importing file in `directory`, or else the nearest
    above it."""
    parts = name.split(".")
    while True:
        place = os.path.join(directory, *parts)
        if module_file(place) or os.path.isdir(place):
            return place
        parent = os.path.dirname(directory)
        if parent == directory:
            return None
        directory = parent


def relative(directory: str, level: int, name: str) -> str:
    """The place that `level` dots and a name, which may be empty, stand for in a file in `directory`."""
    for _ in range(level - 1):
        directory = os.path.dirname(directory)
    # With a slash at its end where the dots stand alone: a file beside that folder is another module.
    return os.path.join(directory, *name.split("."))


def module_file(place: str) -> str | None:
    """The file of the module at a place; None for a folder without `__init__.py`, and where nothing is."""
    return next(
        (path for path in (os.path.join(place, "__init__.py"), place + ".py") if os.path.isfile(path)), None
    )
