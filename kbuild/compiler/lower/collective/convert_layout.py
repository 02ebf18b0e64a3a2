"""Layouts changed: registers renamed, exchanged between lanes by shuffles, or passed through shared memory."""

from __future__ import annotations

from collections.abc import Sequence

from kbuild.compiler.analysis.scratch import plan_conversion
from kbuild.compiler.ir.types import Type
from kbuild.compiler.layout import LinearLayout
from kbuild.compiler.layout.convert import classify, register_moves
from kbuild.compiler.layout.linear import all_sums
from kbuild.compiler.layout.scratch import SharedPlan, Turn
from kbuild.compiler.layout.shuffles import Affine, shuffle_plan
from kbuild.compiler.lower.core.emit import Emitter
from kbuild.compiler.lower.core.index import linear
from kbuild.compiler.lower.core.literals import llvm_type
from kbuild.compiler.lower.core.lowering import lower
from kbuild.compiler.lower.core.shapes import layout
from kbuild.compiler.lower.core.words import from_word, per_word, to_word, word_type
from kbuild.compiler.lower.memory.shared_memory import load_all, store_all, store_matrices, with_copies
from kbuild.compiler.ops.gpu import ConvertLayout
from kbuild.errors import InternalError


@lower(ConvertLayout)
def lower_convert_layout(emit: Emitter, op: ConvertLayout) -> Sequence[str]:
    source, destination = layout(op.src.type), layout(op.type)
    kind = classify(source, destination)
    registers = emit.registers(op.src)
    if kind in ("same", "registers"):
        moves = register_moves(source, destination)
        return emit.lazy(len(moves), lambda index: registers[moves[index]])
    if kind == "shuffle":
        return _by_shuffles(emit, registers, source, destination, op.type)
    if op.scratch is None:
        raise InternalError("ttg.convert_layout has no scratch memory", op.loc)
    plan = plan_conversion(op)
    pointer = emit.shared_pointer(op.scratch)
    return with_copies(_through_shared(emit, plan, pointer, registers, op.type, kind == "warp"), destination)


def _through_shared(
    emit: Emitter, plan: SharedPlan, pointer: str, registers: Sequence[str], type_: Type, within_warps: bool
) -> dict[int, str]:
    """Stores, a barrier and loads in each round; the registers filled, by number."""
    barrier = emit.warp_barrier if within_warps else emit.barrier
    found: dict[int, str] = {}
    for number, each in enumerate(plan.rounds):
        if number or within_warps:
            barrier()
        if within_warps and each.matrices is not None and emit.target.has("stmatrix"):
            store_matrices(emit, each.matrices, pointer, registers, type_)
        else:
            for turn in each.stores:
                with emit.when(_has_turn(emit, plan.storing, turn)):
                    store_all(emit, turn.access, pointer, registers, type_)
        barrier()
        for turn in each.loads:
            own = _has_turn(emit, plan.loading, turn)
            for index, loaded in load_all(emit, turn.access, pointer, type_).items():
                before = found.get(index, loaded)
                found[index] = emit.select(own, loaded, before, llvm_type(type_))
    return found


def _has_turn(emit: Emitter, threads: Affine, turn: Turn) -> str:
    """An i1 register: whether a thread is one of those that make these accesses."""
    if not any((*threads.lane, *threads.warp)):
        return "true"
    with emit.at_entry():
        return emit.compare("eq", _evaluate(emit, threads), str(turn.number))


def _by_shuffles(
    emit: Emitter, registers: Sequence[str], source: LinearLayout, destination: LinearLayout, type_: Type
) -> Sequence[str]:
    """In each round every lane offers one word, reads another lane's, and keeps it in the register that is
    its own."""
    plan = shuffle_plan(source, destination, per_word(type_))
    words = {
        first: to_word(emit, [registers[first + element] for element in range(plan.vector)], type_)
        for first in range(0, len(registers), plan.vector)
    }
    kind = word_type(type_)
    found: dict[int, str] = {}
    for each in plan.rounds:
        offered = _pick(emit, each.offer, words, kind)
        received = offered if each.local else shuffle(emit, offered, _evaluate(emit, each.lane), kind)
        skipped = "true" if each.skip is None else emit.compare("eq", _evaluate(emit, each.skip), "0")
        for place, chosen in _cases(emit, each.destination):
            condition = emit.all_of([chosen, skipped])
            before = found.get(place)
            found[place] = received if before is None else emit.select(condition, received, before, kind)
    filled: dict[int, str] = {}
    for first, word in found.items():
        filled.update(zip(range(first, first + plan.vector), from_word(emit, word, type_, plan.vector)))
    return with_copies(filled, destination)


def shuffle(emit: Emitter, word: str, lane: str, kind: str, mode: str = "idx", clamp: str = "31") -> str:
    """The word that another lane of the warp gives: lane number `lane`, or with mode `bfly` the one at that
    distance.

    A constant is the same in all lanes.  ptxas finds that out, too, but when it then takes the minimum of its
    sum with another constant, it may lose their signs (12.8 to 13.5, for sm_90: `VIADDMNMX` of 7 and 7 in place of -7 and -7).
    """
    if word[0] != "%":
        return word
    if kind == "i32":
        operands = [("i32", "-1"), ("i32", word), ("i32", lane), ("i32", clamp)]
        return emit.call(f"llvm.nvvm.shfl.sync.{mode}.i32", "i32", operands, effect=True)
    low = emit.instruction(f"trunc i64 {word} to i32")
    high = emit.instruction(f"trunc i64 {emit.shift(word, -32, 'i64')} to i32")
    low, high = (shuffle(emit, half, lane, "i32", mode, clamp) for half in (low, high))
    wide = emit.instruction(f"zext i32 {high} to i64")
    return emit.or_(emit.shift(wide, 32, "i64"), emit.instruction(f"zext i32 {low} to i64"), "i64")


def _evaluate(emit: Emitter, affine: Affine) -> str:
    """The number that an affine function of the thread gives (i32)."""
    images = (*affine.lane, *affine.warp)
    base = linear(emit, emit.thread_id(), images) if any(images) else "0"
    return emit.xor(base, str(affine.constant))


def _cases(emit: Emitter, affine: Affine) -> list[tuple[int, str]]:
    """Every value that the function can take, with the condition that it does."""
    images = [image for image in (*affine.lane, *affine.warp) if image]
    values = sorted({affine.constant ^ total for total in all_sums(images)})
    if len(values) == 1:
        return [(values[0], "true")]
    number = _evaluate(emit, affine)
    return [(value, emit.compare("eq", number, str(value))) for value in values]


def _pick(emit: Emitter, affine: Affine, words: dict[int, str], kind: str) -> str:
    """The word whose number the function gives: a tree of selects over the bits in which the candidates
    differ."""
    images = [image for image in (*affine.lane, *affine.warp) if image]
    candidates = sorted({affine.constant ^ total for total in all_sums(images)})

    def choose(left: list[int]) -> str:
        if len(left) == 1:
            return words[left[0]]
        differing = left[0] ^ left[-1]
        bit = differing.bit_length() - 1
        zeros, ones = [n for n in left if not n >> bit & 1], [n for n in left if n >> bit & 1]
        condition = emit.compare("eq", emit.and_(_evaluate(emit, affine), str(1 << bit)), "0")
        return emit.select(condition, choose(zeros), choose(ones), kind)

    return choose(candidates)
