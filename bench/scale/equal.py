"""Whether shards make the wheel of a single build, byte for byte, and what each takes.

    python bench/scale/equal.py [PROJECT] [--variants 2000] [--shards 8] [--no-cache] [--json out.json]

Builds PROJECT, by default a generated one, once as a whole and once in shards, each in a copy of its own with nothing of
the others; then merges.  Without --no-cache all use the cache of this user, so that a second run compiles nothing.
Seconds are of the wall and of processors, for each shard as if it were alone on the machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from projects import copy_of, make_project

ROOT = Path(__file__).resolve().parents[2]


def run(words: list[str], place: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Runs kbuild; the seconds that it took."""
    used, started = os.times(), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "kbuild", *words],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"kbuild {' '.join(words)} ended with {done.returncode}\n{done.stderr[-3000:]}")
    now = os.times()
    cpu = now.children_user + now.children_system - used.children_user - used.children_system
    return {"seconds": time.monotonic() - started, "cpu_seconds": cpu, "said": done.stderr.splitlines()[-2:]}


def compared(project: Path, shards: int, environment: dict[str, str], folder: Path) -> dict[str, Any]:
    """The single build, the shards and the merge, and the digests of both wheels."""
    rows: dict[str, Any] = {}

    def say(name: str, row: dict[str, Any]) -> None:
        rows[name] = row
        print(
            f"  {name:14} {row['seconds']:8.1f} s {row['cpu_seconds']:8.1f} s CPU   {row['said'][0]}",
            flush=True,
        )

    whole = copy_of(project, folder / "whole")
    say("single build", run(["build"], whole, environment))
    say("again", run(["build"], whole, environment))
    parts: list[str] = []
    for number in range(1, shards + 1):
        place = copy_of(project, folder / f"shard{number}")
        say(f"shard {number}/{shards}", run(["build", "--shard", f"{number}/{shards}"], place, environment))
        (part,) = (place / "dist").glob("*.part")
        parts.append(str(part))
        rows[f"shard {number}/{shards}"]["bytes"] = part.stat().st_size
    say("merge", run(["merge", *parts, "-o", "merged"], folder, environment))
    for name, place in {"single build": whole / "dist", "merge": folder / "merged"}.items():
        (wheel,) = place.glob("*.whl")
        rows[name] |= {
            "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
            "bytes": wheel.stat().st_size,
            "wheel": wheel.name,
        }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("project", nargs="?", type=Path, metavar="PROJECT")
    parser.add_argument("--variants", type=int, default=2000)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--no-cache", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CI": "true"}
    environment |= {"KBUILD_DISABLE_CACHE": "1"} if options.no_cache else {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project = options.project
        if project is None:
            project = folder / "project"
            make_project(project, options.variants)
        rows = compared(project.resolve(), options.shards, environment, folder)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    one, merged = rows["single build"], rows["merge"]
    print(f"{one['wheel']}: {one['bytes']} bytes, sha256 {one['sha256']}")
    sizes = [row["bytes"] for name, row in rows.items() if name.startswith("shard")]
    print(f"parts: {sum(sizes)} bytes in all, of {min(sizes)} to {max(sizes)}")
    if (one["sha256"], one["wheel"]) != (merged["sha256"], merged["wheel"]):
        raise SystemExit(f"the merged wheel is another one: {merged['wheel']}, sha256 {merged['sha256']}")
    print("the merged wheel is equal")


if __name__ == "__main__":
    main()
