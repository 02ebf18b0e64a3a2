"""CUDA C++ to PTX and cubins: what reaches the compiler, what a launch has to know, and errors at their lines."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import Any

import pytest

import kbuild
from kbuild.cli import main
from kbuild.errors import KbuildError

GIVEN = {"constexprs": {"N": 1, "T": "fp32"}}
TEMPLATE = """\
template <int N, class T>
__global__ void __launch_bounds__(128) fill(T *x, float value) {
  x[blockIdx.x * blockDim.x + threadIdx.x] = T(value * N);
}
"""


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Compiles a text as k.cu in the current directory."""
    monkeypatch.chdir(tmp_path)

    def compile_text(text: str, function: str = "", **options: Any) -> kbuild.Artifact:
        Path("k.cu").write_text(text)
        linecache.clearcache()
        return kbuild.compile(f"k.cu:{function}", **{"block": "64", "stop": "ptx", **options})

    return compile_text


def message(compiled: Any, text: str, **options: Any) -> str:
    """The error of a text that does not compile."""
    with pytest.raises(KbuildError) as caught:
        compiled(text, **options)
    return str(caught.value)


def test_constants_are_arguments_of_the_template_and_its_types_are_declared(compiled: Any) -> None:
    artifact = compiled(TEMPLATE, "fill", constexprs={"N": 3, "T": "bf16"}, stop="cubin")
    facts = artifact.metadata
    assert facts.name == "_Z4fillILi3E13__nv_bfloat16EvPT0_f"
    assert facts.params == (("x", "*bf16"), ("value", "fp32"))
    assert facts.block == (64, 1, 1) and facts.warps == 2 and facts.options.num_warps == 2
    assert facts.registers and facts.static_shared == facts.shared == 0
    assert (
        re.search(r"^\.reqntid 64, 1, 1$", artifact.asm["ptx"], re.MULTILINE)
        and ".maxntid" not in artifact.asm["ptx"]
    )


def test_the_same_request_gives_the_same_code(compiled: Any) -> None:
    first, second = (
        compiled(TEMPLATE, "fill", constexprs={"N": 3, "T": "fp32"}, stop="cubin") for _ in range(2)
    )
    assert first.asm == second.asm


def test_constants_without_a_parameter_are_macros(compiled: Any) -> None:
    text = "#ifndef SCALE\n#define SCALE 1\n#endif\n__global__ void f(WORD *x) { x[0] = FLAG ? SCALE : 0; }\n"
    artifact = compiled(text, constexprs={"SCALE": 7, "WORD": "i16", "FLAG": True})
    assert artifact.metadata.params == (("x", "*i16"),) and re.search(
        r"mov\.(u|b)16\s+%rs1, 7;", artifact.asm["ptx"]
    )


def test_other_kernels_of_a_file_are_not_in_the_code(compiled: Any) -> None:
    helper = "__device__ __noinline__ float help(float x) { return x * table[int(x)]; }\n"
    text = (
        "__device__ float table[4] = {1, 2, 3, 4}, unused[4];\n__device__ int count;\n"
        + helper
        + "__global__ void f(float *x) { x[0] = help(x[1]); }\n__global__ void g(int *x) { x[0] = ++count; }\n"
    )
    ptx = compiled(text, "f", stop="cubin").asm["ptx"]
    assert ptx.count(".entry") == 1 and "_Z4helpf" in ptx and "table[16]" in ptx
    assert not re.search(r"unused|count|_Z1gPi|kbuild_signature", ptx)


def test_options_reach_the_compiler(compiled: Any) -> None:
    text = "__global__ void f(float *x) { x[0] = sinf(x[1]) * x[2] + x[3]; assert(x[0] < 1); }\n"
    assert "sin.approx.ftz.f32" in compiled(text, use_fast_math=True).asm["ptx"]
    plain, separate = compiled(text).asm["ptx"], compiled(text, enable_fp_fusion=False).asm["ptx"]
    assert plain.count("fma.rn") > separate.count("fma.rn") and "__assertfail" not in plain
    assert "__assertfail" in compiled(text, debug=True).asm["ptx"]
    assert re.search(r"^\.maxnreg 32$", compiled(text, maxnreg=32).asm["ptx"], re.MULTILINE)
    assert re.search(
        r"^\.reqnctapercluster 2, 1, 1$", compiled(text, cluster_size=2).asm["ptx"], re.MULTILINE
    )
    assert compiled(
        "template <auto X> requires (X > 1) __global__ void f(int *x) { *x = X; }",
        constexprs={"X": 2},
        cpp_std=20,
    )
    assert "\t.loc\t" in compiled(text, lineinfo=True).asm["ptx"] and "\t.loc\t" not in plain


@pytest.mark.parametrize(
    "target, version", [("sm_80", "7.5"), ("sm_90", "8.4"), ("sm_100", "8.6"), ("sm_120", "8.7")]
)
def test_ptx_is_of_a_version_that_older_assemblers_know(compiled: Any, target: str, version: str) -> None:
    artifact = compiled(TEMPLATE, "fill", constexprs={"N": 1, "T": "fp16"}, target=target, stop="cubin")
    assert (
        f".version {version}\n.target {target}\n" in artifact.asm["ptx"] and artifact.metadata.arch == target
    )


def test_only_what_needs_it_is_of_one_architecture_alone(compiled: Any) -> None:
    own = '__global__ void f(int *x) { asm volatile("wgmma.fence.sync.aligned;"); x[0] = 1; }\n'
    own += "__global__ void g(int *x) { x[0] = 1; }\n"
    assert compiled(own, "f", stop="cubin").metadata.arch == "sm_90a"
    assert compiled(own, "g", stop="cubin").metadata.arch == "sm_90"
    guarded = (
        "__global__ void f(int *x) {\n#ifdef __CUDA_ARCH_FEAT_SM90_ALL\n"
        '  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");\n#endif\n}\n'
    )
    assert compiled(guarded, "f").metadata.arch == "sm_90a"
    assert compiled(guarded, "f", portable=True).metadata.arch == "sm_90"
    assert compiled(guarded, "f", target="sm_80").metadata.arch == "sm_80"


def test_headers_of_cuda_and_of_c_are_there(compiled: Any) -> None:
    names = [
        "cuda_fp16.h",
        "cuda_bf16.h",
        "cuda_fp8.h",
        "mma.h",
        "cuda_pipeline.h",
        "cuda.h",
        "stdint.h",
        "cstdint",
        "math.h",
    ]
    names += ["cfloat", "climits", "stdio.h", "assert.h", "cuda_runtime.h"]
    text = "".join(f"#include <{name}>\n" for name in names)
    text += "__global__ void f(const __grid_constant__ CUtensorMap m, std::uint8_t *x, float *y) { x[0] = INT_MAX; "
    text += "y[0] = FLT_MAX + M_PI + INFINITY; }\n"
    signature = {"m": "tensordesc<fp16[64x64]:swizzle128>", "x": "*u8", "y": "*fp32"}
    map_ = "tensormap f16 64x64 128 m m_shape_0,m_shape_1 m_stride_0"
    assert compiled(text, signature=signature).metadata.params == (("m", map_), ("x", "*u8"), ("y", "*fp32"))


def test_headers_of_cccl_are_found_where_a_source_takes_them(compiled: Any) -> None:
    text = "#include <limits>\n#include <cuda/std/cstdint>\n"
    text += "__global__ void f(float *x) { *x = std::numeric_limits<float>::max(); }\n"
    assert "0f7F7FFFFF" in compiled(text).asm["ptx"] or "2139095039" in compiled(text).asm["ptx"]


ERRORS = {
    name: [part.strip("\n") + "\n" for part in case.split("// ----\n")]
    for whole in (Path(__file__).parent / "errors.txt").read_text().split("// case: ")[1:]
    for name, case in [whole.split("\n", 1)]
}


@pytest.mark.parametrize("text, said", ERRORS.values(), ids=ERRORS)
def test_errors_point_at_the_source(compiled: Any, text: str, said: str) -> None:
    found = message(compiled, text, function="f", stop="cubin")
    assert found.startswith(said.rstrip("\n")), found


@pytest.mark.parametrize(
    "options, said",
    [
        ({"constexprs": {"T": "fp32"}}, "k.cu:2:40: error: the template of fill takes N, which has no value"),
        (
            {"constexprs": {"N": 1, "T": "fp32", "M": 2}},
            "k.cu:2:40: error: M is neither a parameter of the template of fill nor",
        ),
        ({"constexprs": {"N": "fp32", "T": 1}}, "k.cu:2:40: error: fill<fp32, 1> is no kernel: "),
        (
            {**GIVEN, "signature": {"x": "*fp16", "value": "fp32"}},
            'k.cu:2:48: error: the parameter x is float *, but args.x of the manifest is "*fp16"',
        ),
        (
            {**GIVEN, "signature": {"x": "*fp32", "valu": "fp32"}},
            "k.cu:2:40: error: fill has no parameter valu\n    __global__ void __launch_bounds__(128) fill(T *x, ",
        ),
        (
            {**GIVEN, "signature": {"x": "*fp32"}},
            "k.cu:2:57: error: the parameter value is no argument of [kernel.args]",
        ),
        (
            {**GIVEN, "block": None},
            "k.cu:2:40: error: nothing says how many threads a block of fill has; __launch_bounds__ "
            "says up to 128 threads",
        ),
        (
            {**GIVEN, "block": "16x16"},
            "k.cu:2:40: error: block is 16x16, 256 threads, and __launch_bounds__ of fill says at most 128",
        ),
        ({**GIVEN, "stop": "ttgir"}, "error: cannot stop at ttgir: CUDA C++ has the stages"),
        ({**GIVEN, "include": "nowhere"}, "error: include nowhere: there is no folder nowhere"),
        (
            {**GIVEN, "include": "no-such-wheel:include"},
            "error: include no-such-wheel:include: no-such-wheel is not installed",
        ),
    ],
)
def test_requests_that_do_not_fit_the_kernel(compiled: Any, options: dict[str, Any], said: str) -> None:
    found = message(compiled, TEMPLATE, function="fill", **options)
    assert found.startswith(said), found


def test_a_macro_that_the_source_defines_itself_is_shown(compiled: Any) -> None:
    said = message(compiled, "#define N 3\n__global__ void f(int *x) { *x = N; }\n", constexprs={"N": 4})
    assert said.startswith(
        "k.cu:1: error: N is given a value, and the source defines it as well\n    #define N 3\n"
    )


def test_warnings_are_of_the_project_alone(compiled: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = "#include <cuda_fp16.h>\n__global__ void f(int *x) {\n  int unused = 3;\n  x[0] = 1;\n}\n"
    assert compiled(text).metadata.warnings == (
        'k.cu:3:7: variable "unused" was declared but never referenced',
    )
    assert main(["compile", "k.cu:f", "--block", "32"]) == 0
    assert 'warning: k.cu:3:7: variable "unused" was declared' in capsys.readouterr().err
