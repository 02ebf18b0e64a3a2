"""The sections of the page: deflated JSON in base64, which a browser unpacks when it is looked at."""

from __future__ import annotations

import base64
import zlib
from typing import Any

from kbuild.aot.identity import canonical_json


def packed(value: Any) -> str:
    """The text of a section with a value of plain types."""
    squeezed = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(squeezed.compress(canonical_json(value)) + squeezed.flush()).decode()
