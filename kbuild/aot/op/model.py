"""What `[kernel.op]` says, as frozen values: a function on tensors, and how it launches kernels."""

from __future__ import annotations

from dataclasses import dataclass

from kbuild.aot.op.expressions import OpExpression


@dataclass(frozen=True)
class OpTensor:
    """A tensor of an operator: an input, an output or a workspace."""

    name: str
    dims: tuple[str, ...]
    """The words of its shape: names of dimensions, one of which may be `*name` and stand for any number of them;
    integers; of outputs and workspaces also expressions."""
    types: tuple[str, ...]
    """Element types that the kernels take."""
    group: str = ""
    """The axis of the matrix that decides its type: all tensors of one group hold the same.  Empty where it has one
    type."""
    free: tuple[int, ...] = ()
    """Places of the dimensions whose stride some expression names, and so may be any; each other one follows the one
    behind it without a gap."""
    sizes: tuple[OpExpression | None, ...] = ()
    """Of outputs and workspaces: the expressions among `dims`; None for names."""
    is_optional: bool = False
    """Whether an input may be None, and whether an output is made only where somebody asks for it; else kernels get
    a null pointer."""
    is_mutated: bool = False
    """Whether the kernels write to it, though it is an input."""
    is_zeroed: bool = False
    """Whether its memory is zero before the first launch."""
    may_alias: bool = False
    """Whether it may be the very memory of an input."""

    @property
    def pack(self) -> int:
        """Place of the `*name` among the dimensions; -1 if there is none."""
        return next((place for place, word in enumerate(self.dims) if word.startswith("*")), -1)

    @property
    def text(self) -> str:
        """Its shape as the manifest has it."""
        return " ".join(self.dims)


@dataclass(frozen=True)
class OpScalar:
    """A number, flag or word that a call may give."""

    name: str
    kind: str
    """`int`, `float`, `bool` or `str`."""
    default: bool | int | float | str | None = None
    """The value where none is given; None if there is none."""
    computed: OpExpression | None = None
    """The expression of that value; None where it is a constant, or has to be given."""
    words: tuple[str, ...] = ()
    """The words that may be given, of a list of them; the default is the first."""

    @property
    def is_required(self) -> bool:
        """Whether a call has to give it."""
        return self.default is None and self.computed is None

    @property
    def value_kind(self) -> str:
        """What its name is in expressions: a word of a list is its number there."""
        return "int" if self.words else self.kind

    @property
    def value(self) -> bool | int | float | str | None:
        """The default as expressions have it."""
        return 0 if self.words else self.default


@dataclass(frozen=True)
class OpValue:
    """A whole number that follows from a call, and that other expressions name."""

    name: str
    expression: OpExpression
    is_part: bool = False
    """Whether it is part of a choice, so that nothing but the rest of the choice names it."""


@dataclass(frozen=True)
class OpRow:
    """What one row of a choice stands for: a table of `of`, with integers or expressions by name."""

    columns: tuple[tuple[str, OpExpression], ...]
    """The values of the row, by names that all rows of a choice have in common."""
    when: OpExpression | None = None
    """The row is left out where this is zero."""


@dataclass(frozen=True)
class OpChoice:
    """Rows of values, of which a call takes those of the row that costs least: one `[[kernel.op.choose]]`."""

    rows: tuple[OpRow, ...]
    """The rows to choose from, the first of which is taken among those that cost the same; the last applies always."""
    least: OpExpression
    """What a row costs."""
    values: tuple[OpValue, ...] = ()
    """Whole numbers that follow from a row, as `tiles = "cdiv(M, rows)"`, each of which may name those before it."""


@dataclass(frozen=True)
class OpRequirement:
    """What has to hold of a call."""

    condition: OpExpression
    message: str
    """What is wrong where it does not."""


@dataclass(frozen=True)
class OpLaunch:
    """One launch of an operator."""

    kernel: str
    """Name of the kernel."""
    pointers: tuple[tuple[str, str], ...]
    """The tensor that each pointer of the kernel is bound to."""
    values: tuple[tuple[str, tuple[OpExpression, ...]], ...]
    """The expressions of its other arguments and of the axes of its matrix; several have to be equal."""
    when: OpExpression | None = None
    """The launch is left out where this is zero."""


@dataclass(frozen=True)
class OpBackward:
    """How gradients are computed: the table `[kernel.op.backward]`."""

    op: str
    """The operator of the backward pass."""
    bind: tuple[tuple[str, str], ...] = ()
    """For arguments of that operator: an input, an output or a scalar of this one, or `grad(out)`, the gradient of an
    output; by default the one of the same name."""
    grads: tuple[tuple[str, str], ...] = ()
    """For inputs of this operator, the outputs of that one which are their gradients; other inputs have none."""


@dataclass(frozen=True)
class Op:
    """One operator: table `[kernel.op]`."""

    name: str
    """Name of the function in the package; the kernel's by default."""
    doc: str
    """Doc string of the function; the kernel's by default."""
    inputs: tuple[OpTensor, ...]
    """Tensors that a call gives, with the names of their dimensions, as `q = "Z H N D"`: equal names are equal sizes.
    `*name` stands for any number of dimensions, which together count as one."""
    outputs: tuple[OpTensor, ...] = ()
    """Tensors that the operator makes, unless a call gives them by keyword; their sizes may be expressions without
    spaces outside of parentheses, as `"Z cdiv(N,2)"`."""
    workspaces: tuple[OpTensor, ...] = ()
    """Tensors that live only during the call, written as `outputs` are."""
    scalars: tuple[OpScalar, ...] = ()
    """Numbers, flags and words with their defaults, as `eps = 1e-5`, or expressions in quotes, as `"D ** -0.5"`;
    `"int"`, `"float"`, `"bool"` and `"str"` for those that have to be given, and `"'none'"` for a word, or a list
    of words, the first of which is the default, and whose numbers expressions have."""
    values: tuple[OpValue, ...] = ()
    """Whole numbers computed once for each call, as `parts = "2 if M <= 64 else 1"`, which those after them, workspaces
    and launches name; they follow from what is known of inputs and scalars, and from `num_sms`."""
    requirements: tuple[OpRequirement, ...] = ()
    """Conditions with the message of the error where they do not hold, as `"H % G == 0" = "…"`."""
    launches: tuple[OpLaunch, ...] = ()
    """Launches in their order, each of a kernel, by default this one; `bind` adds to that of the operator, and the
    launch is left out where `when` is zero."""
    returns: tuple[str, ...] = ()
    """Outputs and mutated inputs that the function returns, by default all outputs."""
    backward: OpBackward | None = None
    """How gradients are computed."""
    autocast: str = ""
    """Under torch's autocast, tensors of floating point become `lower` (the type of autocast) or `fp32` first."""

    @property
    def tensors(self) -> tuple[OpTensor, ...]:
        """All of its tensors, inputs first."""
        return self.inputs + self.outputs + self.workspaces

    def tensor(self, name: str) -> OpTensor | None:
        """The tensor of that name."""
        return next((tensor for tensor in self.tensors if tensor.name == name), None)

    @property
    def expressions(self) -> tuple[OpExpression, ...]:
        """All of its expressions."""
        found: list[OpExpression | None] = [scalar.computed for scalar in self.scalars]
        found += [value.expression for value in self.values]
        found += [requirement.condition for requirement in self.requirements]
        found += [size for tensor in self.tensors for size in tensor.sizes]
        found += [launch.when for launch in self.launches]
        found += [each for launch in self.launches for _, several in launch.values for each in several]
        return tuple(expression for expression in found if expression is not None)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of dimensions, as inputs have them, in order."""
        words = (word.lstrip("*") for tensor in self.inputs for word in tensor.dims)
        return tuple(dict.fromkeys(word for word in words if not word.isdigit()))
