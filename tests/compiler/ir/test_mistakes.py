"""Messages of the parser about wrong text, and of the verifier about wrong IR."""

import pytest

from kbuild.compiler.ir.builder import Builder
from kbuild.compiler.ir.core import Block, Func
from kbuild.compiler.ir.parser import parse_module
from kbuild.compiler.ir.passes import PassLog, run_pipeline, tensor_pass
from kbuild.compiler.ir.types import F32, I32, TensorType
from kbuild.compiler.ir.verify import verify
from kbuild.compiler.ops.control import Return, Yield
from kbuild.compiler.ops.elementwise import AddI, Constant, Select
from kbuild.errors import CompileError, InternalError
from kbuild.targets import find_target


def parse_error(*body: str, head: str = "tt.func @f(%x: i32, %t: tensor<4xf32>) {") -> str:
    """The parser's message about a function with this body."""
    with pytest.raises(CompileError) as caught:
        parse_module("\n".join([head, *("  " + line for line in body), "  tt.return", "}"]), "f.ttir")
    return str(caught.value)


def test_unknown_operation() -> None:
    assert parse_error("%y: i32 = arith.plus %x, %x") == (
        "f.ttir:2:13: error: unknown operation 'arith.plus'\n"
        "    %y: i32 = arith.plus %x, %x\n"
        "              ^^^^^^^^^^"
    )


def test_undefined_value() -> None:
    assert parse_error("%y: i32 = arith.addi %x, %z") == (
        "f.ttir:2:28: error: %z is not defined\n"
        "    %y: i32 = arith.addi %x, %z\n"
        "                             ^^"
    )


def test_wrong_result_type() -> None:
    assert parse_error("%y: i64 = arith.addi %x, %x") == (
        "f.ttir:2:13: error: the result of arith.addi on these operands is i32\n"
        "    %y: i64 = arith.addi %x, %x\n"
        "              ^^^^^^^^^^"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%x: i32 = arith.addi %x, %x", "%x is defined twice"),
        ("%y: i32 = arith.addi %x", "arith.addi lacks rhs"),
        ("%y: i32 = arith.addi %x,", "expected a value, found 'tt.return'"),
        ("%y, %z: i32 = arith.addi %x, %x", "2 names for 1 types of results"),
        ("arith.addi %x, %x", "the result of arith.addi on these operands is i32"),
        ("%y: f32 = arith.constant", "arith.constant lacks value"),
        ("%y: f32 = arith.constant {valu = 1.0}", "arith.constant has no attribute 'valu'"),
        ("%y: i32 = tt.expand_dims %x {axis = 0}", "tt.expand_dims: %x: i32 is not a tensor"),
        ("%y: tensor<4xf32, #a> = tt.splat %x", "layout #a is not defined at the top"),
        ("%y: i32 = arith.addi %x, %x ?", "unexpected character '?'"),
        ("%y: i33 = arith.addi %x, %x", "expected a type, found 'i33'"),
    ],
)
def test_messages(line: str, message: str) -> None:
    assert f"error: {message}\n" in parse_error(line)


def test_layout_that_does_not_fit() -> None:
    text = "#a = linear{register=[[3, 0]]}\n"
    assert "layout #a: " in parse_error(head=text + "tt.func @f(%x: tensor<2x2xf32, #a>) {")


def function(*types: object) -> tuple[Func, Builder]:
    """An empty function and a builder at its end."""
    func = Func("f", Block(types), {})  # type: ignore[arg-type]
    return func, Builder(func.body)


def verifier_error(func: Func) -> str:
    with pytest.raises(InternalError) as caught:
        verify(func)
    return caught.value.message


def test_use_before_definition() -> None:
    func, build = function(I32)
    first = build.add(AddI(func.arguments[0], func.arguments[0]))
    second = build.add(AddI(first.result, first.result))
    build.add(Return(()))
    second.move_before(first)
    assert verifier_error(func).startswith("operand %?: i32 is not defined before it")


def test_use_of_an_erased_value() -> None:
    func, build = function(I32)
    lost = AddI(func.arguments[0], func.arguments[0])
    build.add(AddI(lost.result, lost.result))
    build.add(Return(()))
    assert "is not defined before it" in verifier_error(func)


def test_terminator_in_the_middle() -> None:
    func, build = function()
    build.add(Yield(()))
    build.add(Return(()))
    assert verifier_error(func).startswith("a terminator must be the last operation")


def test_elementwise_over_different_shapes() -> None:
    func, build = function(TensorType((4,), F32))
    condition = build.add(Constant(True, I32))
    build.add(Select(condition.result, func.arguments[0], func.arguments[0]))
    build.add(Return(()))
    assert verifier_error(func).startswith("operands and results differ in shape or layout")


def test_users_are_recorded_on_both_sides() -> None:
    func, build = function(I32)
    add = build.add(AddI(func.arguments[0], func.arguments[0]))
    build.add(Return(()))
    func.arguments[0].users.pop(add)
    assert "does not know this user" in verifier_error(func)


def test_a_failing_pass_says_how_to_repeat_it(tmp_path) -> None:
    @tensor_pass
    def break_something(module, target):
        raise ZeroDivisionError("no")

    module = parse_module("tt.func @f(%x: i32) {\n  tt.return\n}\n")
    with pytest.raises(InternalError) as caught:
        run_pipeline(module, find_target("sm_80"), ["break_something"], PassLog(dump=tmp_path))
    assert caught.value.message == "pass break_something failed: ZeroDivisionError: no"
    input_ = tmp_path / "00_before_failure.ttir"
    assert caught.value.help == f"repeat with: kbuild opt {input_} -p 'break_something' --arch sm_80"
    assert input_.read_text().startswith("tt.func @f(%x: i32)")


@pytest.mark.parametrize("changes", [True, False])
@pytest.mark.parametrize("dumps", [True, False])
def test_a_pass_that_changes_blocks_is_verified_before_the_next(tmp_path, changes, dumps) -> None:
    """One that only changes a type is where the passes are dumped; else with what follows, at the latest the last."""

    @tensor_pass
    def breaks(module, target):
        add, returns = module.kernel.body
        if changes:
            add.move_before(returns)
        add.operands[0].type = F32

    @tensor_pass
    def does_nothing(module, target):
        pass

    text = "tt.func @f(%x: tensor<4xi32>) {\n  %0: tensor<4xi32> = arith.addi %x, %x\n  tt.return\n}\n"
    passes = ["breaks", "does_nothing", "does_nothing"]
    with pytest.raises(InternalError) as caught:
        run_pipeline(
            parse_module(text), find_target("sm_80"), passes, PassLog(dump=tmp_path if dumps else None)
        )
    blamed = "breaks" if changes or dumps else "does_nothing"
    assert caught.value.message.startswith(f"pass {blamed} failed: operands and results differ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func @f() {\n  tt.return\n}\n", "expected tt.func"),
        ("tt.func f() {\n  tt.return\n}\n", "expected"),
        ("tt.func @f( {\n  tt.return\n}\n", "expected"),
        ("tt.func @f() \n  tt.return\n", "expected"),
    ],
)
def test_what_is_not_a_function(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        parse_module(text)


def test_a_builder_names_a_result_that_has_no_name() -> None:
    func, build = function(I32)
    add = build.add(AddI(func.arguments[0], func.arguments[0]), "sum")
    assert add.result.name == "sum"
    other = AddI(func.arguments[0], func.arguments[0])
    other.result.name = "own"
    assert build.add(other, "sum").result.name == "own" and not build.add(Return(()), "nothing").results
