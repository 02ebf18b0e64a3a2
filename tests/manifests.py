"""What manifests of tests begin with."""

from __future__ import annotations

import json


def package_table(name: str, *archs: str, version: str = "1.0") -> str:
    """The table of a package, with an empty line after it."""
    return f'schema = 1\n[package]\nname = "{name}"\nversion = "{version}"\narchs = {json.dumps(archs)}\n\n'
