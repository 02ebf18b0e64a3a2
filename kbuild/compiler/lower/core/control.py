"""Loops and branches: LLVM blocks, and phis for just those registers that something uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kbuild.compiler.analysis import tensor_registers
from kbuild.compiler.ir.core import Block, Value
from kbuild.compiler.ir.types import Type
from kbuild.compiler.lower.core.emit import Chunk, Emitter
from kbuild.compiler.lower.core.literals import llvm_type
from kbuild.compiler.lower.core.lowering import Results, lower, lower_block
from kbuild.compiler.lower.core.words import from_word, per_word, to_word, word_type
from kbuild.compiler.ops.control import Condition, For, If, Return, While, Yield
from kbuild.compiler.ops.gpu import AsyncCopyGlobalToLocal, AsyncWait, LocalDot, WarpIf
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Dot, Load

_LONG = (For, While, Dot, LocalDot, WarpGroupDot, AsyncCopyGlobalToLocal, AsyncWait)
"""What makes an iteration long, or has loads on their way already."""
_ENOUGH_WORDS = 8
"""Words that a thread loads in an iteration from which on more would not help.  A memory of 4 TB/s that answers after
0.8 us has 3.2 MB on their way: eight words of each thread where a multiprocessor has 24 of its 64 warps, as few programs
leave it, or many registers.  It counts what all programs load, too, which the cache has."""


class Phis:
    """Registers that merge several predecessors, each written when it is asked for.

    The incoming registers are asked for at the very end: those of a loop's back edge come after their use.
    """

    def __init__(self, emit: Emitter, chunk: Chunk, type_: Type) -> None:
        self.emit, self.chunk, self.value_type, self.type = emit, chunk, type_, self.register_type(type_)
        self.incoming: list[tuple[str, Callable[[int], str]]] = []
        """Label of a predecessor, and what gives the register that comes from there."""

    @staticmethod
    def register_type(type_: Type) -> str:
        """The LLVM type of what is merged, for values of a type."""
        return llvm_type(type_)

    def registers(self, count: int) -> Sequence[str]:
        """The registers of the value, which merge so many of each predecessor when they are asked for."""
        return self.emit.lazy(count, self._phi)

    def _phi(self, index: int) -> str:
        register = self.emit.fresh()
        self.emit.later.append(lambda: self._write(register, index))
        return register

    def _write(self, register: str, index: int) -> None:
        operands = ", ".join(f"[{source(index)}, %{label}]" for label, source in self.incoming)
        self.chunk.lines.append(f"  {register} = phi {self.type} {operands}")


class WordPhis(Phis):
    """Phis of fragments for the tensor cores: they merge words, not elements, which would have to be moved out of
    each word and into the next."""

    @staticmethod
    def register_type(type_: Type) -> str:
        return word_type(type_)

    def registers(self, count: int) -> Sequence[str]:
        words, each, type_ = super().registers(count), per_word(self.value_type), self.value_type
        return self.emit.lazy(
            each * count, lambda index: from_word(self.emit, words[index // each], type_)[index % each]
        )


def _goes_in_words(value: Value) -> bool:
    """Whether a carried value is a fragment of several elements in a word."""
    return per_word(value.type) > 1 and any(
        isinstance(user, Dot) and user.atom and value in (user.a, user.b) for user in value.users
    )


def _passed(
    emit: Emitter, arguments: Sequence[Value], values: Sequence[Sequence[str]]
) -> list[Sequence[str]]:
    """The values that a predecessor passes to the arguments of a block: called while its code is still open."""

    def words(registers: Sequence[str], type_: Type) -> Sequence[str]:
        each = per_word(type_)
        return emit.lazy(
            len(registers) // each, lambda i: to_word(emit, registers[each * i : each * (i + 1)], type_)
        )

    return [words(own, value.type) if _goes_in_words(value) else own for value, own in zip(arguments, values)]


def _bind_phis(emit: Emitter, values: Sequence[Value], counts: Sequence[Sequence[str]]) -> list[Phis]:
    """Bind values to registers that merge predecessors, at the head of the current block."""
    merged = []
    head = emit.chunk
    emit.new_chunk()
    for value, like in zip(values, counts):
        is_argument = isinstance(
            value.owner, Block
        )  # Results merge elements: only arguments are passed in words.
        phis = (WordPhis if is_argument and _goes_in_words(value) else Phis)(emit, head, value.type)
        emit.bind(value, phis.registers(len(like)))
        merged.append(phis)
    return merged


def _bring(emit: Emitter, phis: Sequence[Phis], label: str, registers: Sequence[Sequence[str]]) -> None:
    """Set the registers that come from the predecessor `label`."""
    for phi, own in zip(phis, registers):
        phi.incoming.append((label, own.__getitem__))


def _operands(emit: Emitter, values: Sequence[Value]) -> list[Sequence[str]]:
    return [emit.registers(value) for value in values]


def unroll_disabled(emit: Emitter, loop: For | None = None) -> str:
    """Metadata that keep LLVM and ptxas from unrolling a loop: the user's unrolling and pipelining are done
    already.  None in a kernel whose author has pipelined it himself, or not at all, and for a loop that waits for
    its own loads."""
    if emit.explicit_layouts or (loop is not None and _waits_for_loads(loop)):
        return ""
    number = len(emit.metadata)
    emit.metadata += [f"distinct !{{!{number}, !{number + 1}}}", '!{!"llvm.loop.unroll.disable"}']
    return f", !llvm.loop !{number}"


def _waits_for_loads(loop: For) -> bool:
    """Whether a loop does little more than to load a few words and to use them at once.

    Its iterations are as long as a load takes.  ptxas unrolls such a loop by four, where it decides itself, and then
    has the loads of four iterations on their way: 1.7 times the speed of a product of a matrix and a vector whose threads
    load two words of each.  Loads of more words are enough by themselves, and the code around four copies takes time:
    0.93 of the speed of a sum that loads eight.
    """
    body = list(loop.body.walk())
    loads = [op.result for op in body if isinstance(op, Load)]
    return (
        bool(loads)
        and loop.loop_unroll_factor is None
        and not any(isinstance(op, _LONG) for op in body)
        and sum(max(tensor_registers.words([value]), 1) for value in loads) < _ENOUGH_WORDS
    )


def counted_loop(
    emit: Emitter,
    end: int,
    step: int,
    init: Sequence[str],
    kind: str,
    body: Callable[[str, Sequence[str]], list[str]],
) -> list[str]:
    """`for i in range(0, end, step)` with `end` > 0, and no loop where there is one round alone.  `body`
    takes i (i32) and the carried registers, all of the LLVM type `kind`, and gives those of the next round;
    those of the last one come back."""
    if step >= end:
        return body("0", init)
    head, after, before = emit.new_label("loop"), emit.new_label("done"), emit.chunk.label
    emit.branch(head)
    with emit.scope():
        phis = emit.start_block(head)
        emit.new_chunk()
        registers = [emit.fresh() for _ in range(1 + len(init))]
        following = body(registers[0], registers[1:])
        number = emit.instruction(f"add nuw nsw i32 {registers[0]}, {step}")
        again, latch = emit.compare(*_goes_on("0", str(end), str(step), number)), emit.chunk.label
        emit.branch(head, again, after, unroll_disabled(emit))
    types = ["i32", *(kind for _ in init)]
    for register, type_, first, last in zip(registers, types, ["0", *init], [number, *following]):
        phis.lines.append(f"  {register} = phi {type_} [{first}, %{before}], [{last}, %{latch}]")
    emit.start_block(after)
    return following


def _goes_on(
    lower: str, upper: str, step: str, following: str, has_dots: bool = False
) -> tuple[str, str, str]:
    """The comparison, and its operands, by which a loop that has been entered goes on.

    Where the numbers are known, the following one is compared with that after the last for equality: LLVM can then
    count by what addresses need anyway, where an order of numbers takes a counter of its own beside a pointer for
    each address.  Loops of dots, which are long, rather have the registers that this may take.
    """
    if not has_dots and not any(bound[0] == "%" for bound in (lower, upper, step)):
        numbers = range(int(lower), int(upper), int(step))
        if numbers and (end := numbers[-1] + numbers.step) < 1 << 31:
            return "ne", following, str(end)
    return "slt", following, upper


@lower(For)
def lower_for(emit: Emitter, op: For) -> Results:
    """Test before the first iteration, and after each: the form that needs no further rotation."""
    type_ = llvm_type(op.lower.type)
    lower_bound, upper, step = (emit.scalar(value) for value in (op.lower, op.upper, op.step))
    init = _operands(emit, op.init)
    head, after = emit.new_label("loop"), emit.new_label("done")
    guard = emit.chunk.label
    runs = emit.holds("slt", lower_bound, upper, type_)
    entering = _passed(emit, op.carried, init)
    emit.branch(head, "" if runs == "true" else runs, after)
    with emit.scope():
        emit.start_block(head)
        induction, *carried = _bind_phis(emit, op.body.arguments, [[lower_bound], *entering])
        lower_block(emit, op.body)
        yielded = _operands(emit, op.yielded)
        latch = emit.chunk.label
        following = emit.instruction(f"add nsw {type_} {emit.scalar(op.induction)}, {step}")
        has_dots = any(isinstance(inner, Dot | LocalDot | WarpGroupDot) for inner in op.body.walk())
        again = emit.compare(*_goes_on(lower_bound, upper, step, following, has_dots), type_)
        following_carried = _passed(emit, op.carried, yielded)
        emit.branch(head, again, after, unroll_disabled(emit, op))
    _bring(emit, [induction, *carried], guard, [[lower_bound], *entering])
    _bring(emit, [induction, *carried], latch, [[following], *following_carried])
    emit.start_block(after)
    merged = _bind_phis(emit, op.results, init)
    if runs != "true":
        _bring(emit, merged, guard, init)
    _bring(emit, merged, latch, yielded)
    return Results(_operands(emit, op.results))


@lower(While)
def lower_while(emit: Emitter, op: While) -> Results:
    """The block that tests is the loop's head; the results are what it tested with."""
    init = _passed(emit, op.before.arguments, _operands(emit, op.init))
    head, body, after = (emit.new_label(name) for name in ("while", "do", "done"))
    before = emit.chunk.label
    emit.branch(head)
    # The head dominates what follows, so what it computes stays visible: no scope around it.
    emit.start_block(head)
    carried = _bind_phis(emit, op.before.arguments, init)
    lower_block(emit, op.before)
    condition = op.before.terminator
    assert isinstance(condition, Condition)
    values = _operands(emit, condition.values)
    emit.branch(body, emit.scalar(condition.condition), after)
    with emit.scope():
        emit.start_block(body)
        for argument, registers in zip(op.after.arguments, values):
            emit.bind(argument, registers)
        lower_block(emit, op.after)
        yielded = _passed(emit, op.before.arguments, _operands(emit, op.after.terminator.operands))
        latch = emit.chunk.label
        emit.branch(head, metadata=unroll_disabled(emit))
    _bring(emit, carried, before, init)
    _bring(emit, carried, latch, yielded)
    emit.start_block(after)
    return Results(values)


@lower(If)
def lower_if(emit: Emitter, op: If) -> Results:
    condition = emit.scalar(op.condition)
    then, otherwise, after = (emit.new_label(name) for name in ("then", "else", "after"))
    emit.branch(then, condition, otherwise)
    branches = [
        _branch(emit, block, label, after)
        for block, label in ((op.then_body, then), (op.else_body, otherwise))
    ]
    emit.start_block(after)
    merged = _bind_phis(emit, op.results, branches[0][1])
    for label, registers in branches:
        _bring(emit, merged, label, registers)
    return Results(_operands(emit, op.results))


def _branch(emit: Emitter, block: Block, label: str, after: str) -> tuple[str, list[Sequence[str]]]:
    """One branch of an `if`: the label it ends in, and the registers it yields."""
    with emit.scope():
        emit.start_block(label)
        lower_block(emit, block)
        yielded = _operands(emit, block.terminator.operands)
        end = emit.chunk.label
        emit.branch(after)
    return end, yielded


@lower(WarpIf)
def lower_warp_if(emit: Emitter, op: WarpIf) -> Results:
    """A warp votes, and its threads take the same branch."""
    conditions = list(dict.fromkeys(emit.registers(op.condition)))
    mine = conditions[0]
    for condition in conditions[1:]:
        mine = emit.instruction(f"or i1 {mine}, {condition}")
    anywhere = emit.call("llvm.nvvm.vote.any.sync", "i1", [("i32", "-1"), ("i1", mine)], effect=True)
    kept = _operands(emit, op.otherwise)
    then, after = emit.new_label("then"), emit.new_label("after")
    before = emit.chunk.label
    emit.branch(then, anywhere, after)
    end, yielded = _branch(emit, op.body, then, after)
    emit.start_block(after)
    merged = _bind_phis(emit, op.results, kept)
    _bring(emit, merged, before, kept)
    _bring(emit, merged, end, yielded)
    return Results(_operands(emit, op.results))


@lower(Yield, Condition)
def lower_end_of_region(emit: Emitter, op: Yield | Condition) -> None:
    """The operation around the region takes the values."""


@lower(Return)
def lower_return(emit: Emitter, op: Return) -> None:
    emit.line("ret void")
