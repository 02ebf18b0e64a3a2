"""Installs a headless Chromium for the tests of the report, without root: `python tests/aot/report/install_chromium.py`.

It is the one of the npm package @sparticuz/chromium, which is made for machines without a desktop: one program, and the
libraries that such machines lack.  It goes into the environment of this Python, as `chromium/`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "@sparticuz/chromium@147.0.0"
SHA256 = "18fe5404ce845594cd7d592fc07f37a19514079ba4d9c27192ad8b908743f16b"
FOLDER = Path(sys.prefix, "chromium")
PROGRAM = FOLDER / "chromium"
_UNPACK = """
const [from, to] = process.argv.slice(1);
const { createReadStream, createWriteStream } = require("fs");
const { createBrotliDecompress } = require("zlib");
require("stream").pipeline(createReadStream(from), createBrotliDecompress(), createWriteStream(to), (error) => {
  if (error) throw error;
});
"""


def install() -> None:
    """Fetches, checks and unpacks the package; raises CalledProcessError or OSError where that fails."""
    with tempfile.TemporaryDirectory() as place:
        command = ["npm", "pack", "--silent", "--pack-destination", place, PACKAGE]
        subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL, timeout=300)
        (archive,) = Path(place).glob("*.tgz")
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != SHA256:
            raise OSError(f"{PACKAGE} has the sha256 {found}, not {SHA256}")
        _extract(archive, Path(place))
        made = Path(place, "made")
        made.mkdir()
        for packed in sorted(Path(place, "package/bin").glob("*.br")):
            target = made / packed.stem
            subprocess.run(["node", "-e", _UNPACK, str(packed), str(target)], check=True, timeout=120)
            if target.suffix == ".tar":
                _extract(target, made)
                target.unlink()
        (made / "chromium").chmod(0o755)
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.move(made, FOLDER)


def _extract(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")


if __name__ == "__main__":
    if not PROGRAM.is_file():
        install()
    print(PROGRAM)
