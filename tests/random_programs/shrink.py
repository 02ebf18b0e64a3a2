"""Makes a program that shows a difference smaller, while it shows the same one.

First the tree: statements go, compound ones give way to what is in them, expressions to constants or to parts
of themselves, whose ranges keep the program defined.  Then the text: numbers are halved, wherever they stand.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from random_programs.compare import Kernel
from random_programs.generator import constant
from random_programs.nodes import Expr, Line, Program, Statement

Same = Callable[[Kernel], bool]
Path = tuple[int, ...]


class Budget:
    """How long to go on: seconds, and kernels to be tried."""

    def __init__(self, same: Same, seconds: float, trials: int) -> None:
        self.same = same
        self.end = time.monotonic() + seconds
        self.trials = trials

    @property
    def is_over(self) -> bool:
        return self.trials <= 0 or time.monotonic() > self.end

    def holds(self, kernel: Kernel) -> bool:
        self.trials -= 1
        return self.same(kernel)


def shrink(program: Program, seed: int, same: Same, seconds: float = 180, trials: int = 100_000) -> Kernel:
    """The smallest kernel found, with some effort, for which `same` still holds."""
    _Shrinker(program, seed, Budget(same, seconds, trials)).run()
    return shrink_text(Kernel.of(program, seed), Budget(same, max(seconds / 3, 10), trials // 2))


class _Shrinker:
    """Changes a program in place; what does not keep the difference is undone."""

    def __init__(self, program: Program, seed: int, budget: Budget) -> None:
        self.program = program
        self.seed = seed
        self.budget = budget

    def holds(self) -> bool:
        return self.budget.holds(Kernel.of(self.program, self.seed))

    @property
    def is_over(self) -> bool:
        return self.budget.is_over

    def run(self) -> None:
        before = ""
        while before != self.program.source() and not self.is_over:
            before = self.program.source()
            self.remove(self.program.body)
            self.options()
            for statement in list(self.program.statements()):
                self.simplify(statement)

    def blocks(self) -> Iterator[list[Statement]]:
        yield self.program.body
        for statement in self.program.statements():
            yield from statement.blocks

    def remove(self, block: list[Statement]) -> None:
        """Remove statements, many at a time at first, and open compound ones."""
        size = max(len(block) // 2, 1)
        while size:
            start = len(block) - size
            while start > -size and not self.is_over:
                first = max(start, 0)
                gone = block[first : first + size]
                if gone and not any(statement.is_fixed for statement in gone):
                    block[first : first + size] = []
                    if not self.holds():
                        block[first:first] = gone
                start -= size
            size //= 2
        for number, statement in reversed(list(enumerate(list(block)))):
            for inner in [] if statement.is_guard else statement.blocks:
                if self.is_over:
                    return
                opened = [other for other in inner if not other.is_fixed]
                block[number : number + 1] = opened
                if self.holds():
                    self.remove(block)
                    return
                block[number : number + len(opened)] = [statement]
            if statement.others:
                others, statement.others = statement.others, []
                if not self.holds():
                    statement.others = others
            for inner in statement.blocks:
                self.remove(inner)

    def options(self) -> None:
        for name, values in (("grid", [(1,)]), ("num_warps", [1, 2, 4]), ("num_stages", [1, 2, 3])):
            before = getattr(self.program, name)
            for value in values:
                if value == before:
                    break
                setattr(self.program, name, value)
                if self.holds():
                    break
                setattr(self.program, name, before)

    def simplify(self, statement: Statement) -> None:
        """Make the expressions of a statement's head smaller."""
        if statement.is_guard:
            return
        self.simplify_line(statement.head, lambda line: setattr(statement, "head", line))
        for number in range(len(statement.others)):

            def put(line: Line, number: int = number) -> None:
                statement.others[number] = line, statement.others[number][1]

            self.simplify_line(statement.others[number][0], put)

    def simplify_line(self, line: Line, put: Callable[[Line], None]) -> None:
        waiting: list[Path] = [(number,) for number, part in enumerate(line.parts) if isinstance(part, Expr)]
        while waiting and not self.is_over:
            path = waiting.pop(0)
            for candidate in candidates(expr_at(line, path)):
                changed = replaced(line, path, candidate)
                put(changed)
                if self.holds():
                    line = changed
                    break
                put(line)
            found = expr_at(line, path)
            waiting = [
                (*path, number) for number, part in enumerate(found.parts) if isinstance(part, Expr)
            ] + waiting


def expr_at(line: Line | Expr, path: Path) -> Expr:
    found: Line | Expr = line
    for number in path:
        part = found.parts[number]
        assert isinstance(part, Expr)
        found = part
    assert isinstance(found, Expr)
    return found


def replaced(line: Line, path: Path, new: Expr) -> Line:
    """A line with another expression at a place."""

    def within(parts: tuple[str | Expr, ...], path: Path) -> list[str | Expr]:
        number, *rest = path
        part = parts[number]
        if rest:
            assert isinstance(part, Expr)
            part = Expr(part.type, *within(part.parts, tuple(rest)))
        else:
            part = new
        return [*parts[:number], part, *parts[number + 1 :]]

    return Line(*within(line.parts, path))


def candidates(value: Expr) -> list[Expr]:
    """What may stand for an expression: constants, and its parts that have its type and no more values than
    it."""
    t = value.type
    text = str(value)
    found: list[Expr] = []
    if t.kind != "inexact" and "tl.full(" not in text[:9] and not text.lstrip("-").isdigit():
        numbers = [0, 1, t.low, t.high] if t.is_whole else [0, 1]
        fitting = dict.fromkeys(n for n in numbers if not t.is_whole or t.low <= n <= t.high)
        found += [constant(replace(t, low=n, high=n, kind="whole")) for n in fitting]
    parts = [part for part in value.walk() if part is not value and part.type.fits(t)]
    parts.sort(key=lambda part: len(str(part)))
    return [c for c in {str(part): part for part in [*found, *parts]}.values() if len(str(c)) < len(text)]


def shrink_text(kernel: Kernel, budget: Budget) -> Kernel:
    """A kernel whose numbers are halved, and whose arguments are plain, as long as that keeps the difference."""
    changed = True
    while changed and not budget.is_over:
        changed = False
        numbers = sorted(
            {int(text) for text in re.findall(r"(?<![\w.])\d+(?![\w.])", kernel.source)} - {0, 1},
            reverse=True,
        )
        for value in numbers:
            text = re.sub(rf"(?<![\w.]){value}(?![\w.])", str(value // 2), kernel.source)
            candidate = replace(kernel, source=text)
            if not budget.is_over and budget.holds(candidate):
                kernel, changed = candidate, True
    plain = tuple(replace(argument, hint="") for argument in kernel.arguments)
    candidate = replace(kernel, arguments=plain)
    return candidate if budget.holds(candidate) else kernel
