"""Conversions, carried out element by element on a simulated block of threads."""

import random

import pytest

from kbuild.compiler.layout import (
    LinearLayout,
    bank_conflicts,
    blocked,
    classify,
    dot_operand,
    f2,
    mma_accumulator,
    register_moves,
    shared_plan,
    shuffle_plan,
    slice_of,
    stored_by_warps,
    wgmma_accumulator,
)
from kbuild.errors import InternalError
from tests.compiler.layout.random_layouts import random_threads


def hold(layout: LinearLayout):
    """What every thread holds: {(lane, warp): [flat coordinate of each register]}."""
    return {
        (lane, warp): [flat ^ layout.flat(lane=lane, warp=warp) for flat in layout.registers()]
        for lane in range(layout.size("lane"))
        for warp in range(layout.size("warp"))
    }


def shuffle(plan, source, destination):
    """The values of every destination register after a shuffle plan."""
    values = hold(source)
    result = {thread: [None] * destination.size("register") for thread in hold(destination)}
    for each in plan.rounds:
        for (lane, warp), registers in result.items():
            if each.skip is not None and each.skip(lane, warp):
                continue
            giver = each.lane(lane, warp)
            assert not each.local or giver == lane
            offered, filled = each.offer(giver, warp), each.destination(lane, warp)
            for part in range(plan.vector):
                assert registers[filled + part] is None, "filled twice"
                registers[filled + part] = values[giver, warp][offered + part]
    return with_copies(result, destination)


def with_copies(result, destination):
    first = destination.representatives()
    return {
        thread: [registers[first[r]] for r in range(len(registers))] for thread, registers in result.items()
    }


def through_shared(plan, source, destination):
    """The values of every destination register after a shared plan."""
    values = hold(source)
    result = {thread: [None] * destination.size("register") for thread in hold(destination)}
    for each in plan.rounds:
        memory = [None] * (plan.bytes * 8 // plan.element_bits)
        for (lane, warp), registers in values.items():
            for access in own_turns(each.stores, plan.storing, lane, warp):
                for group, start in accesses(access, lane, warp, plan.store_vector):
                    for element, register in enumerate(group):
                        assert memory[start + element] in (None, registers[register]), "two in one place"
                        memory[start + element] = registers[register]
        for (lane, warp), registers in result.items():
            for access in own_turns(each.loads, plan.loading, lane, warp):
                for group, start in accesses(access, lane, warp, plan.load_vector):
                    for element, register in enumerate(group):
                        assert registers[register] is None, "loaded twice"
                        registers[register] = memory[start + element]
    return with_copies(result, destination)


def own_turns(turns, threads, lane, warp):
    """The accesses of one thread in a round."""
    return [turn.access for turn in turns if turn.number == threads(lane, warp)]


def only(turns):
    """The accesses of a round in which all threads do the same."""
    ((number, access),) = turns
    assert number == 0
    return access


def accesses(access, lane, warp, vector):
    for group, start in zip(access.groups, access.offsets):
        for index, images in ((lane, access.lane), (warp, access.warp)):
            for bit, image in enumerate(images):
                start ^= image if index >> bit & 1 else 0
        assert start % vector == 0 and len(group) == vector
        yield group, start


def test_same_and_registers():
    row = blocked((16, 64), [1, 4], [4, 8], [2, 1], [1, 0])
    assert classify(row, row) == "same"
    other = row.with_bases("register", reversed(row.bases_of("register")))
    assert classify(row, other) == "registers"
    moves = register_moves(row, other)
    assert [row.registers()[register] for register in moves] == other.registers()
    with pytest.raises(InternalError, match="between threads"):
        register_moves(row, blocked((16, 64), [4, 1], [4, 8], [2, 1], [0, 1]))


def test_accumulator_to_operand_needs_no_exchange():
    """p of flash attention: the accumulator of the first dot is, per thread, the left operand of the second."""
    assert classify(mma_accumulator((64, 64), (4, 1)), dot_operand((64, 64), (4, 1), 0, 2)) in (
        "same",
        "registers",
    )


def test_a_slice_broadcasts_to_its_parent_without_exchange():
    """m[:, None] next to the accumulator that it was reduced from: register r reads register r."""
    parent = mma_accumulator((64, 64), (4, 1))
    column = slice_of(parent, 1).expand_dims(1)
    assert classify(column, parent.project(1)) == "registers"
    assert register_moves(column, parent.project(1))[:4] == [0, 0, 1, 1]


def test_a_transposed_pair_of_bits_costs_half_a_shuffle_per_register():
    """Register bit and lane bit trade places: half of what a lane wants it already has."""
    source = LinearLayout.make((64,), register=[1, 32], lane=[2, 4, 8, 16, 0])
    destination = LinearLayout.make((64,), register=[1, 2], lane=[32, 4, 8, 16, 0])
    plan = shuffle_plan(source, destination)
    assert shuffle(plan, source, destination) == hold(destination)
    assert plan.shuffles == 2 and len(plan.rounds) == 4
    packed = shuffle_plan(source, destination, vector_limit=2)
    assert shuffle(packed, source, destination) == hold(destination)
    assert (packed.vector, packed.shuffles, len(packed.rounds)) == (2, 1, 2)


def test_a_permutation_of_lanes_costs_one_shuffle_per_register():
    source = LinearLayout.make((64,), register=[1], lane=[2, 4, 8, 16, 32])
    destination = LinearLayout.make((64,), register=[1], lane=[32, 2, 4, 8, 16])
    plan = shuffle_plan(source, destination)
    assert plan.shuffles == len(plan.rounds) == 2
    assert shuffle(plan, source, destination) == hold(destination)


def test_lanes_read_themselves_when_some_choice_of_registers_allows_it():
    """Taken one by one lanes 1 and 2 trade places; filling register 1 first where either is set, half stay at
    home."""
    source = LinearLayout.make((64,), register=[1], lane=[2, 4, 8, 16, 32])
    destination = LinearLayout.make((64,), register=[2 ^ 4], lane=[4, 2 ^ 1, 8, 16, 32])
    plan = shuffle_plan(source, destination)
    assert (len(plan.rounds), plan.shuffles) == (2, 1)
    assert shuffle(plan, source, destination) == hold(destination)


def test_what_many_lanes_want_of_one_comes_without_selects():
    """A value of each lane becomes a column of eight: in each round both halves of the warp ask one lane each,
    and all lanes fill the same register."""
    source = slice_of(blocked((16, 1), (1, 1), (32, 1), (1, 1), (1, 0)), 1)
    destination = slice_of(blocked((16, 16), (1, 1), (2, 16), (1, 1), (1, 0)), 1)
    plan = shuffle_plan(source, destination)
    assert (plan.shuffles, len(plan.rounds)) == (8, 8)
    assert not any(any(each.destination.lane) or each.skip for each in plan.rounds)
    assert shuffle(plan, source, destination) == hold(destination)


def test_copies_in_other_lanes_are_asked():
    """Lanes 0 and 2 hold copies of two registers each, so lanes that want either register ask different ones."""
    source = LinearLayout.make((32,), register=[1], lane=[2, 0, 4, 8, 16])
    destination = LinearLayout.make((32,), register=[], lane=[1, 2, 4, 8, 16])
    plan = shuffle_plan(source, destination)
    assert len(plan.rounds) == 1 and plan.rounds[0].skip is None
    assert shuffle(plan, source, destination) == hold(destination)


@pytest.mark.parametrize("seed", range(40))
def test_without_copies_every_register_is_one_round(seed):
    source = random.Random(seed)
    first, second = (
        random_threads(source, (256,), warps=0, mix=source.randrange(12), replicated=0) for _ in range(2)
    )
    plan = shuffle_plan(first, second)
    assert len(plan.rounds) == 8 and all(each.skip is None for each in plan.rounds)
    assert shuffle(plan, first, second) == hold(second)


@pytest.mark.parametrize("seed", range(150))
def test_shuffles_deliver_every_element(seed):
    """Random layouts whose warps hold the same elements, replicated in every way."""
    source = random.Random(seed)
    shape = source.choice([(64,), (16, 8), (32, 16)])
    first = random_threads(source, shape, warps=0, replicated=source.randrange(4), mix=source.randrange(8))
    second = random_threads(source, shape, warps=0, replicated=source.randrange(4), mix=source.randrange(8))
    # One more warp bit: every warp of the source holds everything, those of the destination differ.
    first = first.with_bases("warp", [0, 0])
    second = second.with_bases("warp", [0, source.randrange(first.numel)])
    plan = shuffle_plan(first, second, vector_limit=source.choice([1, 2, 4]))
    assert shuffle(plan, first, second) == hold(second)
    assert plan.shuffles <= len(plan.rounds)


def test_spread_over_warps_within_a_warp():
    """Lanes 0 to 15 of every warp must serve all 32 lanes: half of the readers skip each offer."""
    source = LinearLayout.make((64,), register=[1], lane=[2, 4, 8, 16, 32], warp=[0])
    destination = LinearLayout.make((64,), register=[], lane=[2, 4, 8, 16, 1], warp=[32])
    assert classify(source, destination) == "shuffle"
    plan = shuffle_plan(source, destination)
    assert any(each.skip is not None for each in plan.rounds)
    assert shuffle(plan, source, destination) == hold(destination)


@pytest.mark.parametrize("seed", range(120))
def test_shared_memory_delivers_every_element(seed):
    source = random.Random(seed)
    shape = source.choice([(64,), (16, 16), (32, 32), (2, 16, 16)])
    first = random_threads(source, shape, replicated=source.randrange(3), mix=source.randrange(3))
    second = random_threads(source, shape, replicated=source.randrange(3), mix=source.randrange(3))
    bits = source.choice([8, 16, 32, 64])
    bound = source.choice([None, first.numel * bits // 8 // source.choice([2, 4, 16, 64])])
    plan = shared_plan(first, second, bits, bound)
    assert through_shared(plan, first, second) == hold(second)
    assert plan.bytes * len(plan.rounds) == first.numel * bits // 8
    assert bound is None or plan.bytes <= bound


PAIRS = {
    "row to column": (
        blocked((64, 64), [1, 4], [2, 16], [4, 1], [1, 0]),
        blocked((64, 64), [4, 1], [16, 2], [1, 4], [0, 1]),
    ),
    "row to row": (
        blocked((64, 128), [1, 8], [2, 16], [4, 1], [1, 0]),
        blocked((64, 128), [1, 4], [1, 32], [4, 1], [1, 0]),
    ),
    "mma to row": (mma_accumulator((64, 128), (2, 2)), blocked((64, 128), [1, 8], [2, 16], [4, 1], [1, 0])),
    "wide mma to row": (
        mma_accumulator((128, 128), (4, 1)),
        blocked((128, 128), [1, 4], [1, 32], [4, 1], [1, 0]),
    ),
    "row to operand": (
        blocked((64, 64), [1, 8], [4, 8], [4, 1], [1, 0]),
        dot_operand((64, 64), (2, 2), 0, 2),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("bits", [16, 32])
def test_everyday_conversions_have_no_bank_conflicts(name, bits):
    source, destination = PAIRS[name]
    assert classify(source, destination) == "shared"
    plan = shared_plan(source, destination, bits)
    assert through_shared(plan, source, destination) == hold(destination)
    assert bank_conflicts(plan.layout, source, bits, plan.store_vector) == 0
    assert bank_conflicts(plan.layout, destination, bits, plan.load_vector) == 0


@pytest.mark.parametrize(
    ("shape", "warps", "bits"),
    [
        ((128, 256), (8, 1), 16),
        ((64, 128), (4, 1), 16),
        ((64, 256), (4, 2), 16),
        ((128, 256), (8, 1), 32),
    ],
)
def test_warps_store_what_they_have(shape, warps, bits):
    """Whole rows of the warp's part, by memory of the warp's own, in little of it, and no bank conflicts."""
    vector = 128 // bits
    source = wgmma_accumulator(shape, warps, shape[1] // warps[1])
    destination = stored_by_warps(source, vector)
    assert destination is not None and destination.contiguous_per_thread() == vector
    assert destination.bases_of("warp") == source.bases_of("warp")
    assert destination.bases_of("lane")[:4] == tuple(vector << bit for bit in range(4))
    assert classify(source, destination) == "warp"
    plan = shared_plan(source, destination, bits)
    assert through_shared(plan, source, destination) == hold(destination)
    assert plan.bytes == min(4096 * source.size("warp"), source.numel * bits // 8)
    assert bank_conflicts(plan.layout, destination, bits, plan.load_vector) == 0
    for each in plan.rounds:
        touched = [
            places(only(each.stores), warp) | places(only(each.loads), warp)
            for warp in range(source.size("warp"))
        ]
        assert sum(map(len, touched)) == len(set().union(*touched)), "no warp touches what another does"
        assert (each.matrices is not None) == (bits == 16)
        if each.matrices is not None:
            assert written_by_matrices(each.matrices, source) == written(only(each.stores), source)


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        (
            blocked((64, 256), [1, 4], [1, 32], [1, 1], [1, 0]),
            blocked((64, 256), [1, 1], [1, 32], [1, 1], [1, 0]),
        ),
        (
            blocked((32, 32), [1, 4], [4, 8], [1, 1], [1, 0]),
            blocked((32, 32, 8), [1, 1, 1], [1, 4, 8], [1, 1, 1], [2, 1, 0]).drop(2),
        ),
    ],
    ids=["two bits of many registers", "few registers to many"],
)
def test_what_takes_thousands_of_selects_goes_through_memory(source, destination):
    """Each shuffle of the second fills one of 32 registers, which lane by lane is another."""
    assert classify(source, destination) == "warp"
    plan = shared_plan(source, destination, 32)
    assert through_shared(plan, source, destination) == hold(destination)
    accesses = sum(len(only(each.stores).groups) + len(only(each.loads).groups) for each in plan.rounds)
    assert accesses <= source.size("register") // 4 + destination.size("register")


def test_warps_with_the_same_elements_have_no_memory_of_their_own():
    """Two warps would write the same places, and each in its own time."""
    rows = [64 * 8, 64 * 16, 64 * 32]
    source = LinearLayout.make((64, 64), register=[1, 8, 16, 32, *rows], lane=[2, 4, 64, 128, 256], warp=[0])
    destination = LinearLayout.make(
        (64, 64), register=[1, 2, 4, 256, *rows], lane=[8, 16, 32, 64, 128], warp=[0]
    )
    assert classify(source, destination) == "shuffle"
    assert shuffle(shuffle_plan(source, destination), source, destination) == hold(destination)


def written(access, source):
    """What each offset holds after plain stores."""
    return {
        offset ^ f2.apply(access.lane, lane) ^ f2.apply(access.warp, warp) | number: source.flat(
            register=register, lane=lane, warp=warp
        )
        for group, offset in zip(access.groups, access.offsets)
        for number, register in enumerate(group)
        for lane in range(32)
        for warp in range(source.size("warp"))
    }


def written_by_matrices(plan, source):
    """What each offset holds after stmatrix: lane 4·g + t has elements 2·t and 2·t + 1 of row g of each
    matrix, and lane 8·j + r the address of row r of matrix j."""
    return {
        (offset ^ f2.apply(plan.lane, 8 * matrix + lane // 4) ^ f2.apply(plan.warp, warp))
        + 2 * (lane % 4)
        + number: source.flat(register=register, lane=lane, warp=warp)
        for group, offset in zip(plan.groups, plan.offsets)
        for matrix, registers in enumerate(group)
        for number, register in enumerate(registers)
        for lane in range(32)
        for warp in range(source.size("warp"))
    }


def places(access, warp):
    """The offsets, in elements, that the lanes of a warp touch."""
    lanes = [f2.apply(access.lane, lane) ^ f2.apply(access.warp, warp) for lane in range(32)]
    return {
        (offset ^ lane) + element
        for offset in access.offsets
        for lane in lanes
        for element in range(access.vector)
    }


def test_vectors_of_an_epilogue():
    """Both sides hold two neighbouring columns of f16 per thread, which travel together at least."""
    plan = shared_plan(*PAIRS["mma to row"], 16)
    assert plan.store_vector >= 2 and plan.load_vector >= 2
    plan = shared_plan(*PAIRS["row to row"], 32)
    assert plan.store_vector == plan.load_vector == 4


def test_rounds_divide_the_memory():
    source, destination = PAIRS["wide mma to row"]
    plan = shared_plan(source, destination, 32, max_bytes=16384)
    assert plan.bytes == 16384 and len(plan.rounds) == 4
    assert through_shared(plan, source, destination) == hold(destination)


def test_a_thread_without_registers_that_both_sides_have_takes_turns():
    """Rows to columns: what chooses the round of an element chooses a warp on one side, a register on the other."""
    source = blocked((64, 64), [1, 64], [32, 1], [2, 1], [1, 0])
    destination = blocked((64, 64), [64, 1], [1, 32], [1, 2], [0, 1])
    assert not f2.intersection(source.bases_of("register"), destination.bases_of("register"))
    plan = shared_plan(source, destination, 32, max_bytes=64 * 64)
    assert plan.bytes == 64 * 64 and len(plan.rounds) == 4
    assert through_shared(plan, source, destination) == hold(destination)
    assert not any(plan.storing.lane) and not any(plan.loading.lane), "branches between warps are cheaper"


@pytest.mark.parametrize(("bound", "bytes_"), [(1024, 1024), (1, 16)])
def test_warps_with_memory_of_their_own_take_turns_within_it(bound, bytes_):
    """Thirty-two registers of rows become columns: no warp waits for another, however small its memory is, and each
    has at least one element."""
    source = blocked((64, 64), [1, 32], [32, 1], [2, 2], [1, 0])
    destination = blocked((64, 64), [32, 1], [1, 32], [2, 2], [1, 0])
    assert classify(source, destination) == "warp"
    plan = shared_plan(source, destination, 32, max_bytes=bound)
    assert plan.bytes == bytes_ and through_shared(plan, source, destination) == hold(destination)
    for each in plan.rounds:
        touched = [
            set().union(*(places(turn.access, warp) for turn in (*each.stores, *each.loads)))
            for warp in range(4)
        ]
        assert sum(map(len, touched)) == len(set().union(*touched)), "no warp touches what another does"


def test_replicated_registers_are_stored_once():
    source = LinearLayout.make((64,), register=[0, 1], lane=[2, 4, 8, 16, 32])
    destination = LinearLayout.make((64,), register=[0, 32], lane=[1, 2, 4, 8, 16])
    plan = shared_plan(source, destination, 32)
    stored = [register for group in only(plan.rounds[0].stores).groups for register in group]
    assert sorted(stored) == [0, 2]
    assert through_shared(plan, source, destination) == hold(destination)
