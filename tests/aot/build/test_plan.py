"""A build depends on the inputs of its cubins and nothing else; and how ninja gets them."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path

import pytest

from kbuild.aot.build import ninja
from kbuild.aot.build.plan import Job, Plan, plan
from kbuild.aot.files import templates_directory
from kbuild.aot.identity import (
    FileDigests,
    bytes_digest,
    canonical_json,
    compiler_digest,
    digest,
    request_digest,
    seal,
    templates_digest,
    tree_digest,
    unseal,
)
from kbuild.aot.manifest.expand import Expansion, expand
from kbuild.aot.manifest.load import load
from kbuild.aot.manifest.model import Guard
from kbuild.options import DEFAULTS, options

SOURCES = {"scale": "5" * 64}
TOOLS = {"ptxas": "9" * 64}


def planned(project: Path, **changes: object) -> Plan:
    manifest = load(project / "kernels.toml")
    given = {"sources": SOURCES, "compiler": "c" * 64, "tools": TOOLS} | changes
    expansion = given.pop("expansion", None) or expand(manifest)
    return plan(manifest, expansion, **given)  # type: ignore[arg-type]


def identities(made: Plan) -> set[str]:
    return {job.identity for job in made.jobs}


def test_identity_depends_on_what_goes_in(project: Path) -> None:
    base = identities(planned(project))
    assert len(base) == 18
    assert identities(planned(project)) == base
    for change in ({"sources": {"scale": "6" * 64}}, {"compiler": "d" * 64}, {"tools": {"ptxas": "8" * 64}}):
        assert not identities(planned(project, **change)) & base


def test_identity_depends_on_lines_where_the_cubin_names_them(project: Path) -> None:
    """Assertions and line information do; other cubins do not depend on line numbers."""
    variants = expand(load(project / "kernels.toml"))
    asserting, profiled = (
        variants.requested(DEFAULTS.changed({name: True})) for name in ("debug", "lineinfo")
    )
    moved = {"places": {"scale": "a" * 64}}
    assert not identities(planned(project, expansion=asserting)) & identities(planned(project))
    assert not identities(planned(project, expansion=asserting, **moved)) & identities(
        planned(project, expansion=asserting)
    )
    assert not identities(planned(project, expansion=profiled)) & identities(planned(project))
    assert not identities(planned(project, expansion=profiled, **moved)) & identities(
        planned(project, expansion=profiled)
    )
    assert identities(planned(project, **moved)) == identities(planned(project))


CHANGED: dict[str, object] = {
    "arch": "sm_90",
    "matrix": (("dtype", "fp16"), ("NEGATE", True)),
    "signature": (("x", "*fp16:16"), ("y", "*fp16:16"), ("n", "i32")),
    "constexprs": (("BLOCK", 1024), ("SCALE", 2.0)),
}
"""Every field of a variant that its code depends on, with another value."""
OF_DISPATCH = {"kernel": "other", "guards": (Guard("n", ">", 3),), "cost": "2 * n"}
OPTIONS = {
    "num_warps": 2,
    "num_stages": 5,
    "cluster_size": 2,
    "num_ctas": 2,
    "max_registers": 64,
    "enable_fp_fusion": False,
    "debug": True,
    "lineinfo": True,
    "portable": True,
    "block": "16x16",
    "shared": 1024,
    "include": "include",
    "use_fast_math": True,
    "cpp_std": 20,
}
"""Every option on which the code depends, with another value."""


def test_identity_depends_on_every_field_of_a_variant(project: Path) -> None:
    first = expand(load(project / "kernels.toml")).variants[0]
    assert {field.name for field in fields(first)} == {*CHANGED, *OF_DISPATCH, "options"}, (
        "a new field is one or the other"
    )
    assert {option.name for option in options() if option.changes_code} == set(OPTIONS)
    changed = [replace(first, **{field: value}) for field, value in CHANGED.items()]
    changed += [
        replace(first, options=first.options.changed({name: value})) for name, value in OPTIONS.items()
    ]
    assert first not in changed
    found = {
        identity
        for one in (first, *changed)
        for identity in identities(planned(project, expansion=Expansion((one,), ())))
    }
    assert len(found) == len(changed) + 1
    dispatched = [
        replace(first, **{field: value}) for field, value in OF_DISPATCH.items() if field != "kernel"
    ]
    dispatched.append(
        replace(
            first, options=first.options.changed({"launch_pdl": True, "strict": True, "ptxas": "/bin/ptxas"})
        )
    )
    assert {*identities(planned(project, expansion=Expansion(tuple(dispatched), ())))} <= found


def test_a_package_is_made_again_for_all_that_goes_into_it(project: Path) -> None:
    package: dict[str, object] = {
        "archs": ["sm_80"],
        "launcher": ["cc"],
        "templates": "1",
        "cc_digest": "2",
        "kbuild": "3",
    }
    package["epoch"] = 4
    first = planned(project, package=package)
    for name in package:
        changed = planned(project, package=package | {name: ["other"]})
        assert changed.edges[-1].identity != first.edges[-1].identity
        is_of_launcher = name in ("launcher", "templates", "cc_digest")
        assert (changed.edges[0].identity != first.edges[0].identity) == is_of_launcher
        assert {edge.identity for edge in changed.edges[1:-1]} == {
            edge.identity for edge in first.edges[1:-1]
        }


def test_the_digest_of_the_templates_is_that_of_each(tmp_path: Path) -> None:
    """Headers too: the launcher is made of them.  The page of `kbuild report` and the hook of
    `kbuild capture` are no part of a package."""
    templates = tmp_path / "templates"
    shutil.copytree(templates_directory(), templates)
    digests = {templates_digest(templates)}
    names = [path for path in sorted(templates.rglob("*")) if path.is_file()]
    others = [path for path in names if {"report", "capture"} & {*path.relative_to(templates).parts}]
    for path in names:
        with path.open("a") as stream:
            stream.write("\n")
        digests.add(templates_digest(templates))
    assert {".c", ".h", ".j2"} <= {path.suffix for path in names} and len(digests) == 1 + len(names) - len(
        others
    )


def test_identity_does_not_depend_on_facts_of_dispatch_or_names(project: Path) -> None:
    base = planned(project)
    found = expand(load(project / "kernels.toml")).variants
    variants = tuple(replace(variant, guards=(Guard("n", ">", 3),)) for variant in found)
    assert identities(planned(project, expansion=Expansion(variants, ()))) == identities(base)
    text = (project / "kernels.toml").read_text().replace('name = "scale"', 'name = "scale_rows"')
    (project / "kernels.toml").write_text(text)
    assert identities(planned(project, sources={"scale_rows": "5" * 64})) == identities(base)


def test_identity_is_the_same_on_every_machine_and_day() -> None:
    """This digest is written down: changing it throws away all caches, and should raise FORMAT
    knowingly."""
    request = {
        "function": "k",
        "signature": [["x", "*fp16:16"]],
        "constexprs": [["BLOCK", 1024]],
        "target": "sm_90",
    }
    assert request_digest(request, "a", "b", {"ptxas": "c", "llvm": "d"}) == digest(
        {
            "compiler": "b",
            "format": 1,
            "request": request,
            "source": "a",
            "tools": {"llvm": "d", "ptxas": "c"},
        }
    )
    assert digest(request) == "837453685a7825b862cf99e2b2ea375316f2c214850625157f18e0ce15a5dc1e"
    assert (
        canonical_json({"b": (1, 2.5, None), "a": True, "ü": "é"})
        == b'{"a":true,"b":[1,2.5,null],"\\u00fc":"\\u00e9"}'
    )


def test_the_compiler_s_digest_is_that_of_its_sources(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.mkdir()
    (compiler / "pass.py").write_text("x = 1\n")
    first = compiler_digest(tmp_path)
    (compiler / "notes.txt").write_text("")
    assert compiler_digest(tmp_path) == first
    (compiler / "pass.py").rename(compiler / "other.py")
    second = compiler_digest(tmp_path)
    (tmp_path / "options.py").write_text("")
    assert len({first, second, compiler_digest(tmp_path)}) == 3
    assert tree_digest(tmp_path, ["*.txt"]) != tree_digest(tmp_path, ["*.none"])


def test_digests_of_tools_are_remembered_until_the_file_changes(tmp_path: Path) -> None:
    tool, record = tmp_path / "ptxas", tmp_path / "record"
    tool.write_bytes(b"one")
    digests = FileDigests(record)
    first = digests.get(tool)
    record.write_bytes(digests.record())
    assert FileDigests(record).get(tool) == first
    [(name, entry)] = (unseal(record.read_bytes()) or {}).items()
    record.write_bytes(seal({name: [*entry[:4], "0" * 64]}))
    assert FileDigests(record).get(tool) == "0" * 64  # The record is believed,
    tool.write_bytes(b"two")
    assert FileDigests(record).get(tool) not in (first, "0" * 64)  # but not about another file.
    for garbage in (
        b"",
        b"[]",
        b'{"x": 1}',
        b"\xff",
        seal({name: [1]})[1:],
        seal({name: entry}).replace(b"0000", b"1111"),
    ):
        record.write_bytes(garbage)
        assert len(FileDigests(record).get(tool)) == 64


def test_the_digest_of_an_installed_tool_is_that_of_its_wheel_s_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    tool, record = tmp_path / "nvidia" / "ptxas", tmp_path / "nvcc-13.dist-info" / "RECORD"
    for path in (tool, record):
        path.parent.mkdir()
    tool.write_bytes(b"one")
    recorded = (
        base64.urlsafe_b64encode(b"\xff" * 32).decode().rstrip("=")
    )  # Not its digest, to see which is given.

    def found() -> str:
        return FileDigests(tmp_path / "none").get(tool)

    record.write_text(
        f"nvidia/other,sha256=x,9\nnvidia/ptxas,sha256={recorded},3\nnvcc-13.dist-info/RECORD,,\n"
    )
    assert found() == "ff" * 32
    record.write_text(f"nvidia/ptxas,sha256={recorded},4\n")  # Of a file of another size,
    assert found() == bytes_digest(b"one")
    record.write_text(f"nvidia/ptxas,sha256={recorded},3\n")
    os.utime(record, ns=(0, tool.stat().st_mtime_ns - 1))  # or written before the file was.
    assert found() == bytes_digest(b"one")


def test_a_job_with_assertions_reads_back_and_is_repeated_with_them(project: Path) -> None:
    asserting = expand(load(project / "kernels.toml")).requested(DEFAULTS.changed({"debug": True}))
    for job in planned(project, expansion=asserting).jobs:
        assert Job.decode(json.loads(job.encode())) == job and job.command().endswith(" --debug")


def test_a_job_reads_back_and_says_how_to_repeat_it(project: Path) -> None:
    for job in planned(project).jobs:
        assert Job.decode(json.loads(job.encode())) == job
    assert planned(project).jobs[0].command() == (
        "kbuild compile kernels/scale.py:scale_kernel --arch sm_80 -s 'x=*fp16:16,y=*fp16:16,n=i32:16' "
        "-c NEGATE=False,BLOCK=512,SCALE=2.0 --num-warps 4 --num-stages 3"
    )


def test_ninja_s_text(project: Path) -> None:
    text = (project / "kernels.toml").read_text().replace("[false, true]", "[false]")
    text = (
        re.sub(r"\[\[kernel.exclude\]\][^\[]*", "", text)
        .replace('["fp16", "fp32"]', '["fp16"]')
        .replace("16?", "16")
    )
    (project / "kernels.toml").write_text(text)
    variants = expand(load(project / "kernels.toml"), ["sm_80"]).variants
    package = {"archs": ["sm_80"], "launcher": ["cc", "-c", "$x y.c"], "templates": "1", "cc_digest": "2"}
    made = planned(project, expansion=Expansion(variants, ()), package=package)
    printed = ninja.text(made)
    name = "fp16.NEGATE=0.n=d16.BLOCK=512,SCALE=2.0.w4s3"
    launcher = ".kbuild/launcher.o .kbuild/library.o .kbuild/launcher.o.json"
    files = f"sm_80/scale/{name}.cubin sm_80/scale/{name}.json sm_80/scale/{name}.ptx"
    assert (
        printed.replace("$\n    ", "")
        == f"""\
# Written by kbuild build; changes are lost.
ninja_required_version = 1.10
builddir = .kbuild

rule step
  command = . ./.kbuild/step < $in
  description = $what
  restat = 1

build {launcher}: step .kbuild/launcher.json
  what = compile the launcher

build {files}: step .kbuild/jobs/sm_80/scale/{name}.json
  what = compile scale.sm_80.{name}

build .kbuild/wheel.json: step .kbuild/assemble.json | .kbuild/package.json {launcher} {files}
  what = package demo_kernels
"""
    )
    assert [name for name, _ in made.files] == [
        f".kbuild/jobs/sm_80/scale/{name}.json",
        ".kbuild/package.json",
        ".kbuild/assemble.json",
        ".kbuild/launcher.json",
    ]
