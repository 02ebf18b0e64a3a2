"""`kbuild report` writes one page with everything in it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from kbuild import cli
from kbuild.aot.build.cache import Cache
from kbuild.aot.report import detail
from kbuild.aot.report.pipeline import applied
from tests.aot.report import library
from tests.aot.report.conftest import Reported

NAMES = [library.SCALE.format("fp16"), library.SCALE.format("fp32"), library.MULTIPLY_NAME]


def unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text), -zlib.MAX_WBITS))


def sections(page: Path) -> dict[str, Any]:
    """What the page knows, by the names of its sections."""
    found = re.findall(r'<script type="text/plain" id="([\w-]+)">([\w+/=]*)</script>', page.read_text())
    return {name: unpacked(text) for name, text in found}


def test_the_page_has_all_variants_and_needs_no_network(reported: Reported) -> None:
    text = reported.report.read_text()
    found = sections(reported.report)
    assert [variant["name"] for variant in found["summary"]["variants"]] == NAMES
    assert set(found) == {"summary", "detail-0", "detail-1", "detail-2"}
    assert sorted(found["summary"]["details"]) == sorted(NAMES)
    assert "<title>demo_kernels 0.1.0 · kbuild report</title>" in text and "default-src 'none'" in text
    assert set(re.findall(r'(?:src|href)="(?!#)([^"]*)"', text)) == {"data:,"}
    assert str(reported.folder) not in text + str(found), "nor names places of this machine"


def test_the_facts_of_a_variant(reported: Reported) -> None:
    variants = {variant["name"]: variant for variant in reported.summary["variants"]}
    one = variants[library.MULTIPLY_NAME]
    assert one["dtype"] == "fp16" and one["state"] == "same" and one["why"]["build"] == 1
    assert one["facts"]["arch"] == "sm_90a" and one["facts"]["registers"] > 0 and one["stored"] > 0
    assert one["facts"]["occupancy"]["programs"] > 0 and one["seconds"] > 0
    assert one["command"].startswith("kbuild compile kernels/multiply.py:multiply_kernel --arch sm_90")
    wheel = reported.summary["wheel"]
    assert sum(wheel["by"]["kernel"].values()) + sum(wheel["other"].values()) == wheel["bytes"]
    (build,) = reported.summary["builds"]
    assert [step[1] for step in build["steps"]].count("compile") == 3 and build["steps"][-1][1] == "package"
    assert build["path"][-1] == len(build["steps"]) - 1


def test_the_detail_of_a_variant(reported: Reported) -> None:
    found = sections(reported.report)
    one = found[f"detail-{found['summary']['details'].index(library.MULTIPLY_NAME)}"]
    text: list[str] = []
    for entry in one["passes"]:
        text = applied(text, entry)
    assert text == one["code"]["ttgir"]["lines"] and one["is_built"] is True
    assert one["files"] == ["kernels/multiply.py"], "relative to the project"
    source = {part["name"]: part for part in one["code"]["source"]}
    assert list(source) == ["multiply_kernel", "product"] and source["product"]["line"] == 6
    dots = [place for line, place in zip(text, one["code"]["ttgir"]["places"]) if "warp_group_dot " in line]
    assert [one["places"][place][0] for place in dots] == [[0, 9, 12]]
    assert len(one["places"][dots[0]]) == 2, "and the call that leads there"
    of_wgmma = {place for place, line in enumerate(one["code"]["ptx"]["lines"]) if "wgmma.mma_async" in line}
    sass = one["code"]["sass"]
    if sass["lines"]:  # Where nvdisasm is installed.
        assert {ptx for line, ptx in zip(sass["lines"], sass["ptx"]) if "HGMMA" in line} == of_wgmma
    assert any(
        key.startswith("64x64 ") and layout["shape"] == [64, 64] for key, layout in one["layouts"].items()
    )


def test_variants_that_are_named_and_room_for_them(
    reported: Reported, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was compiled for the first page is in the cache for these."""
    assert cli.main(["report", "multiply", "--json", "-q", "-o", "one.html"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["details"] == [library.MULTIPLY_NAME] and made["variants"] == 3 and made["left_out"] == 0
    assert cli.main(["report", "--max", "12kB", "-o", "some.html"]) == 0
    said = capsys.readouterr().err
    assert "with the passes and code of 1 variants; 2 others did not fit" in said
    assert cli.main(["report", "--max", "0", "-o", "none.html", "--dry-run"]) == 0
    # One of each kernel and architecture comes first.
    assert capsys.readouterr().out.splitlines() == [NAMES[0], NAMES[2], NAMES[1]]
    assert cli.main(["report", "multipli"]) == 2
    assert 'did you mean "multiply"?' in capsys.readouterr().err
    assert cli.main(["report", "-o", "kernels.toml/x"]) == 2


def test_a_variant_that_is_not_built_and_one_that_cannot_be(tmp_path: Path) -> None:
    with library.project(tmp_path) as folder:
        source = folder / "kernels/multiply.py"
        source.write_text(source.read_text().replace("tl.dot(", "tl.dott("))
        assert cli.main(["report", "multiply", "-q", "--no-cache"]) == 0
        found = sections(folder / "report.html")
    assert [variant["state"] for variant in found["summary"]["variants"]] == ["new"] * 3
    assert found["summary"]["builds"] == [] and found["summary"]["wheel"] is None
    assert "multiply.py:9:12: error:" in found["detail-0"]["error"] and "dott" in found["detail-0"]["error"]


def test_details_are_in_the_order_of_the_tasks_however_they_come(
    reported: Reported, monkeypatch: pytest.MonkeyPatch
) -> None:
    def task(number: int) -> Any:
        return type("Task", (), {"name": str(number)})()

    def crossed(jobs: list[list[Any]], work: object, count: int, limit: float) -> Any:
        return ((one, f"{one.name * 10}") for (one,) in reversed(jobs))

    monkeypatch.setattr(detail, "key_of", lambda one: one.name)
    monkeypatch.setattr(detail, "run_jobs", crossed)
    tasks = [task(number) for number in range(5)]
    noted: list[str] = []
    found = list(detail.details(tasks, Cache(None), 1, 35, noted.append))
    assert found == [(str(number), str(number) * 10) for number in range(3)], "no more than fit"
    assert noted == ["4", "3", "2", "1", "0"]
    assert list(detail.details(tasks, Cache(None), 1, 0, noted.append)) == []


def test_the_page_is_the_same_each_time(reported: Reported, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", "-q", "-o", "again.html"]) == 0
    assert (reported.folder / "again.html").read_bytes() == reported.report.read_bytes()
