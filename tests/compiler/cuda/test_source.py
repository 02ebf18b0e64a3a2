"""What is read of CUDA C++ without a compiler: kernels, parameters, macros, includes, and the digest of them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbuild.compiler.cuda.includes import closure, cuda_digest
from kbuild.compiler.cuda.mangling import Unknown, parameter_types
from kbuild.compiler.cuda.signature import agrees, template_argument, word_of, written_type
from kbuild.compiler.cuda.source import TemplateParameter, find_kernel, read_source
from kbuild.compiler.cuda.tokens import tokens
from kbuild.errors import CompileError

SOURCE = r"""
// not this comment

#include "tile.cuh"
# include <cuda_fp16.h>  // half
#ifndef BK
#define BK 8
#endif
#if defined(WIDE) || !defined NARROW
#define TWO \
  2
#endif
#if 0
__global__ void dead(int a) {}
#else
#endif
enum class Act { none, relu };
/* C = A B
 * of all. */
template <int BM, class T = float, Act A = Act::none, int W = (BM > 3 ? 4 : 5)>
__global__ void __launch_bounds__(BM * W, 2)
sgemm(const T *__restrict__ a, float const* c, int n = 3, const __grid_constant__ CUtensorMap map,
  unsigned long long, half x[4]) {
  const char *s = "__global__ void f(int x) {"; char q = '"'; auto r = R"x(__global__ )x"; int k = 1'000;
}
namespace ns { namespace {
// Sums.
// All.
extern "C" __global__ void plain(float* x, int n) { if (x) { x[0] = n; } }
__global__ void declared(int n);
} inline namespace v1 { __launch_bounds__(32) static __global__ void last(void) {} } }
"""


def test_kernels_have_templates_parameters_and_comments() -> None:
    source = read_source(SOURCE, "k.cu")
    assert [kernel.name for kernel in source.kernels] == ["sgemm", "ns::plain", "ns::v1::last"]
    sgemm, plain, last = source.kernels
    assert [(one.name, one.type, one.default) for one in sgemm.template] == [
        ("BM", "int", None),
        ("T", "class", "float"),
        ("A", "Act", "Act::none"),
        ("W", "int", "(BM>3?4:5)"),
    ]
    assert [(one.name, one.type) for one in sgemm.parameters] == [
        ("a", "const T *__restrict__"),
        ("c", "float const *"),
        ("n", "int"),
        ("map", "const __grid_constant__ CUtensorMap"),
        ("<4>", "unsigned long long"),
        ("x", "half *"),
    ]
    assert (sgemm.doc, plain.doc, last.doc) == ("C = A B\nof all.", "Sums.\nAll.", "")
    assert (sgemm.loc.line, sgemm.loc.column, sgemm.loc.end_column) == (22, 1, 6)
    assert (
        source.kernel("last") is last
        and source.kernel("ns::plain") is plain
        and source.kernel("dead") is None
    )


def test_macros_and_includes_are_known() -> None:
    source = read_source(SOURCE, "k.cu")
    assert source.includes == (("tile.cuh", True, 4), ("cuda_fp16.h", False, 5))
    assert source.defined == {"TWO": 10} and source.tested == {"BK", "WIDE", "NARROW"}
    assert {"BM", "BK", "TWO", "relu"} <= source.words and "dead" not in source.words


@pytest.mark.parametrize(
    "text",
    ["", "#", '"', "'", "/*", 'R"(', "template <", "__global__", "__global__ void f(", "\\", "x = a ## b\0"],
)
def test_any_text_has_tokens_and_perhaps_kernels(text: str) -> None:
    assert "".join(token.text for token in tokens(text)) in text.replace("\\", "\\") or text
    read_source(text, "k.cu")


def test_a_kernel_that_is_not_there_is_reported_with_what_is(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(SOURCE)
    with pytest.raises(CompileError, match=r"has no __global__ function sgem") as caught:
        find_kernel(tmp_path / "k.cu", "sgem")
    assert caught.value.help == "did you mean sgemm?"
    with pytest.raises(CompileError, match="has 3 kernels") as caught:
        find_kernel(tmp_path / "k.cu", "")
    assert caught.value.help == "its kernels are sgemm, ns::plain, ns::v1::last"


def test_the_digest_knows_all_files_of_the_project_and_no_comments(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "k.cu").write_text(
        '#include "a.cuh"\n#include <b.cuh>\n#include <cuda_fp16.h>\n__global__ void f(int *x) {}\n'
    )
    (tmp_path / "a.cuh").write_text('#include "a.cuh"\nint a();\n')
    (tmp_path / "lib/b.cuh").write_text("int b();\n")
    path = str(tmp_path / "k.cu")
    found = closure(path, ["lib"], str(tmp_path))
    assert [Path(file).name for file in found.files] == ["k.cu", "a.cuh", "b.cuh"] and found.names == {
        "cuda_fp16.h"
    }
    first = cuda_digest(path, include=[str(tmp_path / "lib")])
    with_places = cuda_digest(path, True, [str(tmp_path / "lib")])
    (tmp_path / "lib/b.cuh").write_text("// moved\nint  b( );\n")
    assert cuda_digest(path, include=[str(tmp_path / "lib")]) == first
    assert cuda_digest(path, True, [str(tmp_path / "lib")]) != with_places
    (tmp_path / "a.cuh").write_text("long a();\n")
    assert cuda_digest(path, include=[str(tmp_path / "lib")]) != first


@pytest.mark.parametrize(
    "symbol, types",
    [
        ("_Z4nameIPFvvEE", []),
        ("_Z4nameIPFvPK6__halfPfmPKyPv14CUtensorMap_stS0_13__nv_bfloat16bP6float4EE",
         ["const __half *", "float *", "unsigned long", "const unsigned long long *", "void *", "CUtensorMap_st", "__half",
          "__nv_bfloat16", "bool", "float4 *"]),
        ("_Z4nameIPFvPPKfRKiPN2ns4PairIiLi3EEES8_EE", ["const float **", "const int &", *["ns::Pair<int, 3> *"] * 2]),
        ("_Z4nameIPFvSt5arrayIfLm4EEEE", ["std::array<float, (unsigned long)4>"]),
    ],
)  # fmt: skip
def test_types_are_read_from_mangled_names(symbol: str, types: list[str]) -> None:
    assert [str(one) for one in parameter_types(symbol)] == types


@pytest.mark.parametrize(
    "symbol", ["", "f", "_Z4name", "_Z4nameIPFvS9_EE", "_Z4nameIPFvDv4_fEE", "_Z4nameIPFv"]
)
def test_other_names_are_refused(symbol: str) -> None:
    with pytest.raises(Unknown):
        parameter_types(symbol)


@pytest.mark.parametrize(
    "written, word, others",
    [
        ("const float *__restrict__", "*fp32", ["*fp32:16"]),
        ("float4 *", "*fp32", []),
        ("const half2 *", None, []),
        ("__half2 *", "*fp16", []),
        ("unsigned", "u32", []),
        ("size_t", "u64", []),
        ("const int64_t", "i64", []),
        ("unsigned char *", "*u8", ["*i8", "*fp8e4nv", "*i1"]),
        ("void *", "*u8", ["*fp32", "*i64"]),
        ("unsigned *", "*u32", ["*i32"]),
        ("float **", "*i64", ["*u64"]),
        ("bool", "i1", []),
        ("const __grid_constant__ CUtensorMap", "tensordesc", ["tensordesc<fp16[64, 64]>"]),
        ("MyType *", None, []),
        ("std::array<int, 4>", None, []),
    ],
)
def test_words_for_types(written: str, word: str | None, others: list[str]) -> None:
    type_ = written_type(written)
    assert (word_of(type_) if type_ else None) == word
    for other in others:
        assert type_ is not None and agrees(other, type_)


@pytest.mark.parametrize(
    "word, written",
    [("*fp16", "float *"), ("i32", "unsigned"), ("i64", "int"), ("fp32", "float *"), ("*i64", "int *")],
)
def test_types_that_do_not_agree(word: str, written: str) -> None:
    type_ = written_type(written)
    assert type_ is not None and not agrees(word, type_)


@pytest.mark.parametrize(
    "type_, value, text",
    [
        ("int", 3, "3"),
        ("int", -3, "(-3)"),
        ("bool", True, "true"),
        ("class", "bf16", "__nv_bfloat16"),
        ("class", "Policy", "Policy"),
        ("Act", "relu", "Act::relu"),
        ("int", "WIDTH", "WIDTH"),
    ],
)
def test_values_are_written_in_cpp(type_: str, value: object, text: str) -> None:
    assert template_argument(TemplateParameter("X", type_), value) == text
