"""`debug`: assertions, and integers that overflow, stop a kernel; without it they cost nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from zoo import CASES, Bits

import kbuild
import kbuild.language as tl
from kbuild.emulator import arguments_of, load, run
from kbuild.errors import InterpretError

HERE = Path(__file__)


def line_of(text: str) -> int:
    """The line of this file that holds a text first."""
    return next(number for number, line in enumerate(HERE.read_text().splitlines(), 1) if text in line)


@kbuild.jit
def looked_at(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    value = tl.load(x + i)
    tl.device_assert(value > 0, "is to be positive", mask=i < n)
    assert n > 1
    tl.store(out + i, value)


@kbuild.jit
def not_looked_at(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    value = tl.load(x + i)
    tl.store(out + i, value)


@kbuild.jit(debug=True)
def always_looked_at(n):
    assert n > 1, "too few"


@kbuild.jit
def computed(x, y, out, HOW: tl.constexpr):
    x, y = tl.load(x), tl.load(y)
    if HOW == "add":
        result = x + y
    elif HOW == "sub":
        result = x - y
    elif HOW == "mul":
        result = x * y
    elif HOW == "neg":
        result = -x + 0 * y
    else:
        result = tl.add(x, tl.mul(x, y, sanitize_overflow=False), sanitize_overflow=False)
    tl.store(out, result)


@kbuild.jit
def summed(x, out):
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, 4))))


@kbuild.jit
def drawn(out, seed):
    i = tl.arange(0, 256)
    tl.store(out + i, tl.rand(seed, i))


def test_an_assertion_stops_the_interpreter_at_its_line() -> None:
    x, out = np.array([3, 0, 5, -1], np.int32), np.zeros(4, np.int32)
    looked_at.interpret[1](x, out, 1, B=4)
    assert out.tolist() == x.tolist()
    place = rf"test_debug.py:{line_of('is to be positive')}:"
    message = rf"{place}.*assertion failed at element \[1\] in program \(0, 0, 0\): is to be positive"
    with pytest.raises(InterpretError, match=message):
        looked_at.interpret[1](x, out, 2, B=4, debug=True)
    with pytest.raises(InterpretError, match=r"assertion failed in program \(0, 0, 0\): n > 1"):
        looked_at.interpret[1](x, out, 1, B=4, debug=True)
    with pytest.raises(InterpretError, match="too few"):
        always_looked_at.interpret[1](0)


@pytest.mark.parametrize(
    "dtype, how, x, y",
    [
        ("int32", "add", 2**31 - 1, 1),
        ("int32", "sub", -(2**31), 1),
        ("int32", "mul", 2**16, 2**15),
        ("int8", "add", 100, 28),
        ("int32", "neg", -(2**31), 0),
        ("uint32", "sub", 0, 1),
        ("uint32", "mul", 2**32 - 1, 2**32 - 1),
        ("uint8", "add", 200, 56),
    ],
)
def test_an_integer_that_overflows_stops_the_kernel(dtype: str, how: str, x: int, y: int) -> None:
    values = [np.array([value], dtype) for value in (x, y)]
    computed.interpret[1](*values, np.zeros(1, dtype), how)
    name = {"neg": "sub"}.get(how, how)
    with pytest.raises(
        InterpretError, match=rf"int{np.dtype(dtype).itemsize * 8} overflow detected for operation {name}"
    ):
        computed.interpret[1](*values, np.zeros(1, dtype), how, debug=True)


@pytest.mark.parametrize(
    "dtype, how, x, y",
    [
        ("int32", "add", 2**31 - 2, 1),
        ("int32", "add", 2**31 - 1, -(2**31)),
        ("int32", "mul", -(2**16), 2**15),
        ("int64", "add", 2**63 - 1, 1),
        ("uint8", "add", 200, 55),
        ("int32", "wrapping", 2**30, 2**30),
        ("float32", "mul", 3e38, 10),
    ],
)
def test_what_fits_or_is_meant_to_wrap_does_not(dtype: str, how: str, x: int, y: int) -> None:
    computed.interpret[1](np.array([x], dtype), np.array([y], dtype), np.zeros(1, dtype), how, debug=True)


def test_sums_and_random_numbers_are_not_looked_at() -> None:
    """Idle lanes apply the function of a reduction to anything, so that it has no assertions; random numbers
    are to wrap."""
    total, plain, checked = np.zeros(1, np.int32), *np.zeros((2, 256), np.float32)
    summed.interpret[1](np.full(4, 2**30, np.int32), total, debug=True)
    assert total[0] == 0
    drawn.interpret[1](plain, 7)
    drawn.interpret[1](checked, 7, debug=True)
    assert (plain == checked).all() and len(set(plain)) > 200


def ptx(kernel: kbuild.language.JITFunction, debug: bool = False, lineinfo: bool = False) -> str:
    artifact = kbuild.compile(
        kernel,
        signature={"x": "*i32", "out": "*i32", "n": "i32"},
        constexprs={"B": 128},
        stop="ptx",
        debug=debug,
        lineinfo=lineinfo,
    )
    return artifact.asm["ptx"]


def test_without_debug_an_assertion_costs_nothing() -> None:
    assert ptx(looked_at).replace("not_looked_at", "looked_at") == ptx(not_looked_at).replace(
        "not_looked_at", "looked_at"
    )
    assert ptx(looked_at, debug=True).count("call.uni __assertfail") == 2


@pytest.mark.parametrize(
    "n, line, message", [(40, "is to be positive", "is to be positive"), (1, "assert n > 1", "n > 1")]
)
def test_the_emulator_reports_the_assertion_that_failed(n: int, line: str, message: str) -> None:
    x = np.ones(128, np.int32)
    x[33] = 0
    given = [x, np.zeros(128, np.int32), n]
    report = run(ptx(looked_at, debug=True, lineinfo=True), "looked_at", (1,), 4, 0, given)
    (finding,) = report.findings
    assert finding.kind == "assertion" and f"test_debug.py:{line_of(line)}: {message} in looked_at" in str(
        finding
    )
    given[2] = 32
    assert not run(ptx(looked_at, debug=True), "looked_at", (1,), 4, 0, given).findings


@pytest.mark.parametrize("name", ["matmul_cluster_persistent", "matmul_tf32_deep", "descriptor_shift"])
def test_kernels_with_pipelines_and_producers_do_the_same_with_assertions(name: str) -> None:
    case = CASES[name]
    arguments = case.make(np.random.default_rng(1))
    artifact = kbuild.compile(
        case.source,
        signature=case.signature(arguments),
        constexprs=case.constexprs,
        debug=True,
        stop="ptx",
        options=case.options("sm_90"),
    )
    assert "__assertfail" in artifact.asm["ptx"]
    facts, program = artifact.metadata, load(artifact.asm["ptx"], artifact.metadata.name)
    given = {key: value.data if isinstance(value, Bits) else value for key, value in arguments.items()}
    report = run(
        program,
        None,
        case.grid,
        facts.warps,
        facts.shared,
        arguments_of(facts.params, given),
        checks="strict",
    )
    outputs = {
        key: output for (key, _), output in zip(facts.params, report.check().outputs) if output is not None
    }
    kinds = {key: value.type_name for key, value in arguments.items() if isinstance(value, Bits)}
    case.check(
        arguments,
        {key: Bits(output, kinds[key]) if key in kinds else output for key, output in outputs.items()},
    )
