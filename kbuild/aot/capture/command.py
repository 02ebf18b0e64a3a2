"""A command whose processes record what they ask Triton for."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kbuild.aot.capture.records import Capture, read_captures, write_capture
from kbuild.aot.environment import CAPTURE, CAPTURE_DEVICE, CAPTURE_HOME
from kbuild.aot.files import templates_directory
from kbuild.errors import UsageError


def hook_folder() -> Path:
    """The folder that stands first on PYTHONPATH in captured processes."""
    return templates_directory() / "capture"


def captured(
    command: Sequence[str], output: Path, environment: Mapping[str, str], device: str = ""
) -> tuple[int, Capture]:
    """Runs a command, and joins what its processes record to `output`, with what that has already.

    Returns the exit code of the command, and the whole capture.  With `device`, such as `sm_90`, kernels are neither compiled
    nor run.  Raises UsageError where there is no such command.
    """
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise UsageError(
            f"no program {command[0]!r}", help="kbuild capture -- COMMAND, as kbuild capture -- pytest -q"
        )
    before = [output] if output.is_file() else []
    read_captures(before)  # So that a file that is something else is found before the run.
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as folder:
        code = _run([program, *command[1:]], hooked(environment, Path(folder), device))
        made = sorted(Path(folder).glob("*.jsonl"))
        found = read_captures([*before, *made])
        if made:
            write_capture(found, output)
    return (code if code >= 0 else 128 - code), found


def _run(command: list[str], environment: Mapping[str, str]) -> int:
    try:
        return subprocess.run(command, env=environment, check=False).returncode
    except KeyboardInterrupt:  # What was recorded until then is worth keeping.
        return 130


def hooked(environment: Mapping[str, str], folder: Path, device: str = "") -> dict[str, str]:
    """An environment whose processes record into a folder."""
    paths = [str(hook_folder()), *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        CAPTURE: str(folder.absolute()),
        CAPTURE_HOME: str(Path(__file__).resolve().parents[3]),
        CAPTURE_DEVICE: device,
    }
