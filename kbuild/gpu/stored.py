"""Compiled kernels as a build leaves them: a cubin, its PTX, and its facts beside it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from kbuild.compiler.driver import Artifact, Metadata
from kbuild.errors import UsageError
from kbuild.options import DEFAULTS
from kbuild.targets import capability_of

_HELP = "name a cubin in the build folder of a project: kbuild build leaves its facts beside it"
_AGAIN = "run kbuild build again"


def read_artifact(path: str | Path) -> Artifact:
    """The artifact of a cubin in a build folder, such as `build/sm_90/scale/….cubin`; its texts are the PTX alone.

    Raises `UsageError` where there are no facts beside it, or they are those of another cubin.
    """
    file = Path(path)
    if file.suffix != ".cubin":
        raise UsageError(f"{file} is not a cubin", help=_HELP)
    cubin, record = _read(file), file.with_suffix(".json")
    try:
        facts = json.loads(_read(record))
        if facts["sha256"] != hashlib.sha256(cubin).hexdigest():
            raise UsageError(f"{record} has the facts of another cubin than {file.name}", help=_AGAIN)
        metadata = _metadata(facts)
    except (ValueError, TypeError, KeyError):
        raise UsageError(
            f"{record} has not the facts of a cubin of this version of kbuild", help=_AGAIN
        ) from None
    ptx = file.with_suffix(".ptx")
    texts = {"ptx": ptx.read_text()} if ptx.is_file() else {}
    return Artifact({**texts, "cubin": cubin}, metadata)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", help=_HELP) from None


def _metadata(facts: dict[str, Any]) -> Metadata:
    options = DEFAULTS.with_attributes(facts)
    return Metadata(
        name=facts["entry"],
        target=f"sm_{capability_of(facts['arch'])}",
        arch=facts["arch"],
        options=options,
        block=tuple(facts["block"]),
        shared=facts["shared"],
        params=tuple((name, type_) for name, type_ in facts["params"]),
        signature=tuple((name, type_) for name, type_ in facts["signature"]),
        tma=tuple(facts["tma"]),
        registers=facts["registers"],
        spill_stores=facts["spill_stores"],
        spill_loads=facts["spill_loads"],
        ptxas_version=facts["ptxas_version"],
        waits_for_launches=facts["waits_for_launches"],
        warnings=tuple(facts["warnings"]),
        serialized=tuple(facts["serialized"]),
        conversions=facts["conversions"],
    )
