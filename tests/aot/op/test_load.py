"""Mistakes in `[kernel.op]`: each is one message with its line."""

from __future__ import annotations

import symtable

import pytest

from kbuild.aot.op.load import FUNCTIONS
from tests.aot.op.project import MANIFEST, SCALE, loaded, mistakes


def test_arguments_are_bound_by_name_and_by_expression(folder) -> None:
    op = loaded(folder, MANIFEST).kernel("scale").op
    assert op is not None
    (launch,) = op.launches
    assert launch.pointers == (("x", "x"), ("bias", "bias"), ("counter", "counter"))
    assert [(name, several[0].text) for name, several in launch.values] == [
        ("n", "N"),
        ("stride_x", "stride(x, N)"),
        ("factor", "factor"),
        ("HAS_BIAS", "given(bias)"),
        ("MODE", "mode"),
    ]
    assert op.inputs[0].free == (0,) and op.inputs[1].free == ()


def test_tensors_have_the_types_of_their_pointers(folder) -> None:
    op = loaded(folder, MANIFEST).kernel("layer_norm").op
    assert op is not None
    assert op.inputs[0].types == ("fp32", "fp16") and op.inputs[0].group == "dtype"
    assert op.outputs[1].types == ("fp32",) and op.outputs[1].group == ""


def test_a_kernel_like_another_has_no_operator_of_it(folder) -> None:
    text = MANIFEST + '[[kernel]]\nname = "again"\nlike = "scale"\n'
    assert loaded(folder, text).kernel("again").op is None


def test_values_name_those_before_them(folder) -> None:
    text = MANIFEST.replace(
        'workspaces = { partial = "cdiv(shape, BLOCK * STEPS)" }',
        'let = { each = "BLOCK * STEPS", count = "cdiv(shape, each)" }\nworkspaces = { partial = "count" }',
    ).replace('count = "cdiv(shape, BLOCK * STEPS)" } }]', "} }]")
    op = loaded(folder, text).kernel("sum").op
    assert op is not None
    assert [value.name for value in op.values] == ["each", "count"]
    assert [(name, several[0].text) for name, several in op.launches[1].values] == [("count", "count")]


MISTAKES = {
    "a value with the name of a dimension": (
        "workspaces = { partial =",
        'let = { shape = "1" }\nworkspaces = { partial =',
        'op.let.shape: a dimension has the name "shape"',
    ),
    "a value of a later one": (
        "workspaces = { partial =",
        'let = { one = "two", two = "2" }\nworkspaces = { partial =',
        'op.let.one: unknown name "two" in "two"',
    ),
    "a value with a fraction": (
        "workspaces = { partial =",
        'let = { half = "shape / 2" }\nworkspaces = { partial =',
        'op.let.half: "shape / 2" is not a whole number',
    ),
    "an output whose size is a value": (
        'outputs = { made = "" }',
        'outputs = { made = "two" }\nlet = { two = "2" }',
        'op.outputs.made: unknown name "two" in "two"',
    ),
    "an unknown tensor": (
        'stride(x, N)"',
        'stride(z, N)"',
        "op.bind.stride_x: stride takes a tensor and one of its dimensions",
    ),
    "an unknown dimension": (
        'stride(x, N)"',
        'stride(x, M)"',
        'op.bind.stride_x: x has no dimension M in "stride(x, M)"',
    ),
    "an unknown name": ('n = "N", stride', 'n = "n", stride', 'op.bind.n: unknown name "n" in "n"'),
    "an unbound argument": (
        'n = "N", stride',
        "stride",
        'op.bind: nothing is bound to the argument "n" of scale',
    ),
    "an unbound pointer": (
        'outputs = { out = "*shape" }\naliases = ["out"]',
        'outputs = { sum = "*shape" }',
        'op.bind: nothing is bound to the pointer "out" of vector_add',
    ),
    "an unknown argument": (
        'n = "N", stride',
        'm = "N", n = "N", stride',
        "op.bind.m: no launch has such an argument",
    ),
    "no tensor for a pointer": (
        'bind = { n = "shape" }\n\n[[kernel]]\nname = "sum"',
        'bind = { n = "shape", x = "z" }\n\n[[kernel]]\nname = "sum"',
        'op.bind.x: "z" is no tensor of the operator',
    ),
    "a fraction for an integer": (
        'n = "N", stride',
        'n = "N / 2", stride',
        '"N / 2" is a number with a fraction, and n is of type i32',
    ),
    "an unknown output dimension": (
        'outputs = { y = "*n_rows n_cols"',
        'outputs = { y = "*n_rows M"',
        'op.outputs.y: unknown name "M"',
    ),
    "two names for any number": (
        'inputs = { x = "*n_rows',
        'inputs = { x = "*more *n_rows',
        "both stand for any number of dimensions",
    ),
    "a name that is one dimension elsewhere": (
        '"weight, bias" = "n_cols" }\noutputs',
        '"weight, bias" = "n_rows" }\noutputs',
        "*n_rows stands for any number of dimensions elsewhere",
    ),
    "an expression as an input": (
        'inputs = { x = "*n_rows',
        'inputs = { x = "n+1 *n_rows',
        '"n+1" is neither the name of a dimension',
    ),
    "no such kernel": (
        'kernel = "sum_partials", bind',
        'kernel = "sum_partial", bind',
        'op.launch[1].kernel: no kernel "sum_partial"',
    ),
    "a scalar of a dimension's name": (
        "scalars = { eps = 1e-5 }",
        "scalars = { n_cols = 1e-5 }",
        'op.scalars.n_cols: a dimension has the name "n_cols"',
    ),
    "a required scalar behind": (
        'scalars = { factor = "N ** -0.5"',
        'scalars = { scale = "float", factor = "N ** -0.5"',
        "op.scalars.scale: has to be given, and stands behind bias",
    ),
    "an exponent": ('"N ** -0.5"', '"N ** 0.3"', 'op.scalars.factor: unknown exponent "0.3"'),
    "a tensor that cannot be optional": (
        'optional = ["bias"]',
        'optional = ["N"]',
        'op.optional[0]: "N" is no input or output',
    ),
    "a return": (
        'returns = ["y"]',
        'returns = ["x"]',
        'op.returns[0]: "x" is neither an output nor a mutated input',
    ),
    "a condition": ('"n_cols <= 256" =', '"n_cols <= K" =', 'op.require."n_cols <= K": unknown name "K"'),
    "a tensor that no launch takes": (
        'inputs = { "x, y" = "*shape" }',
        'inputs = { "x, y, z" = "*shape" }',
        "op.inputs.z: no launch takes this tensor",
    ),
    "a type": (
        'zeros = ["counter"]',
        'zeros = ["counter"]\ndtypes = { counter = "i64" }',
        'op.dtypes.counter: the kernel takes no "i64"',
    ),
    "a name that is taken": (
        'name = "scale_"',
        'name = "layer_norm"',
        'another function has the name "layer_norm"',
    ),
    "a name that the package needs": (
        'name = "scale_"',
        'name = "sys"',
        'op.name: "sys" is a name that the package needs itself',
    ),
    "a scalar called _given": (
        'scalars = { factor = "N ** -0.5"',
        'scalars = { _given = 1, factor = "N ** -0.5"',
        'op.scalars._given: "_given" is a name that the package needs itself',
    ),
    "no backward operator": (
        'zeros = ["counter"]',
        'zeros = ["counter"]\nbackward = { op = "scale_backward", grads = { x = "dx" } }',
        'op.backward.op: no operator "scale_backward"',
    ),
    "inputs that are no table, which all else is about": (
        'inputs = { x = "N", bias = "N" }',
        'inputs = "N"',
        'op.inputs: expected a table, found "N"',
    ),
    "no inputs": (
        'inputs = { x = "N", bias = "N" }\noutputs = { counter = "1" }\noptional = ["bias"]\nmutates = ["x"]',
        'inputs = {}\noutputs = { counter = "1" }',
        "op.inputs: no input has to be given, and outputs are made beside one that is there",
    ),
    "inputs that are all optional": (
        'optional = ["bias"]',
        'optional = ["x", "bias"]',
        "op.optional: no input has to be given",
    ),
    "a tensor with a name of Python's": (
        'inputs = { x = "N", bias = "N" }',
        'inputs = { class = "N", bias = "N" }',
        'op.inputs.class: "class" is a word of Python',
    ),
    "a tensor with a name of the package's": (
        'inputs = { x = "N", bias = "N" }',
        'inputs = { _made = "N", bias = "N" }',
        'op.inputs._made: "_made" is a name that the package needs itself',
    ),
    "a tensor called as a dimension": (
        'inputs = { x = "N", bias = "N" }',
        'inputs = { x = "N", bias = "N counter" }',
        'op.outputs.counter: a dimension has the name "counter"',
    ),
    "a workspace called as an input": (
        "workspaces = { partial =",
        'workspaces = { x = "1", partial =',
        'op.workspaces.x: a tensor has the name "x"',
    ),
    "a workspace that no launch takes": (
        "workspaces = { partial =",
        'workspaces = { more = "1", partial =',
        "op.workspaces.more: no launch takes this tensor",
    ),
    "a dimension with a name of Python's": (
        'inputs = { "x, y" = "*shape" }',
        'inputs = { "x, y" = "*None" }',
        'op.inputs.x: "*None" is a word of Python',
    ),
    "a dimension with a name of the package's": (
        'inputs = { "x, y" = "*shape" }',
        'inputs = { "x, y" = "*_shape" }',
        'op.inputs.x: "*_shape" begins with _',
    ),
    "a size in other digits": (
        'inputs = { x = "N", bias = "N" }',
        'inputs = { x = "N", bias = "\u00b2" }',
        "is neither the name of a dimension nor a whole number",
    ),
    "a size beyond 64 bits": (
        'inputs = { x = "N", bias = "N" }',
        'inputs = { x = "N", bias = "9223372036854775808" }',
        "is neither the name of a dimension nor a whole number",
    ),
    "17 dimensions": (
        'inputs = { x = "N", bias = "N" }',
        'inputs = { x = "N", bias = "a b c d e f g h i j k l m n o p q" }',
        "op.inputs.bias: 17 dimensions; 16 are allowed",
    ),
    "49 tensors": (
        'workspaces = { partial = "cdiv(shape, BLOCK * STEPS)" }',
        'workspaces = { partial = "1", "' + ", ".join(f"w{i}" for i in range(46)) + '" = "1" }',
        "op: has 49 tensors; 48 are allowed",
    ),
    "any number of dimensions where inputs have one": (
        'outputs = { counter = "1" }',
        'outputs = { counter = "*N" }',
        "op.outputs.counter: no input has *N, any number of dimensions",
    ),
    "a size that depends on an address": (
        'outputs = { counter = "1" }',
        'outputs = { counter = "aligned(x)" }',
        'op.outputs.counter: "aligned(x)" depends on where a tensor lies',
    ),
    "a size that depends on the device": (
        'outputs = { counter = "1" }',
        'outputs = { counter = "num_sms" }',
        'op.outputs.counter: "num_sms" depends on the device',
    ),
    "a constant that differs, in a requirement": (
        "config = [{ BLOCK = 1024, num_warps = 4 }]\n[kernel.op]\n",
        "config = [{ BLOCK = 1024, when = { n = '> 4096' } }, { BLOCK = 512 }]\n[kernel.op]\n"
        "require = { 'shape % BLOCK == 0' = 'blocks are whole' }\n",
        'op.require."shape % BLOCK == 0": BLOCK is 512 or 1024, depending on the configuration',
    ),
    "a size below zero": (
        'outputs = { counter = "1" }',
        'outputs = { counter = "-1" }',
        '"-1" is below zero',
    ),
    "a size that an optional tensor alone has": (
        'inputs = { x = "N", bias = "N" }\noutputs = { counter = "1" }',
        'inputs = { x = "N", bias = "B" }\noutputs = { counter = "B" }',
        'op.outputs.counter: B is known only where bias is given in "B"',
    ),
    "a default that is not finite": (
        "scalars = { eps = 1e-5 }",
        "scalars = { eps = -inf }",
        "op.scalars.eps: expected a finite number, found the float -inf",
    ),
    "a default beyond 64 bits": (
        "scalars = { eps = 1e-5 }",
        "scalars = { eps = 9223372036854775808 }",
        "op.scalars.eps: expected a number of 64 bits, found the int 9223372036854775808",
    ),
    "a kind that is none": (
        "scalars = { eps = 1e-5 }",
        'scalars = { eps = "double" }',
        'op.scalars.eps: "double" is neither a kind nor a dimension or scalar before it',
    ),
    "defaults in a circle": (
        'factor = "N ** -0.5"',
        'factor = "factor * 2"',
        'op.scalars.factor: unknown name "factor" in "factor * 2"',
    ),
    "a word without quotes of its own": (
        "mode = \"'keep'\"",
        'mode = "keep"',
        "write \"'keep'\" for a word; the kinds are int, float, bool, str",
    ),
    "a word that the axis has not": (
        "mode = \"'keep'\"",
        "mode = \"'kept'\"",
        'op.scalars.mode: the default of mode is "kept", and MODE is "keep" or "negate"',
    ),
    "a number that the axis has not": (
        '" }\nreturns = ["x", "counter"]\nbind = { n = "N", stride_x = "stride(x, N)", HAS_BIAS = "given(bias)"',
        '", flag = 2 }\nreturns = ["x", "counter"]\nbind = { n = "N", stride_x = "stride(x, N)", HAS_BIAS = "flag"',
        "op.scalars.flag: the default of flag is 2, and HAS_BIAS is false or true",
    ),
    "a word in place of a word's name": (
        'MODE = "mode"',
        "MODE = \"'keep'\"",
        'op.bind.MODE: "keep" is a word, and MODE takes that of one scalar',
    ),
    "a number for an axis of words": (
        'MODE = "mode"',
        'MODE = "N"',
        'op.bind.MODE: "N" is a whole number, and MODE is "keep" or "negate"',
    ),
    "a fraction for an axis of flags": (
        'HAS_BIAS = "given(bias)"',
        'HAS_BIAS = "factor"',
        'op.bind.HAS_BIAS: "factor" is a number with a fraction, and HAS_BIAS is false or true',
    ),
    "a number for an axis of types": (
        'aliases = ["out"]\nbind = { n = "shape" }',
        'aliases = ["out"]\nbind = { n = "shape", dtype = "shape" }',
        "it follows from the types of tensors",
    ),
    "a scalar that nothing takes": (
        "scalars = { eps = 1e-5 }",
        "scalars = { eps = 1e-5, epsilon = 1e-5 }",
        "op.scalars.epsilon: nothing takes this scalar",
    ),
    "a condition that is a word": (
        'returns = ["x", "counter"]',
        'returns = ["x", "counter"]\nrequire = { mode = "there is no mode" }',
        'op.require.mode: "mode" is a word, and no condition',
    ),
    "a list for a pointer": (
        'bind = { out = "made"',
        'bind = { out = ["made", "x"]',
        'op.launch[1].bind.out: the pointer "out" of sum_partials is one tensor, not several',
    ),
    "a number for an expression": (
        'n = "N", stride',
        "n = 3, stride",
        "op.bind.n: expected an expression in quotes, found the int 3",
    ),
    "no expression at all": ('n = "N", stride', "n = [], stride", "op.bind.n: no expression is given"),
    "no launch at all": (
        MANIFEST[MANIFEST.index("launch = [") : MANIFEST.index("\n\n", MANIFEST.index("launch = ["))],
        'launch = []\nbind = { n = "shape" }',
        "op.launch: no launch is given",
    ),
    "a launch that is left out by a word": (
        'bind = { n = "shape" } }, {',
        'bind = { n = "shape" }, when = "\'never\'" }, {',
        'op.launch[0].when: "never" is a word, and no condition',
    ),
    "a type that an input decides": (
        'aliases = ["out"]',
        'aliases = ["out"]\ndtypes = { out = "fp32" }',
        "op.dtypes.out: vector_add takes it as of the type of y",
    ),
    "a return that may be None": (
        'mutates = ["x"]\nzeros = ["counter"]\nscalars = { factor = "N ** -0.5", mode = "\'keep\'" }\nreturns = ["x", "counter"]',
        'mutates = ["x", "bias"]\nscalars = { factor = "N ** -0.5", mode = "\'keep\'" }\nreturns = ["bias"]',
        "op.returns[0]: bias may be None, and is not there to be returned",
    ),
    "autocast of what is written": (
        'mutates = ["x"]',
        'mutates = ["x"]\nautocast = "fp32"',
        "op.autocast: x is written, and autocast would give the operator a copy of it",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message(folder, name) -> None:
    old, new, message = MISTAKES[name]
    (text,) = mistakes(folder, MANIFEST, old, new)
    assert message in text


def test_a_constant_that_differs_is_reported_at_each_key_that_names_it(folder) -> None:
    """When the manifest is loaded: the package, where all values come together, is made after everything is compiled."""
    texts = mistakes(
        folder,
        MANIFEST,
        "config = [{ BLOCK = 1024, STEPS = 16, num_warps = 4 }]",
        "config = [{ BLOCK = 512, STEPS = 16, when = { n = '> 99' } }, { BLOCK = 1024, STEPS = 16 }]",
    )
    keys = [
        '31: error: kernel "sum": op.workspaces.partial',
        '32: error: kernel "sum": op.launch[1].bind.count',
    ]
    assert [text.partition(";")[0] for text in texts] == [
        f"kernels.toml:{key}: BLOCK is 512 or 1024, depending on the configuration" for key in keys
    ]


def test_a_dimension_of_an_optional_tensor_is_known_where_that_is_asked_for(folder) -> None:
    old = 'inputs = { x = "N", bias = "N" }'
    for bound in ('n = "B if given(bias) else N"', 'n = "N"'):
        text = MANIFEST.replace(old, 'inputs = { x = "N", bias = "B" }').replace('n = "N"', bound)
        assert loaded(folder, text).kernel("scale").op


def test_names_that_the_modules_of_a_package_use_are_refused(project) -> None:
    """What a module with functions of operators' names uses, and has no _ in front, is the name of no operator; what
    functions with operators' arguments use beside them has a _ in front."""
    operators = {
        "vector_add",
        "sum",
        "layer_norm",
        "scale_",
        "choose",
        "choose_backward",
        "pick",
        "normalise",
        "add_cheaply",
    }
    for module in ("operators", "_torch", "_jax", "_shapes"):
        source = (project / f"site/operators_example/{module}.py").read_text()
        table = symtable.symtable(source, module, "exec")
        own = {*table.get_identifiers()}
        assert own & operators == (operators if module == "operators" else set())
        assert module != "operators" or _globals(table) - operators <= {*FUNCTIONS}
        takers = [child for child in table.get_children() if "x" in child.get_identifiers()]
        assert bool(takers) == (module != "_jax")
        assert set().union(*map(_globals, takers)) - operators == set()


def _globals(table: symtable.SymbolTable) -> set[str]:
    """The names of a module without a _ in front that a part of it uses."""
    found = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if (table.get_type() == "module" or symbol.is_global()) and not symbol.get_name().startswith("_")
    }
    return found.union(*map(_globals, table.get_children()))


BLOCKS = """\
[[kernel]]
name = "blocks"
source = "kernels/blocks.py"
grid = ["1"]
args = { x = "tensordesc<fp16[16, 16]>", y = "*fp16" }
config = [{ num_warps = 1 }]
[kernel.op]
inputs = { x = "M N", z = "N" }
outputs = { y = "M N" }
optional = ["z"]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'inputs = { x = "M N", z = "N" }\noutputs = { y = "M N" }\noptional = ["z"]',
            'inputs = { x = "M N K" }\noutputs = { y = "M N" }',
            "op.bind: x is a descriptor of 2 dimensions, and x has 3: M N K",
        ),
        (
            'inputs = { x = "M N", z = "N" }\noutputs = { y = "M N" }\noptional = ["z"]',
            'inputs = { z = "M N", x = "M N" }\noutputs = { y = "M N" }\noptional = ["x"]',
            "op.bind: x is a descriptor, and x may be None",
        ),
    ],
)
def test_a_descriptor_is_of_a_tensor_that_is_there(folder, old, new, message) -> None:
    (folder / "kernels/blocks.py").write_text(
        SCALE.replace("scale_kernel", "blocks_kernel").replace(
            "x, bias, counter, n, stride_x, factor, HAS_BIAS: tl.constexpr, MODE: tl.constexpr, BLOCK: tl.constexpr",
            "x, y",
        )
    )
    (text,) = mistakes(folder, MANIFEST + BLOCKS, old, new)
    assert message in text
