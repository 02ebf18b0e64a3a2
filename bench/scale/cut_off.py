"""Pushes and pulls cut off at random moments, a hundred of them: at the end both ends have the same bytes.

python bench/scale/cut_off.py [--count 100]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kbuild.aot.build.cache import Cache
from tests.aot.remote import http_server, reapi_server
from tests.aot.remote.conftest import entry_of
from tests.aot.remote.test_transfer import KEYS, interrupted_transfers, slowly


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100, help="interruptions, half of them of pushes")
    count = parser.parse_args().count
    for seed in range(0, count, 2):
        with tempfile.TemporaryDirectory() as folder:
            full, empty = Cache(Path(folder, "full")), Cache(Path(folder, "empty"))
            for key in KEYS:
                full.put_raw(key, entry_of(key))
            shared = Path(folder, "shared")
            shared.mkdir(mode=0o700)
            with http_server.serving() as http, reapi_server.serving(Path(folder)) as reapi:
                http.behaviour = slowly
                url = (http.url, reapi.target, f"file://{shared}")[seed // 2 % 3]
                interrupted_transfers(full, empty, url, seed)
        print(f"{seed + 2} interruptions, {url.partition(':')[0]}: the same bytes", flush=True)


if __name__ == "__main__":
    main()
