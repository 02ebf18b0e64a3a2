"""Launches a kernel on the emulator: arguments in, outputs and findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from kbuild.emulator.async_ops.operation import notify
from kbuild.emulator.async_ops.timing import Late, Timing, timing_named
from kbuild.emulator.engine.arguments import Argument, array_of, place
from kbuild.emulator.engine.cta import Cluster, Cta
from kbuild.emulator.engine.findings import EmulationError, Fault, Finding
from kbuild.emulator.engine.memory import (
    CONST_WINDOW,
    PARAM_WINDOW,
    RED_ZONE,
    Heap,
    Local,
    Memory,
    Observer,
    Space,
)
from kbuild.emulator.engine.program import Program, Step, load
from kbuild.emulator.engine.registers import RegisterFile
from kbuild.emulator.engine.schedule import Schedule, schedule_named
from kbuild.emulator.engine.specials import specials_of_cta, specials_of_launch
from kbuild.emulator.engine.warp_batch import Stop, WarpBatch
from kbuild.emulator.isa.instruction_spec import TYPES
from kbuild.emulator.ptx.model import Address, PtxModule, Special, Symbol, Variable
from kbuild.emulator.race import LENIENT, RaceDetector

STEP_BUDGET = 10_000_000
ADDRESSABLE = 1 << 18
"""Bytes of shared memory that descriptors of matrices can address."""
MAX_CTAS = 16
"""Of one cluster; more than 8 require a kernel marked as not portable."""


@dataclass
class Report:
    """The results of a launch."""

    outputs: list[np.ndarray | None]
    """For each argument that was an array its contents afterwards, else None."""
    findings: list[Finding]
    steps: int
    """Instructions executed, counted once for all warps that ran them together."""
    printed: list[str] = field(default_factory=list)

    def check(self) -> Report:
        """This report.  Raises EmulationError where something was found."""
        if self.findings:
            raise EmulationError("\n".join(map(str, self.findings)))
        return self


def run(
    ptx: str | Program,
    entry: str | None,
    grid: Sequence[int],
    num_warps: int | Sequence[int],
    shared_bytes: int,
    arguments: Sequence[Argument],
    *,
    schedule: str | Schedule = "lockstep",
    observers: Sequence[Observer] = (),
    step_budget: int = STEP_BUDGET,
    shared_base: int = 0,
    cluster: Sequence[int] = (1, 1, 1),
    timing: str | Timing = "late",
    checks: str = "",
    names: Sequence[str] = (),
    only: Sequence[tuple[int, int, int]] = (),
) -> Report:
    """Run a kernel to its end, or to the first thing that is wrong.

    `num_warps` may also be the threads of a block along each axis.  `shared_bytes` is the dynamic shared memory;
    `shared_base` the offset of shared memory in its window.
    Observers are notified of every access; `timing` says when asynchronous operations take effect: `late`,
    `early` or `random(SEED)`.  `checks` finds races too: `strict` by the letter of the PTX ISA, `lenient` without
    what hardware forgives (`race.LENIENT`); with `names` of the arguments reports say `x[96]` for addresses.
    Of the grid `only` some CTAs run, whole clusters, where their places are given.
    Raises PtxError for text that cannot be run, EmulationError for arguments that do not fit the kernel,
    TensorMapError for maps that cannot be made.
    """
    program = load(ptx, entry) if isinstance(ptx, str) else ptx
    chosen = schedule_named(schedule) if isinstance(schedule, str) else schedule
    heap = Heap()
    values, addresses = place(heap, arguments, names)
    block = 32 * num_warps if isinstance(num_warps, int) else num_warps
    launch = Launch(
        program, heap, values, grid, block, shared_bytes, chosen, step_budget, shared_base, cluster
    )
    launch.timing = timing_named(timing) if isinstance(timing, str) else timing
    launch.observers = [*observers, *checkers_named(checks)]
    launch.only = frozenset(only)
    findings = launch.run()
    outputs = [
        None
        if address is None or array is None
        else heap.bytes(address, array.nbytes).copy().view(array.dtype).reshape(array.shape)
        for array, address in zip(map(array_of, arguments), addresses)
    ]
    return Report(outputs, findings, launch.steps, launch.printed)


def checkers_named(checks: str) -> list[Observer]:
    """The observers that look for what `checks` names.  Raises EmulationError for an unknown name."""
    if checks not in ("", "strict", "lenient"):
        raise EmulationError(f"unknown checks {checks!r}", help="known are strict and lenient")
    return [RaceDetector(LENIENT if checks == "lenient" else ())] if checks else []


_FUNCTION_BYTES = 16
"""From the address of a function to that of the next; nothing can be read there."""


class Launch:
    """One launch: memory, constants and the CTAs that run."""

    def __init__(
        self,
        program: Program,
        heap: Heap,
        arguments: Sequence[int | float | bytes],
        grid: Sequence[int],
        block: int | Sequence[int],
        shared_bytes: int,
        schedule: Schedule,
        step_budget: int = STEP_BUDGET,
        shared_base: int = 0,
        cluster: Sequence[int] = (1, 1, 1),
        placed: Mapping[str, int] | None = None,
    ) -> None:
        """`placed` are the addresses of the module's global variables, where they outlive the launch."""
        self.program, self.schedule, self.step_budget = program, schedule, step_budget
        self.grid = _three(grid)
        self.block = _three((block,) if isinstance(block, int) else block)
        self.cluster_shape = _three(cluster)
        if self.cluster_shape == (1, 1, 1):
            self.cluster_shape = program.required_cluster
        self.threads = int(np.prod(self.block))
        self.warps = -(-self.threads // 32)
        self.steps = 0
        self.printed: list[str] = []
        self.observers: list[Observer] = []
        self.timing: Timing = Late()
        """When asynchronous operations take effect."""
        self.only: frozenset[tuple[int, int, int]] = frozenset()
        """The CTAs that run, with those of their clusters; all where it is empty."""
        self.earlier: Callable[[], None] | None = None
        """The launch before this one, where this one begins first: it runs when a thread waits for it."""
        self.global_memory = heap
        self.shared_base = shared_base
        self.shared_runs: list[tuple[int, int, str]] = []
        """First byte, size and name of each part of shared memory: static variables, and the dynamic part."""
        self.shared_bytes = (0, 0)
        """Of static variables, and dynamic."""
        self._check_shape()
        self.const = Space("const", CONST_WINDOW)
        self.param = Space("param", PARAM_WINDOW)
        self.symbols = dict(place_globals(program.module, heap) if placed is None else placed)
        self._place_variables(shared_bytes)
        self._place_parameters(arguments)
        self._watched: dict[int, tuple[tuple[Step, ...], tuple[int, ...]]] = {}
        """Of tuples of steps (by id): these, and the places of those that observers watch."""
        self._files: list[tuple[RegisterFile, dict[tuple[int, int], WarpBatch]]]
        self._files = program.known.setdefault(
            f"registers of {self.warps} warps", []
        )  # Launches reuse each other's.

    def _check_shape(self) -> None:
        if not 0 < self.threads <= 1024:
            raise EmulationError(f"a CTA of {self.threads} threads cannot be launched; at most 1024")
        required = self.program.required_threads
        if required is not None and required != self.block:
            raise EmulationError(f"the kernel is for {required} threads, not {self.block}")
        if self.program.required_cluster not in ((1, 1, 1), self.cluster_shape):
            raise EmulationError(
                f"the kernel is for clusters of {self.program.required_cluster}, not {self.cluster_shape}"
            )
        if not 0 < int(np.prod(self.cluster_shape)) <= MAX_CTAS:
            raise EmulationError(
                f"a cluster of {self.cluster_shape} CTAs cannot be launched; at most {MAX_CTAS}"
            )
        if any(size < 0 for size in self.grid) or any(
            size % part for size, part in zip(self.grid, self.cluster_shape)
        ):
            raise EmulationError(
                f"a grid of {self.grid} in clusters of {self.cluster_shape} cannot be launched"
            )

    # Memory

    def _place_variables(self, shared_bytes: int) -> None:
        """Give every variable its address; dynamic shared memory comes after the static, and red zones
        between them."""
        variables = (*self.program.module.variables, *self.program.variables)
        for number, function in enumerate(self.program.module.functions, 1):
            self.symbols[function.name] = _FUNCTION_BYTES * number  # Below all memory.
        self.local_size, position = 0, self.shared_base
        fixed = [
            size_of(variable) for variable in variables if variable.space == "shared" and size_of(variable)
        ]
        red_zone = _shared_red_zone(sum(fixed) + shared_bytes, len(fixed))
        for variable in variables:
            size, align = size_of(variable), max(variable.align, TYPES[variable.type].itemsize)
            if variable.space == "shared" and size:
                position = -(-position // align) * align
                self.shared_runs.append((position, size, variable.name))
                self.symbols[variable.name], position = position, position + size + red_zone
            elif variable.space == "local":
                self.local_size = -(-self.local_size // align) * align
                self.symbols[variable.name], self.local_size = self.local_size, self.local_size + size
            elif variable.space == "const":
                self.symbols[variable.name] = self.const.grow(size, live=True)
        for variable in variables:
            if variable.space == "shared" and not size_of(variable):
                position = -(-position // max(variable.align, 16)) * max(variable.align, 16)
                self.symbols[variable.name] = position
        if shared_bytes:
            self.shared_runs.append((position, shared_bytes, "dynamic shared memory"))
        self.shared_size = position + shared_bytes
        self.shared_bytes = sum(fixed), shared_bytes
        for variable in variables:
            if variable.space == "const":
                data, offset = _initial(variable, self.symbols), self.symbols[variable.name]
                self.const.data[offset : offset + len(data)] = data

    def _place_parameters(self, arguments: Sequence[int | float | bytes]) -> None:
        """The bytes of the kernel's parameters, each aligned to its size."""
        parameters = self.program.entry.parameters
        if len(parameters) != len(arguments):
            raise EmulationError(
                f"{self.program.entry.name} takes {len(parameters)} arguments, got {len(arguments)}"
            )
        for parameter, argument in zip(parameters, arguments):
            align = align_of_parameter(parameter)
            data = _argument_bytes(parameter, argument)
            while len(self.param.data) % align:
                self.param.grow(1)
            offset = self.param.grow(len(data), live=True)
            self.param.data[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
            self.symbols[parameter.name] = offset

    # Running

    def run(self) -> list[Finding]:
        """Run all CTAs; returns the findings of observers, and those that ended the run."""
        notify(self.observers, "began", self)
        ended = self._run()
        detectors = [observer for observer in self.observers if isinstance(observer, RaceDetector)]
        return [*(finding for detector in detectors for finding in detector.findings()), *ended]

    def wait_for_earlier(self) -> None:
        """Run the launch before this one, unless it has been run.  Raises what that raises."""
        earlier, self.earlier = self.earlier, None
        if earlier is not None:
            earlier()

    def _run(self) -> list[Finding]:
        """Run all CTAs; returns at most one finding, which ended the run."""
        self.schedule.start()
        self.timing.start()
        waiting, running = self._clusters(), []
        try:
            with np.errstate(all="ignore"):
                while True:
                    cluster = next(waiting, None)
                    if cluster is None and not running:
                        return []
                    if cluster is not None:
                        running.append(cluster)
                    for cluster in list(running):
                        if cluster.run(self.schedule, self.schedule.quantum):
                            running.remove(cluster)
                            self._give_back(cluster)
        except Stop as stop:
            return [stop.finding]

    def _clusters(self) -> Iterator[Cluster]:
        """The clusters of the grid, set up one after the other on demand."""
        gx, gy, gz = self.grid
        cx, cy, cz = self.cluster_shape
        for z in range(0, gz, cz):
            for y in range(0, gy, cy):
                for x in range(0, gx, cx):
                    indices = [(x + i, y + j, z + k) for k in range(cz) for j in range(cy) for i in range(cx)]
                    if self.only and self.only.isdisjoint(indices):
                        continue
                    cluster = Cluster(self)
                    shared = [self._shared() for _ in indices]
                    for rank, index in enumerate(indices):
                        cluster.ctas.append(self._cta(cluster, index, rank, shared))
                    yield cluster

    def _shared(self) -> Space:
        space = Space("shared", 0)
        space.grow(self.shared_size)
        for start, size, _ in self.shared_runs:
            space.make_live(start, start + size)
        space.names += self.shared_runs if len(self.shared_runs) > 1 else []
        return space

    def _cta(self, cluster: Cluster, index: tuple[int, int, int], rank: int, shared: list[Space]) -> Cta:
        if self._files:
            file, batches = self._files.pop()
            file.clear()
        else:
            file, batches = RegisterFile(self.program.rows, 32 * self.warps), {}
        self._fill(file, index, rank)
        local = Local(self.local_size, 32 * self.warps)
        memory = Memory(self.global_memory, shared[rank], local, self.const, self.param, shared)
        memory.observers = self.observers
        return Cta(self, cluster, index, rank, file, batches, memory)

    def _give_back(self, cluster: Cluster) -> None:
        for cta in cluster.ctas:
            self._files.append((cta.file, cta.all_batches))

    def _fill(self, file: RegisterFile, index: tuple[int, int, int], rank: int) -> None:
        """Put special registers, addresses and parameters into their rows."""
        own = specials_of_cta(index, rank, self.cluster_shape, self.steps)
        for width, row, operand in self.program.rows.named:
            if isinstance(operand, Special):
                value = own[operand.name] if operand.name in own else self._special(operand.name)
            elif isinstance(operand, Symbol):
                value = self._address(operand) % (1 << 8 * width)
            else:
                value = self._parameter(operand, width)
            file.put(width, row, value)

    def _special(self, name: str) -> Any:
        """A special register that is the same in every CTA."""
        if name not in self._specials:
            raise EmulationError(f"the special register {name} is not known")
        return self._specials[name]

    @cached_property
    def _specials(self) -> Mapping[str, Any]:
        return specials_of_launch(self.block, self.grid, self.cluster_shape, self.warps, self.shared_bytes)

    def _address(self, symbol: Symbol) -> int:
        if symbol.name not in self.symbols:
            raise EmulationError(f"{symbol.name} is declared but not defined")
        return self.symbols[symbol.name] + symbol.offset

    def _parameter(self, operand: Address, width: int) -> int:
        assert isinstance(operand.base, Symbol)
        offset = self._address(operand.base) + operand.offset
        try:
            self.param.check(np.array([offset]), max(width, 1))
        except Fault as fault:
            raise EmulationError(f"parameter {operand}: {fault.message}") from None
        return int(self.param.data[offset : offset + width].view(f"u{width}")[0])

    def watched_among(self, batch: WarpBatch, steps: tuple[Step, ...]) -> tuple[int, ...]:
        """The places of those steps that observers watch; these are the same for all batches."""
        found = self._watched.get(id(steps))
        if found is None:
            places = [
                place for place, step in enumerate(steps) if self.watched(batch, step) is not step.function
            ]
            found = self._watched[id(steps)] = steps, tuple(places)
        return found[1]

    def watched(self, batch: WarpBatch, step: Step) -> Callable[..., Any]:
        """A step's function, with calls before it that observers watch."""
        function = step.function
        for observer in self.observers:
            watch = getattr(observer, "watch", None)
            if watch is None:
                continue
            for member in reversed(step.members or (step,)):
                call = watch(batch, member)
                if call is not None:
                    function = _after(call, function)
        return function


def _after(call: Callable[[Any], None], function: Callable[..., Any]) -> Callable[..., Any]:
    """A step's function with a call before it, which gets the mask."""

    def run(*lanes: Any, where: Any = True) -> Any:
        call(where)
        return function(*lanes) if where is True else function(*lanes, where=where)

    return run


def place_globals(module: PtxModule, heap: Heap) -> dict[str, int]:
    """The addresses of a module's global variables, which are put into the heap with their first values."""
    variables = [
        variable
        for variable in module.variables
        if variable.space == "global" and variable.linkage != "extern"
    ]
    symbols = {variable.name: heap.allocate(size_of(variable), variable.name) for variable in variables}
    for variable in variables:
        data = _initial(variable, symbols)
        heap.bytes(symbols[variable.name], size_of(variable))[:] = data[: size_of(variable)]
    return symbols


def _shared_red_zone(size: int, count: int) -> int:
    """Bytes behind each of so many variables that have this size together, so that descriptors can
    address all of them."""
    room = (ADDRESSABLE - size) // max(count, 1) // 16 * 16
    return max(min(room, RED_ZONE), 16) if count else 0


def _initial(variable: Variable, symbols: Mapping[str, int]) -> np.ndarray:
    """A variable's first bytes: those not given are zero."""
    dtype = np.dtype(f"u{TYPES[variable.type].itemsize}")
    values = np.zeros(max(size_of(variable) // dtype.itemsize, 1), dtype)
    for index, value in enumerate(variable.initial):
        values[index] = (symbols[value] if isinstance(value, str) else value) & (
            (1 << 8 * dtype.itemsize) - 1
        )
    return values.view(np.uint8)


def _three(values: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*map(int, values), 1, 1)[:3]
    return x, y, z


def size_of(variable: Variable) -> int:
    """Bytes of a variable; 0 for an array of unknown size."""
    return TYPES[variable.type].itemsize * (1 if variable.size is None else variable.size)


def align_of_parameter(parameter: Variable) -> int:
    """The number that divides the offset of a kernel's parameter.  The alignment in `.ptr .align 16` is not that, but of
    what the parameter points to."""
    return max(TYPES[parameter.type].itemsize, 1 if parameter.attributes else parameter.align)


def _argument_bytes(parameter: Variable, argument: int | float | bytes) -> bytes:
    """An argument as the kernel reads it."""
    if isinstance(argument, bytes):
        if len(argument) != size_of(parameter):
            raise EmulationError(
                f"{parameter.name} has {size_of(parameter)} bytes, the argument {len(argument)}"
            )
        return argument
    if parameter.size is not None:
        raise EmulationError(f"{parameter.name} is an array of {size_of(parameter)} bytes; pass bytes")
    dtype = TYPES[parameter.type]
    if isinstance(argument, float) and dtype.kind != "f":
        if dtype.itemsize not in (4, 8):
            raise EmulationError(
                f"{parameter.name} is .{parameter.type}, the argument is the float {argument}"
            )
        return np.array(argument, f"f{dtype.itemsize}").tobytes()
    if dtype.kind == "f":
        return np.array(argument, dtype).tobytes()
    return (int(argument) & ((1 << (8 * dtype.itemsize)) - 1)).to_bytes(dtype.itemsize, "little")
