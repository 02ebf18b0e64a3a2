"""Random Triton programs through the interpreter, every pass and the emulator, for both architectures.

    python bench/fuzz/fuzz_programs.py --count 1000 --jobs 2           seeds 0 to 999
    python bench/fuzz/fuzz_programs.py --seed 5000 --minutes 30        seeds from 5000 on, for half an hour
    python bench/fuzz/fuzz_programs.py --count 100000 --jobs 16 --drawn    each on one of the architectures
    python bench/fuzz/fuzz_programs.py --repeat FILE|SEED              one program, with the guilty pass
    python bench/fuzz/fuzz_programs.py --emit 5000 DIR --jobs 2        cubins, for
    python bench/fuzz/fuzz_gpu.py DIR                                  on a machine with a GPU

What is found is shrunk, printed, and saved in --folder.  The exit status is 1 when there was a difference.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from random_programs.campaign import FAULTS, Campaign, Settings
from random_programs.compare import ARCHS, Checker, Kernel
from random_programs.generator import program
from random_programs.saved import read, saved


def main() -> int:
    options = arguments().parse_args()
    checker = Checker(tuple(options.arch or ARCHS), every_pass=options.every_pass, drawn=options.drawn)
    if options.show is not None:
        print(saved(Kernel.of(program(options.show), options.show)))
        return 0
    if options.repeat is not None:
        return repeat(options.repeat, checker, options.limit)
    if options.emit is not None:
        from random_programs.cubins import emit

        return emit(int(options.emit[0]), Path(options.emit[1]), options.seed, options.jobs)
    settings = Settings(
        checker,
        options.limit,
        options.shrink,
        shrunk_each=options.each,
        folder=options.folder,
        stops=options.first,
    )
    campaign, started = Campaign(settings, report=say), time.monotonic()
    seeds = (
        range(options.seed, options.seed + options.count) if options.count else itertools.count(options.seed)
    )
    skipped = {int(seed) for seed in options.skip.split(",") if seed}
    end = started + 60 * (options.minutes or 1e6)
    campaign.run((seed for seed in seeds if seed not in skipped), options.jobs, end)
    return summary(campaign, time.monotonic() - started)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--count", type=int, default=0, help="programs; without it --minutes decides")
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument(
        "--arch", action="append", choices=ARCHS, help="may be given more than once; both if not given"
    )
    parser.add_argument(
        "--drawn",
        action="store_true",
        help="each program on one architecture, drawn by its seed: half the time",
    )
    parser.add_argument(
        "--every-pass", action="store_true", help="interpret after every pass instead of after the last"
    )
    parser.add_argument("--limit", type=float, default=60, help="seconds for one program")
    parser.add_argument("--shrink", type=float, default=120, help="seconds to shrink one finding; 0 for none")
    parser.add_argument(
        "--each", type=int, default=3, help="how many findings of one kind are shown and shrunk"
    )
    parser.add_argument("--folder", type=Path, help="where kernels that differ are saved")
    parser.add_argument("--first", action="store_true", help="stop at the first finding")
    parser.add_argument("--skip", default="", metavar="SEED,…", help="seeds to leave out")
    parser.add_argument("--repeat", metavar="FILE|SEED")
    parser.add_argument("--show", type=int, metavar="SEED", help="print a program")
    parser.add_argument("--emit", nargs=2, metavar=("N", "DIR"), help="write cubins, for fuzz_gpu.py")
    return parser


def repeat(what: str, checker: Checker, limit: float) -> int:
    """Check one program, a saved one or that of a seed."""
    kernel = Kernel.of(program(int(what)), int(what)) if what.isdigit() else read(what)
    found = checker.check(kernel, limit)
    if found is not None:
        found = checker.localized(kernel, found)
    print(found or "no difference")
    return int(found is not None)


def summary(campaign: Campaign, seconds: float) -> int:
    """Print what was found; the exit status."""
    say(
        f"{campaign.checked} programs in {seconds:.0f} s, {campaign.checked / max(seconds, 1):.2f} per second"
    )
    most = 8 if len(campaign.tally) > 20 else 100
    for kind, count in campaign.tally.most_common():
        say(f"{count:6} {kind}   seeds {', '.join(map(str, campaign.seeds[kind][:most]))}")
    return int(any(kind.split()[0] in FAULTS for kind in campaign.tally))


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
