"""The areas of kbuild in which `mutate_self.py` plants mistakes, and the tests that lie beside their modules."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ZOO = (
    "tests/zoo/test_zoo.py::test_source_means_what_numpy_says",
    "tests/zoo/test_zoo.py::test_passes_keep_the_meaning",
)
EMULATED = ("tests/emulator/test_zoo_emulated.py::test_case_is_right_in_lockstep",)
RANDOM = ("tests/random_programs/test_random_programs.py",)


class Area(NamedTuple):
    """Modules, and which tests lie beside them: those of the longest path that a module's begins with, the
    fastest first."""

    files: tuple[str, ...]
    """Globs below the root; those of other areas that are below are left out by `without`."""
    tests: dict[str, tuple[str, ...]]
    without: tuple[str, ...] = ()


_C = "kbuild/compiler/"
_E = "kbuild/emulator/"
_A = "kbuild/aot/"
_TC = "tests/compiler/"
_TV = "tests/aot/verify/"
_TR = "tests/emulator/race/"
_TE = "tests/emulator/"
AREAS: dict[str, Area] = {
    "compiler": Area(
        (f"{_C}**/*.py",),
        {
            _C: (*ZOO, *EMULATED, *RANDOM),
            f"{_C}analysis/": (f"{_TC}analysis", f"{_TC}transforms/gpu", *EMULATED, *RANDOM),
            f"{_C}analysis/axis_info/": (
                f"{_TC}analysis/test_axis_info.py",
                f"{_TC}transforms/gpu",
                *EMULATED,
                *RANDOM,
            ),
            f"{_C}backend/": (f"{_TC}backend", f"{_TC}lower/test_math.py", *EMULATED),
            f"{_C}frontend/": (f"{_TC}frontend", f"{_TC}semantic", f"{_TC}interp", *ZOO, *RANDOM),
            f"{_C}ir/": (
                f"{_TC}ir",
                f"{_TC}transforms/common",
                f"{_TC}transforms/tensor",
                f"{_TC}transforms/gpu",
                *ZOO,
            ),
            f"{_C}layout/": (f"{_TC}layout", f"{_TC}transforms/gpu", f"{_TC}lower", *EMULATED),
            f"{_C}library/": (f"{_TC}semantic", f"{_TC}interp", *ZOO),
            f"{_C}lower/": (f"{_TC}lower", *EMULATED, *RANDOM),
            f"{_C}ops/": (
                f"{_TC}ir",
                f"{_TC}transforms/common",
                f"{_TC}transforms/tensor",
                f"{_TC}transforms/gpu",
                f"{_TC}lower",
                *ZOO,
            ),
            f"{_C}semantic/": (f"{_TC}semantic", f"{_TC}frontend", f"{_TC}interp", *ZOO, *RANDOM),
            f"{_C}targets/": (f"{_TC}transforms/gpu", f"{_TC}backend", *EMULATED),
            f"{_C}transforms/common/": (f"{_TC}transforms/common", f"{_TC}frontend", *ZOO, *RANDOM),
            f"{_C}transforms/gpu/": (f"{_TC}transforms/gpu", f"{_TC}lower", *ZOO, *EMULATED, *RANDOM),
            f"{_C}transforms/tensor/": (
                f"{_TC}transforms/tensor",
                f"{_TC}transforms/gpu",
                *ZOO,
                *EMULATED,
                *RANDOM,
            ),
        },
        (f"{_C}interp/",),
    ),
    "interpreter": Area(
        (f"{_C}interp/**/*.py",),
        {_C: (f"{_TC}interp", f"{_TC}semantic", *ZOO, f"{_TV}test_verify_waiting.py")},
    ),
    "emulator": Area(
        (f"{_E}**/*.py",),
        {
            _E: ("tests/emulator",),
            f"{_E}driver/": (f"{_TE}driver",),
            f"{_E}mutate/": (f"{_TE}mutate/test_mutate.py", f"{_TV}test_mutate.py"),
            f"{_E}race/": (
                f"{_TR}test_race.py",
                f"{_TR}test_race_maps.py",
                f"{_TR}test_race_scopes.py",
                f"{_TR}test_missing_waits.py",
                "tests/emulator",
            ),
            f"{_E}isa/matrix/": (f"{_TE}isa/test_matrix.py", f"{_TE}isa/test_wgmma.py", "tests/emulator"),
        },
    ),
    "aot": Area(
        (f"{_A}**/*.py",),
        {
            _A: ("tests/aot", "tests/launcher", "tests/cli"),
            f"{_A}verify/": (
                f"{_TV}test_reference.py",
                f"{_TV}test_launches.py",
                f"{_TV}test_verify.py",
                f"{_TV}test_pool.py",
                f"{_TV}test_run.py",
                f"{_TV}test_verify_limits.py",
                f"{_TV}test_verify_waiting.py",
                f"{_TV}test_mutate.py",
            ),
        },
    ),
    "launcher": Area(
        ("templates/launcher/**/*.h", "templates/launcher/**/*.c", "templates/launcher/**/*.c.j2"),
        {"templates/": ("tests/launcher", f"{_TE}driver")},
    ),
}


def files_of(root: Path, area: Area) -> list[str]:
    """The modules of an area, with tests."""
    found = sorted(
        {path.relative_to(root).as_posix() for pattern in area.files for path in root.glob(pattern)}
    )
    return [file for file in found if not file.startswith(area.without) or not area.without]


def beside(root: Path, area: Area, file: str) -> tuple[str, ...]:
    """The tests that lie beside a module: one of its own name first, then those of its folder."""
    prefix = max((prefix for prefix in area.tests if file.startswith(prefix)), key=len)
    stem = Path(file).stem
    named = [
        path.relative_to(root).as_posix()
        for folder in area.tests[prefix]
        if (root / folder).is_dir()
        for path in sorted((root / folder).glob(f"*{stem}.*"))
        if path.stem in (stem, f"test_{stem}")
    ]
    return tuple(dict.fromkeys([*named, *area.tests[prefix]]))
