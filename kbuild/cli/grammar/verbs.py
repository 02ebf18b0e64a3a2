"""The verbs of a command line, and how it says that it is wrong."""

from __future__ import annotations

import argparse
import re
from typing import Any

from kbuild.cli.grammar.arguments import add_common
from kbuild.errors import UsageError, nearest


class ArgumentParser(argparse.ArgumentParser):
    """Reports mistakes as kbuild reports all others."""

    def error(self, message: str) -> Any:
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
        close = nearest(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        raise UsageError(
            message, help=f'did you mean "{close}"?' if close else f"{self.prog} --help lists what there is"
        )


class Verbs:
    """The verbs of a command line, in the order in which help lists them."""

    def __init__(self, top: argparse.ArgumentParser) -> None:
        self._added = top.add_subparsers(
            metavar="VERB",
            title="verbs; `kbuild VERB --help` says more",
            required=True,
            parser_class=ArgumentParser,
        )

    def add(
        self, name: str, text: str, applying: str, module: str = "", **meanings: str
    ) -> argparse.ArgumentParser:
        """One verb; of the options of all verbs, help names those that apply, with `meanings` where it has
        its own."""
        added = self._added.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.set_defaults(verb=name, module=module or name, grammar=added)
        add_common(added, applying.split(), meanings)
        return added
