"""All passes: every module below registers its own, so a new file is a new pass."""

import importlib
import os

for _package in ("common", "tensor", "gpu"):
    # Files, and folders for passes of several; pkgutil would find the same in ten times the time.
    for _name, _dot, _suffix in sorted(_file.partition(".") for _file in os.listdir(f"{__path__[0]}/{_package}")):
        if _suffix in ("", "py") and not _name.startswith("_"):
            importlib.import_module(f"{__name__}.{_package}.{_name}")
