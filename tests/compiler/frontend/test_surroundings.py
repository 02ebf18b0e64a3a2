"""What modules and kernels may ask about where they are built, and for what."""

import numpy as np
import pytest

from kbuild.compiler import interp
from kbuild.compiler.frontend import build_module
from kbuild.errors import KbuildError

KERNEL = """
@triton.jit
def k(out):
    tl.store(out, {})
"""


@pytest.fixture
def stored(tmp_path):
    """What the kernel `k(out)` of a text stores, as fp32; each text is a file of its own."""

    def stored(text):
        path = tmp_path / f"kernel_{len([*tmp_path.iterdir()])}.py"
        path.write_text(text)
        out = np.zeros(1, np.float32)
        interp.run(build_module(f"{path}:k", {"out": "*fp32"}, {}), {"out": out})
        return out[0]

    return stored


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("os.environ.get('FAST', '0') == '1'", False),
        ("os.getenv('FAST') is None", True),
        ("os.environ.get('SLOW', default='1') == '1'", True),
        ("hasattr(tl, 'exp') and not hasattr(triton.language, 'no_such')", True),
        ("HAS_EXP", True),
        ("os.environ['FAST'] == '0'", True),  # Not decided: the first is preferred.
        ("os.path.exists('/') or True", True),
        ("hasattr(os, 'fork') and False", True),
    ],
)
def test_conditions_of_modules_hold_as_where_no_variable_is_set(stored, condition, holds, monkeypatch):
    monkeypatch.setenv("FAST", "1")
    text = (
        f"import os\nimport triton\nimport triton.language as tl\nHAS_EXP = hasattr(tl, 'exp')\nif {condition}:\n"
        "    @triton.jit\n    def f(x):\n        return x + 1\nelse:\n    @triton.jit\n    def f(x):\n        return x + 2\n"
    )
    assert stored(text + KERNEL.format("f(0.0)")) == (1 if holds else 2)


def test_constants_do_not_come_from_the_environment(stored):
    text = "import os\nimport triton\nimport triton.language as tl\nSIZE = tl.constexpr(int(os.getenv('SIZE', '7')))\n"
    with pytest.raises(KbuildError, match="SIZE"):
        stored(text + KERNEL.format("SIZE + 0.0"))


TARGET = """
import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq, is_hip_cdna3

@triton.jit
def k(out):
    if tl.target_info.is_cuda() and not tl.target_info.is_hip() and not is_hip_cdna3():
        tl.store(out, 10.0 * cuda_capability_geq(9) + tl.target_info.cuda_capability_geq(8, 6) + 1)
"""


@pytest.mark.parametrize(("capability", "expected"), [(80, 1), (86, 2), (90, 12)])
def test_kernels_may_ask_what_they_are_compiled_for(tmp_path, capability, expected):
    (tmp_path / "kernel.py").write_text(TARGET)
    source = f"{tmp_path / 'kernel.py'}:k"
    out = np.zeros(1, np.float32)
    interp.run(build_module(source, {"out": "*fp32"}, {}, capability=capability), {"out": out})
    assert out[0] == expected
    with pytest.raises(KbuildError, match="the compute capability is not known"):
        build_module(source, {"out": "*fp32"}, {})


@pytest.mark.parametrize("value", ["7.0 if torch.version.hip is None else 8.0", "torch.pi * 7 / np.pi"])
def test_kernels_may_name_constants_of_torch_and_numpy(stored, value):
    text = "import torch\nimport numpy as np\nimport triton\nimport triton.language as tl\n"
    assert stored(text + KERNEL.format(value)) == 7
    with pytest.raises(KbuildError, match="`torch` is not available while compiling"):
        stored(text + KERNEL.format("torch.version.cuda"))


def test_types_have_names(stored):
    text = "import triton\nimport triton.language as tl\n"
    kernel = (
        "tl.full([], 7, tl.dtype(f'uint{16 * 2}')).to(tl.dtype('fp32')) + (tl.dtype('bf16') == tl.bfloat16)"
    )
    assert stored(text + KERNEL.format(kernel)) == 8
