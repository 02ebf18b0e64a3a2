"""Facts about run-time arguments that name the multiprocessors of the device."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.aot.manifest.expand import Variant, expand
from kbuild.aot.manifest.expressions import evaluate, parse
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Guard
from tests.aot.manifest.mistakes import mistakes


@pytest.mark.parametrize(
    ("text", "value", "word", "most"),
    [
        ("<= num_sms", "num_sms", "num_sms", 132 * 64),
        ("<= 3*num_sms", "3*num_sms", "3xnum_sms", 3 * 132 * 64),
        ("<= 3 * num_sms // 2", "3*num_sms//2", "3xnum_smsby2", 198 * 64),
        ("<=num_sms//2", "num_sms//2", "num_smsby2", 66 * 64),
    ],
)
def test_a_fact_about_the_multiprocessors(project: Path, text: str, value: str, word: str, most: int) -> None:
    manifest = project / "kernels.toml"
    manifest.write_text(manifest.read_text().replace('n = "<= 1024" }', f'"cdiv(n, 64)" = "{text}" }}'))
    (guard,) = load(manifest).kernel("scale").configs[1].guards
    assert guard == Guard("n:64", "<=", value) and guard.bound(132) == most // 64
    variant = next(variant for variant in expand(load(manifest)).variants if variant.guards)
    assert Variant.parse(str(variant)) == variant and f".nby64-le-{word}." in variant.file_name
    fact = parse(guard.expression, ["n", "num_sms"], "")
    values = {"num_sms": 132}
    assert evaluate(fact, {"n": most, **values}) and not evaluate(fact, {"n": most + 1, **values})


@pytest.mark.parametrize("text", ["% num_sms", "<= num_sms // 0", "<= num_sms + 1", "<= sms", "<= 2 num_sms"])
def test_what_is_not_a_fact_about_the_multiprocessors(project: Path, text: str) -> None:
    manifest = project / "kernels.toml"
    manifest.write_text(manifest.read_text().replace('n = "<= 1024" }', f'n = "{text}" }}'))
    (found,) = mistakes(project)
    assert f'config[1].when.n: "{text}" is not a fact; write it as "<= 64"' in found
