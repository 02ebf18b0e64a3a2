"""The page: a template, its style and code as they are, and data packed in sections of their own, so that a page of a
thousand variants opens as fast as one of ten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jinja2

from kbuild import __version__
from kbuild.aot.files import templates_directory
from kbuild.aot.report.sections import packed

_FOLDER = "report"
STYLES = ("theme.css", "frame.css", "views.css", "code.css")
SCRIPTS = (
    "data.js",
    "dom.js",
    "overview.js",
    "variants.js",
    "timeline.js",
    "size.js",
    "pipeline.js",
    "code.js",
    "layouts.js",
    "variant.js",
    "main.js",
)
"""In the order in which they are run: each uses those before it."""


def page(summary: Mapping[str, Any], details: Iterable[tuple[str, str]]) -> str:
    """The HTML of a summary (`collect.summary`) and of details, each the name of a variant and a packed section."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_directory() / _FOLDER),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        keep_trailing_newline=True,
    )
    sections = list(details)
    names = [name for name, _ in sections]
    return environment.get_template("report.html.j2").render(
        title=f"{summary['package']} {summary['version']}",
        kbuild=__version__,
        styles=[_text(name) for name in STYLES],
        scripts=[_text(name) for name in SCRIPTS],
        summary=packed({**summary, "details": names}),
        details=[text for _, text in sections],
    )


def _text(name: str) -> str:
    return (templates_directory() / _FOLDER / name).read_text(encoding="utf-8")
