"""Chooses a layout for every value between the anchors.

1. Candidates flow forward from the anchors, around loops too; a loop's carried value takes the strongest of
   them.
2. Casts and the like that only feed a dot take the dot's operand layout, if less is moved that way.
3. In program order, each operation takes one of its operands' layouts, or one that an operand is converted to anyway
   (because it is stored, too): the one that costs least to convert.
4. What is left (addresses, masks, constants) takes the layout that its users require, backward from the uses.
5. Values for which no user requires a layout keep their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kbuild.compiler.analysis.carried import CarriedGroup, carried_groups
from kbuild.compiler.ir.core import Block, Func, Op, Value
from kbuild.compiler.ir.traits import Trait
from kbuild.compiler.ir.types import TensorType, bit_width, layout_of
from kbuild.compiler.layout import LinearLayout, stored_by_warps, widened
from kbuild.compiler.ops.control import For, While
from kbuild.compiler.ops.nvidia import WarpGroupDot
from kbuild.compiler.ops.tensor import Broadcast, Dot, ExpandDims, Gather, Load, Reduce, Scan, Store
from kbuild.compiler.transforms._support.layout_flow import (
    FREE,
    held_layout,
    is_pointwise,
    operand_layout,
    result_layout,
    tensor_operands,
)
from kbuild.compiler.transforms.gpu.layout.remove_conversions.anchors import Anchors, Strength
from kbuild.compiler.transforms.gpu.layout.remove_conversions.cost import (
    conversion_cost,
    loop_weight,
    scan_cost,
)

_MAX_CANDIDATES = 4
_AHEAD = 4
"""Elementwise operations that are followed from one for which a layout is chosen."""
_MIN_RUN_BITS = 512
"""Neighbours in memory that a store of a warp's own elements writes at least: two sectors of a cache line."""


@dataclass
class Assignment:
    """The layouts chosen."""

    anchors: Anchors
    layouts: dict[Value, LinearLayout] = field(default_factory=dict)
    sources: dict[Op, LinearLayout] = field(default_factory=dict)
    """For reductions, the layout of their operands."""
    slots: dict[tuple[Op, int], CarriedGroup] = field(default_factory=dict)
    """Where values enter structured control flow."""
    groups: dict[Value, CarriedGroup] = field(default_factory=dict)
    """The same by the values that come out."""

    def required(self, op: Op, index: int) -> LinearLayout | None:
        """The layout that an operand must have; None when any will do, or nothing is chosen yet."""
        fixed = self.anchors.operands.get(op)
        if fixed is not None:
            return fixed[index]
        group = self.slots.get((op, index))
        if group is not None:
            return self.layouts.get(group.targets[0])
        if isinstance(op, Reduce):
            return self.sources.get(op)
        chosen = self.layouts.get(op.results[0]) if op.results else None
        return operand_layout(op, index, chosen) if chosen is not None else None


def assign_layouts(func: Func, anchors: Anchors) -> Assignment:
    """Choose a layout for every tensor of a function that has no conversions."""
    assignment = Assignment(anchors)
    for op in func.body.walk():
        for group in carried_groups(op):
            if isinstance(group.targets[0].type, TensorType):
                assignment.slots.update(dict.fromkeys(group.slots, group))
                assignment.groups.update(dict.fromkeys(group.targets, group))
    chooser = _Chooser(assignment)
    chooser.spread_candidates(func)
    chooser.pull_dot_operands(func)
    chooser.settle(func.body)
    chooser.request_layouts(func)
    chooser.keep_rest(func.body)
    return assignment


class _Chooser:
    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.anchors = assignment.anchors
        self.layouts = assignment.layouts
        self.candidates: dict[Value, dict[LinearLayout, Strength]] = {}
        self.pulled: dict[Op, LinearLayout] = {}
        self.waiting: dict[CarriedGroup, None] = {}

    # 1. Candidates

    def spread_candidates(self, func: Func) -> None:
        """Let the anchors' layouts flow forward as far as they determine the layouts of results."""
        work: list[tuple[Value, LinearLayout, Strength]] = []
        for op, strength in self.anchors.results.items():
            work.extend(
                (result, held_layout(result), strength) for result in op.results if _has_layout(result)
            )
        while work:
            value, layout, strength = work.pop()
            known = self.candidates.setdefault(value, {})
            if known.get(layout, 0) >= strength or (len(known) >= _MAX_CANDIDATES and layout not in known):
                continue
            known[layout] = strength
            for user in value.users:
                work.extend((target, reached, strength) for target, reached in self.flow(user, value, layout))

    def flow(self, user: Op, value: Value, layout: LinearLayout) -> list[tuple[Value, LinearLayout]]:
        """The values that a layout of an operand reaches through an operation."""
        reached: list[tuple[Value, LinearLayout]] = []
        if user in self.anchors.operands:
            return reached
        for index, operand in enumerate(user.operands):
            if operand is not value:
                continue
            group = self.assignment.slots.get((user, index))
            if group is not None:
                reached.extend((target, layout) for target in group.targets)
            elif user.results:
                result = result_layout(user, index, layout)
                reached.extend(
                    (each, result) for each in user.results if result is not None and _has_layout(each)
                )
        return reached

    # 2. Operands of dots

    def pull_dot_operands(self, func: Func) -> None:
        """Find the elementwise operations whose results only dots use, through others of the kind.  Not those
        of dots by scalar multiply-adds, of whose operands many threads need the same elements."""
        for op in list(func.body.walk()):
            if isinstance(op, WarpGroupDot) or (isinstance(op, Dot) and op.atom):
                for index in (0, 1):
                    layout = self.anchors.operands[op][index]
                    if layout is not None:
                        self.pull(op.operands[index], layout)

    def pull(self, value: Value, layout: LinearLayout) -> None:
        op = value.op
        if op is None or not op.has(Trait.ELEMENTWISE) or op in self.pulled or isinstance(op, FREE):
            return
        wanted = (
            self._pull_of(user, index)
            for user in value.users
            for index, used in enumerate(user.operands)
            if used is value
        )
        if any(each != layout for each in wanted):
            return
        if Strength.DOT in self.candidates.get(value, {}).values() or _root_bits(value) > bit_width(
            value.type
        ):
            return
        self.pulled[op] = layout
        for _, operand in tensor_operands(op):
            self.pull(operand, layout)

    def _pull_of(self, user: Op, index: int) -> LinearLayout | None:
        fixed = self.anchors.operands.get(user)
        return self.pulled.get(user) if fixed is None else fixed[index]

    # 3. Program order

    def settle(self, block: Block) -> None:
        for op in block:
            if op.regions:
                self.settle_structured(op)
            elif op in self.anchors.results:
                for result in op.results:
                    if _has_layout(result):
                        self.layouts[result] = held_layout(result)
            elif isinstance(op, Store):
                self.settle_store(op)
            elif op in self.pulled:
                self.layouts[op.results[0]] = self.pulled[op]
            else:
                options = self.options(op)
                copied = self.copied_options(op) if options and is_pointwise(op) else []
                self.settle_results(op, options, [layout for layout in copied if layout not in options])

    def settle_structured(self, op: Op) -> None:
        groups = [group for group in carried_groups(op) if group.targets[0] in self.assignment.groups]
        if isinstance(op, Reduce):
            self.settle_reduce(op)
        elif isinstance(op, Scan):
            self.settle_results(op, self.options(op))
        for group in groups if isinstance(op, For | While) else ():
            options = self.candidates.get(group.targets[0], {})
            if options:
                self.settle_group(group, max(options, key=lambda layout: options[layout]))
        for region in op.regions:
            self.settle(region)
        for group in groups:
            given = [self.layouts[source] for source in group.sources() if source in self.layouts]
            if given and group.targets[0] not in self.layouts:
                strong = self.candidates.get(group.targets[0], {})
                self.settle_group(group, max(given, key=lambda layout: strong.get(layout, 0)))

    def settle_group(self, group: CarriedGroup, layout: LinearLayout) -> None:
        self.layouts.update(dict.fromkeys(group.targets, layout))

    def settle_reduce(self, op: Reduce) -> None:
        source = next((self.layouts[src] for src in op.srcs if src in self.layouts), None)
        if source is not None:
            self.assignment.sources[op] = source
            reduced = result_layout(op, 0, source)
            self.settle_results(op, [reduced] if reduced is not None else [])

    def settle_store(self, op: Store) -> None:
        """A store that is not an anchor takes its value as it comes, if that has no more registers than it is
        worth; a store of the results of warpgroups' dots takes what each warp has, in vectors, so that no
        warpgroup waits for another."""
        if op in self.anchors.operands:
            return
        given = self.layouts.get(op.value)
        own, given = self.stored(op, given) if op in self.anchors.vectors else (layout_of(op.ptr.type), given)
        if own is not None and (given is None or given.size("register") > 2 * own.size("register") + 2):
            given = own
        self.anchors.operands[op] = (given,) * len(op.operands)

    def stored(self, op: Store, given: LinearLayout | None) -> tuple[LinearLayout, LinearLayout | None]:
        """The layout in which a store writes whole lines of memory, and the one for a value that comes in a given layout, if
        that is worth it."""
        wanted = self.anchors.vectors[op]
        if given is None:
            return wanted.layout, None
        if self.anchors.by_shuffles:
            return wanted.layout, _along(given, wanted.axis, lambda layout: widened(layout, wanted.width))
        return wanted.layout, self.by_warps(op, given)

    def by_warps(self, op: Store, given: LinearLayout) -> LinearLayout | None:
        """The layout in which warps store what they have; None where that is too little of each line of
        memory."""
        _, axis, width = self.anchors.vectors[op]
        layout = _along(given, axis, lambda layout: stored_by_warps(layout, width))
        if layout is None:
            return None
        lanes = sum(map(bool, layout.bases_along("lane", axis)))
        return layout if (width << lanes) * bit_width(op.value.type) >= _MIN_RUN_BITS else None

    def settle_results(
        self, op: Op, options: list[LinearLayout], copied: Sequence[LinearLayout] = ()
    ) -> None:
        """Choose one of the layouts of the operands, or of those that copies of them have."""
        if options:
            chosen = options[0]
            if copied:
                chosen = min(
                    (*options, *copied),
                    key=lambda layout: self.price(op, layout) + self.price_ahead(op, layout),
                )
            elif len(options) > 1:
                chosen = min(options, key=lambda layout: self.price(op, layout))
            for result in op.results:
                if isinstance(result.type, TensorType):
                    self.layouts[result] = chosen

    def options(self, op: Op) -> list[LinearLayout]:
        """The different layouts that the operands suggest for the results."""
        found: dict[LinearLayout, None] = {}
        for index, operand in tensor_operands(op):
            if operand in self.layouts:
                layout = result_layout(op, index, self.layouts[operand])
                if layout is not None:
                    found[layout] = None
        return list(found)

    def copied_options(self, op: Op) -> list[LinearLayout]:
        """The layouts for the results that follow from those to which operands are converted anyway."""
        found: dict[LinearLayout, None] = {}
        for index, operand in tensor_operands(op):
            for copy in self.copies(operand):
                layout = result_layout(op, index, copy)
                if layout is not None:
                    found[layout] = None
        return list(found)

    def copies(self, value: Value) -> set[LinearLayout]:
        """The other layouts in which anchors need a value that has its layout."""
        own = self.layouts.get(value)
        if own is None or len(value.users) == 1:
            return set()
        fixed = (
            self.anchors.operands[user][index]
            for user in value.users
            if user in self.anchors.operands
            for index, operand in enumerate(user.operands)
            if operand is value
        )
        return {layout for layout in fixed if layout is not None and layout != own}

    def price(self, op: Op, layout: LinearLayout) -> float:
        """The cost of converting the operands to a layout, and the results from it."""
        total = self.price_of_results(op, layout)
        for index, operand in tensor_operands(op):
            current, required = self.layouts.get(operand), operand_layout(op, index, layout)
            if current is not None and required is not None and required not in self.copies(operand):
                total += self.converted(operand, current, required)
        return total

    def converted(self, value: Value, current: LinearLayout, required: LinearLayout) -> float:
        """The cost of a value in another layout: converted itself, or what it repeats is."""
        cost = loop_weight(value.block) * conversion_cost(current, required, bit_width(value.type))
        if not cost or not isinstance(value.op, Broadcast | ExpandDims):
            return cost
        given, needed = self.layouts.get(value.op.src), operand_layout(value.op, 0, required)
        return (
            cost
            if given is None or needed is None
            else min(cost, self.converted(value.op.src, given, needed))
        )

    def price_ahead(self, op: Op, layout: LinearLayout, depth: int = _AHEAD) -> float:
        """The cost of what follows if the elementwise operations that use the results keep a layout, too."""
        total = loop_weight(op.parent) * scan_cost(op, layout) if isinstance(op, Scan) else 0.0
        for result in op.results if depth else ():
            for user in result.users:
                unsettled = user not in self.anchors.operands and user.results and not user.regions
                if (unsettled or isinstance(user, Scan)) and is_pointwise(user):
                    total += self.price_of_results(user, layout) + self.price_ahead(user, layout, depth - 1)
        return total

    def price_of_results(self, op: Op, layout: LinearLayout) -> float:
        """The cost of converting the results from a layout, to each other one once."""
        total = 0.0
        for result in op.results:
            demands = dict.fromkeys(
                self._demand(user, index, layout)
                for user in result.users
                for index, operand in enumerate(user.operands)
                if operand is result
            )
            for required in demands:
                if required is not None:
                    cost = conversion_cost(layout, required, bit_width(result.type))
                    total += loop_weight(op.parent) * cost
        return total

    def _demand(self, user: Op, index: int, layout: LinearLayout) -> LinearLayout | None:
        """The layout that a user needs of a value; of a value that comes in a layout, where that decides it."""
        if isinstance(user, Store) and user in self.anchors.vectors and user not in self.anchors.operands:
            lines, vectors = self.stored(user, layout)
            return vectors or lines
        return self.pulled.get(user) or self.assignment.required(user, index)

    # 4. Backward

    def request_layouts(self, func: Func) -> None:
        """Give operands without a layout the one that their users need."""
        for op in func.body.walk():
            for index, operand in tensor_operands(op):
                if operand not in self.layouts:
                    wanted = self.assignment.required(op, index)
                    if wanted is not None:
                        self.request(operand, wanted)

    def request(self, value: Value, layout: LinearLayout) -> None:
        work = [(value, layout)]
        while work:
            value, layout = work.pop()
            if value in self.layouts:
                continue
            group = self.assignment.groups.get(value)
            if group is not None:
                self.settle_group(group, layout)
                work.extend((source, layout) for source in group.sources())
            elif value.op is not None and not isinstance(value.op, Reduce):
                needs = [
                    (operand, operand_layout(value.op, index, layout))
                    for index, operand in tensor_operands(value.op)
                ]
                if isinstance(value.op, Gather):
                    needs = needs[1:]
                if all(need is not None for _, need in needs):
                    self.layouts.update(dict.fromkeys(value.op.results, layout))
                    work.extend((operand, need) for operand, need in needs if need is not None)

    # 5. The rest

    def keep_rest(self, block: Block) -> None:
        """Let values for which no user requires a layout keep theirs, as far as their operands permit."""
        for argument in block.arguments:
            if _has_layout(argument):
                self.layouts.setdefault(argument, held_layout(argument))
        for op in block:
            for region in op.regions:
                self.keep_rest(region)
            if isinstance(op, Reduce):
                if op not in self.assignment.sources:
                    self.settle_reduce(op)
                continue
            options = self.options(op) if op.results and op.results[0] not in self.layouts else []
            if options and op.has(Trait.ELEMENTWISE):
                own = held_layout(op.results[0])
                self.settle_results(op, [own, *(layout for layout in options if layout != own)])
            elif options and not is_pointwise(op):
                self.settle_results(op, options)
            for result in op.results:
                if _has_layout(result):
                    self.layouts.setdefault(result, held_layout(result))
                group = self.assignment.groups.get(result)
                if group is not None:
                    self.settle_group(group, self.layouts[result])


def _has_layout(value: Value) -> bool:
    return layout_of(value.type) is not None


def _root_bits(value: Value) -> int:
    """Bits per element of what elementwise operations make a value of, not counting what is made from
    nothing."""
    bits, work, seen = 0, [value], {value}
    while work:
        op = work.pop().op
        assert op is not None
        for _, operand in tensor_operands(op):
            if operand in seen:
                continue
            seen.add(operand)
            if (
                operand.op is not None
                and operand.op.has(Trait.ELEMENTWISE)
                and not isinstance(operand.op, Load)
            ):
                work.append(operand)
            elif not isinstance(operand.op, (*FREE, Broadcast)):
                bits += bit_width(operand.type)
    return bits


def _along(
    layout: LinearLayout, axis: int, change: Callable[[LinearLayout], LinearLayout | None]
) -> LinearLayout | None:
    """What a change that is about the last axis makes of a layout if it is about another."""
    order = [*(other for other in range(layout.rank) if other != axis), axis]
    changed = change(layout.transpose(order))
    return None if changed is None else changed.transpose([order.index(each) for each in range(layout.rank)])
