"""All passes: every module of the rooms below registers its own, so a new file is a new pass."""

import importlib
import os

ROOMS = ("common", "tensor", "gpu.layout", "gpu.dot", "gpu.pipeline", "gpu.warp_specialize", "gpu.memory")

for _room in ROOMS:
    # Files, and folders for passes of several; pkgutil would find the same in ten times the time.
    _folder = os.path.join(__path__[0], *_room.split("."))
    for _name, _dot, _suffix in sorted(_file.partition(".") for _file in os.listdir(_folder)):
        if _suffix in ("", "py") and not _name.startswith("_"):
            importlib.import_module(f"{__name__}.{_room}.{_name}")
