"""Interrupts builds of shards, and merges of them, at random: the wheel has to be that of a single build, byte for byte.

    python bench/scale/interrupt.py [--times 100] [--seed 0] [--variants 36] [--shards 4]

Each shard has a checkout of its own, as in continuous integration; all share one cache of cubins.  A command is
started, and killed, terminated or interrupted after a random part of the time that it takes; what it has put into `dist`
until then has to be whole.  In the end each command is run once more.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from projects import make_project

from kbuild.aot.shards.merge import read

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SECONDS_TO_END = 60


@dataclass
class Site:
    """The machines of a build: a checkout for each shard, one for the single build, and a place for the merge."""

    folder: Path
    variants: int
    shards: int
    say: Callable[[str], None] = lambda text: None
    took: dict[int, float] = field(default_factory=dict)
    """Seconds of each command when it was not interrupted; the last is the merge."""

    def __post_init__(self) -> None:
        self.environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "KBUILD_CACHE_DIR": str(self.folder / "cache"),
            "CI": "true",
        }
        for number in range(self.shards + 1):
            make_project(self.folder / f"checkout{number}", self.variants)

    def single(self) -> str:
        """The digest of the wheel of a single build, with a cache of its own."""
        environment = {**self.environment, "KBUILD_CACHE_DIR": str(self.folder / "other-cache")}
        place = self.folder / "checkout0"
        subprocess.run(
            [sys.executable, "-m", "kbuild", "build", "-q"], cwd=place, env=environment, check=True
        )
        return digest_of(place / "dist")

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Starts a command: the build of shard `number`, from 0, or the merge."""
        if number < self.shards:
            place, words = (
                self.folder / f"checkout{number + 1}",
                ["build", "--shard", f"{number + 1}/{self.shards}"],
            )
        else:
            parts = sorted(str(part) for part in self.folder.glob("checkout*/dist/*.part"))
            place, words = self.folder, ["merge", *parts, "-o", "merged"]
        return subprocess.Popen(
            [sys.executable, "-m", "kbuild", *words, "-q"],
            cwd=place,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def finish(self, number: int) -> None:
        """Runs a command to its end."""
        started = time.monotonic()
        process = self.start(number)
        _, said = process.communicate(timeout=SECONDS_TO_END * 5)
        if process.returncode:
            raise SystemExit(f"command {number} ended with {process.returncode}: {said.decode()}")
        self.took.setdefault(number, time.monotonic() - started)

    def check(self) -> None:
        """Whatever is in `dist` is whole."""
        for part in self.folder.glob("checkout*/dist/*.part"):
            read(part)
        for part in self.folder.glob("merged/*.whl"):
            assert digest_of(part.parent)


def interrupted(site: Site, times: int, generator: random.Random) -> str:
    """The digest of the merged wheel after so many interruptions."""
    for number in range(site.shards):
        site.took[number] = 2.0  # For a first guess.
    site.took[site.shards] = 2.0
    for count in range(times):
        ready = len(list(site.folder.glob("checkout*/dist/*.part"))) == site.shards
        number = generator.randrange(site.shards + ready)
        which = generator.choice(SIGNALS)
        wait = generator.random() * site.took[number] * 1.2
        process = site.start(number)
        try:
            process.communicate(timeout=wait)
        except subprocess.TimeoutExpired:
            process.send_signal(which)
            process.communicate(timeout=SECONDS_TO_END)
        what = "merge" if number == site.shards else f"shard {number + 1}"
        site.say(f"{count + 1}: {what}, {which.name} after {wait:.2f} s: exit code {process.returncode}")
        site.check()
    for number in range(site.shards + 1):
        site.finish(number)
    return digest_of(site.folder / "merged")


def digest_of(folder: Path) -> str:
    """The sha256 of the one wheel in a folder."""
    (wheel,) = folder.glob("*.whl")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--variants", type=int, default=36)
    parser.add_argument("--shards", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder), options.variants, options.shards, print)
        whole = site.single()
        made = interrupted(site, options.times, random.Random(options.seed))
    print(f"single build {whole}, shards after {options.times} interruptions {made}")
    if made != whole:
        raise SystemExit("they differ")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
