"""The tables and the plot of a GPU run, from invented rows."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest
import report

ROOT = Path(__file__).parents[2]
ROWS = [
    {
        "group": "copy",
        "shape": "device copy",
        "us": 100.0,
        "error": 0.0,
        "rate": 4000.0,
        "unit": "GB/s",
        "right": True,
        "peers": {},
        "errors": {},
    },
    {
        "group": "add",
        "shape": "fp32 n=2^26",
        "us": 200.0,
        "error": 0.0,
        "rate": 3800.0,
        "unit": "GB/s",
        "right": True,
        "peers": {"triton": 210.0, "torch": 190.0},
        "errors": {"triton": 0.0, "torch": 0.0},
        "bytes": 8e8,
        "copy": 196.0,
    },
    {
        "group": "sum",
        "shape": "fp32",
        "us": 50.0,
        "error": 0.0,
        "rate": 2000.0,
        "unit": "GB/s",
        "right": True,
        "peers": {"triton": 100.0},
        "errors": {"triton": 0.0},
        "bytes": 1e8,
    },
    {
        "group": "matmul",
        "shape": "4096 <B^T>",
        "us": 200.0,
        "error": 0.1,
        "rate": 687000.0,
        "unit": "TFLOP/s",
        "right": False,
        "peers": {"triton": 220.0, "cublas": 180.0},
        "errors": {"triton": 2.81e-4, "cublas": 2.0e-4},
    },
    {
        "group": "matmul",
        "shape": "16x8192x8192 float16 B^T",
        "us": 40.0,
        "error": 0.0,
        "rate": 50000.0,
        "unit": "TFLOP/s",
        "right": True,
        "peers": {"triton": 44.0, "cublas": 48.0},
        "errors": {"triton": 0.0, "cublas": 0.0},
    },
]


def test_lines_and_means() -> None:
    text = report.render(ROWS)
    assert "0.98 of copy (0.95 of its highest rate)" in text and text.count("of copy") == 1, (
        "only what moves 256 MB or more"
    )
    assert "687.0 TFLOP/s  err 1.00e-01  WRONG  triton    220.00 us (1.10x) err 2.8" in text
    means = {(group, peer): (round(mean, 3), count) for group, peer, mean, count, _ in report.summary(ROWS)}
    assert means["memory", "triton"] == (1.449, 2) and means["matmul", "cublas"] == (1.039, 2)


def test_rows_to_be_won_have_a_star_and_means_of_their_own() -> None:
    assert [row["shape"] for row in ROWS if report.is_target(row)] == ["16x8192x8192 float16 B^T"]
    lines = report.render(ROWS).splitlines()
    assert sum(" * " in line and "matmul     16x8192x8192 float16 B^T *" in line for line in lines) == 1
    means = "geometric mean 1.039 over 2 rows, least 0.900; 1.200 over the 1 with a star, least 1.200"
    assert f"matmul     cublas   {means}" in lines
    assert {group: len(shapes) for group, shapes in report.TARGETS.items()} == {
        "add": 1,
        "sum": 1,
        "softmax": 5,
        "layer_norm": 5,
        "launch": 1,
        "matmul": 18,
        "attention": 12,
    }


def test_the_tables_in_markdown() -> None:
    lines = report.markdown(ROWS).splitlines()
    assert (
        "| matmul | 4096 <B^T> | 200.0 | 687 TFLOP/s |  | 1.10 | cuBLAS 0.90 | 1.00e-1 | 2.81e-4, 2.00e-4 |"
        in lines
    )
    assert "| add | fp32 n=2^26 | 200.0 | 3800 GB/s | 0.98 | 1.05 | torch 0.95 | 0 | 0, 0 |" in lines
    assert (
        "| matmul | 16x8192x8192 float16 B^T ★ | 40.0 | 50 TFLOP/s |  | 1.10 | cuBLAS 1.20 | 0 | 0, 0 |"
        in lines
    )
    assert (
        "| matmul | cuBLAS | 1.04 | 0.90 | 1.20 | 1.20 |" in lines
        and "| add | triton | 1.05 | 1.05 |  |  |" in lines
    )


def test_tables_of_a_file_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"device": "", "rows": ROWS}))
    file = tmp_path / "figures.md"
    file.write_text(f"before\n\n{report.markdown(ROWS[:2])}\n\nafter\n\n| another | table |\n|---|---|\n")
    monkeypatch.setattr(sys, "argv", ["report.py", str(tmp_path / "run.json"), "--page", str(file)])
    report.main()
    assert (
        file.read_text() == f"before\n\n{report.markdown(ROWS)}\n\nafter\n\n| another | table |\n|---|---|\n"
    )
    assert report._TABLES.search((ROOT / "docs" / "figures.md").read_text()), "as the page has them"


def test_the_readme_s_figures_are_those_of_the_page() -> None:
    """Its table leaves out columns and rows, but changes nothing."""

    def rows(page: str) -> list[dict[str, str]]:
        lines = (ROOT / page).read_text().splitlines()
        table = [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in lines[lines.index(next(line for line in lines if line.startswith("| kernel |"))) :]
            if line.startswith("| ")
        ]
        return [dict(zip(table[0], row)) for row in table[1:]]

    full, short = rows("docs/figures.md"), rows("README.md")
    means = {
        (row["kernel"], row["shape"]): row["µs"]
        for row in full
        if len(row) == 6 and row["kernel"] != "kernel"
    }
    assert 1 < len(short) <= 15
    for row in short:
        if row["shape"].startswith("geometric mean"):
            vendor, ratio = row["vendor"].split()
            assert means[row["kernel"], vendor] == ratio
            assert means[row["kernel"], "triton"] == row["Triton"]
        else:
            assert any(row.items() <= other.items() for other in full), row


def test_the_plot_is_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"rows.json": ROWS[:3], "matmul.json": ROWS[3:]}
    for name, rows in parts.items():
        (tmp_path / name).write_text(json.dumps({"device": "a <GPU>", "rows": rows}))
    files = [str(tmp_path / name) for name in parts]
    monkeypatch.setattr(sys, "argv", ["report.py", *files, "--plot", str(tmp_path / "plot.svg")])
    report.main()
    image = xml.etree.ElementTree.fromstring((tmp_path / "plot.svg").read_text())
    bars = [item for item in image if item.tag.endswith("rect") and item.get("height") == "8"]
    assert len(bars) == 7, "a bar for each peer"
