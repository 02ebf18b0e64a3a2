"""All passes: every module below registers its own, so a new file is a new pass."""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, __name__ + "."):
    importlib.import_module(_module.name)
