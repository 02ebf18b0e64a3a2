"""Steps that another machine executes leave the same bytes, and a service that fails leaves them to this one."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from kbuild.aot.build import project as project_module
from kbuild.aot.environment import Remote
from kbuild.aot.remote import exchange, protos, shared
from kbuild.aot.remote.protos import make
from kbuild.options import DEFAULTS
from tests.aot.build.fake_compiler import compile as fake_compile
from tests.aot.conftest import KERNEL, MANIFEST
from tests.aot.cuda.conftest import write_project
from tests.aot.remote import reapi_server
from tests.aot.remote.test_builds import Machines
from tests.aot.remote.test_faults import aborting

Service = reapi_server.Service
VARIANTS = 2
REAL = {"compiler": project_module.COMPILER, "source_digest": project_module.SOURCE_DIGEST}
"""The compiler itself."""


@pytest.fixture
def machines(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Machines:
    """With few variants: a process is started for each."""
    text = MANIFEST.replace('dtype = ["fp16", "fp32"]', 'dtype = ["fp16"]').replace(
        "[false, true]", "[false]"
    )
    (project / "kernels.toml").write_text(text[: text.index("[[kernel.exclude]]")])
    return Machines(project, tmp_path_factory.mktemp("machines"))


def engine(service: Service, **more: Any) -> Remote:
    settings = {"is_only": True, "python": reapi_server.PYTHON, "timeout": 5, "job_timeout": 60, "jobs": 2}
    return Remote(**{"engine": service.target, **settings, **more})


def test_what_is_executed_elsewhere_has_the_same_bytes(machines: Machines, reapi: Service) -> None:
    _, files, _ = machines.build()
    result, elsewhere, compiled = machines.build(remote=engine(reapi))
    assert elsewhere == files and compiled == [] and len(reapi.actions) == VARIANTS
    assert result.exchanged is not None and result.exchanged.executed == VARIANTS


def test_what_was_executed_is_not_executed_again(machines: Machines, reapi: Service) -> None:
    """The next machine has another folder, and its actions are the same."""
    _, files, _ = machines.build(remote=engine(reapi))
    assert len(reapi.actions) == VARIANTS
    _, again, compiled = machines.build(remote=engine(reapi))
    assert again == files and compiled == [] and len(reapi.actions) == VARIANTS


def test_both_together_do_everything_once(machines: Machines, reapi: Service) -> None:
    (machines.project / "kernels.toml").write_text(MANIFEST)
    _, files, _ = machines.build()
    result, both, compiled = machines.build(remote=engine(reapi, is_only=False, jobs=1), jobs=1)
    assert both == files and result.exchanged is not None
    assert len(compiled) + result.exchanged.executed == 6 == len(compiled) + len(reapi.actions)
    assert compiled, "the first is begun here before anything comes from there"


def test_what_is_executed_goes_into_the_shared_cache(machines: Machines, reapi: Service) -> None:
    shares = engine(reapi, cache=reapi.target)
    machines.build(remote=shares)
    reapi.actions.clear()
    result, _, compiled = machines.build(remote=replace(shares, engine=""))
    assert compiled == [] and result.exchanged is not None and result.exchanged.fetched == VARIANTS


def test_what_the_kernel_imports_goes_along(machines: Machines, reapi: Service) -> None:
    source = machines.project / "kernels/scale.py"
    (machines.project / "kernels/parts").mkdir()
    (machines.project / "kernels/parts/__init__.py").write_text("")
    (machines.project / "kernels/parts/one.py").write_text("ONE = 1\n")
    (machines.project / "unrelated.py").write_text("TWO = 2\n")
    source.write_text("from parts.one import ONE\n" + KERNEL)
    machines.build(remote=engine(reapi))
    (root, *_) = {action: reapi.blobs[action] for action in reapi.actions}.values()
    inputs = protos.parse("Action", root).input_root_digest.hash
    assert sorted(names_below(reapi, inputs)) == [
        "action.json",
        "kbuild.zip",
        "project/kernels/parts/__init__.py",
        "project/kernels/parts/one.py",
        "project/kernels/scale.py",
        "run.py",
    ]


def names_below(service: Service, hash_: str, where: str = "") -> list[str]:
    directory = protos.parse("Directory", service.blobs[hash_])
    names = [where + file.name for file in directory.files]
    for inner in directory.directories:
        names += names_below(service, inner.digest.hash, f"{where}{inner.name}/")
    return names


def test_properties_of_machines_are_asked_for(machines: Machines, reapi: Service) -> None:
    machines.build(remote=engine(reapi, platform=(("OSFamily", "linux"), ("ISA", "x86-64"))))
    action = protos.parse("Action", reapi.blobs[reapi.actions[0]])
    named = [(each.name, each.value) for each in action.platform.properties]
    assert named == [("ISA", "x86-64"), ("OSFamily", "linux")]
    assert action.platform == protos.parse("Command", reapi.blobs[action.command_digest.hash]).platform


def hanging(service: Service) -> None:
    service.fail = lambda method, context: service.wait() if method == "Execute" else None


def lying(service: Service) -> None:
    entry = protos.blob(b"not an entry at all")
    service.blobs[entry.hash] = entry.data
    service.change_result = lambda result: protos.result_of_entry(entry)


def failing(code: grpc.StatusCode) -> Callable[[Service], None]:
    def change(service: Service) -> None:
        service.fail = aborting(code, "Execute")

    return change


def forgetting(service: Service) -> None:
    def fail(method: str, context: grpc.ServicerContext) -> None:
        if method == "Execute":
            service.blobs.clear()

    service.fail = fail


def without_kbuild(service: Service) -> None:
    service.environment = {"PYTHONPATH": "/nowhere", "PYTHONHOME": "/nowhere"}


def without_output(service: Service) -> None:
    service.change_result = lambda result: make("ActionResult")


def without_space(service: Service) -> None:
    service.fail = aborting(grpc.StatusCode.RESOURCE_EXHAUSTED, "BatchUpdateBlobs")


FAULTS: dict[str, tuple[Callable[[Service], None], str]] = {
    "hangs": (hanging, "no answer within 0.5 seconds"),
    "lies": (lying, "it made something else than entry"),
    "is away": (failing(grpc.StatusCode.UNAVAILABLE), "UNAVAILABLE"),
    "executes nothing": (failing(grpc.StatusCode.UNIMPLEMENTED), "UNIMPLEMENTED"),
    "forgets": (forgetting, "UNKNOWN"),
    "has broken machines": (without_kbuild, "a machine there could not do a step: "),
    "loses outputs": (without_output, "under the name of a result is none"),
    "has no room": (without_space, "RESOURCE_EXHAUSTED"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_service_with_faults_leaves_the_work_to_this_machine(
    fault: str, machines: Machines, reapi: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    change, said = FAULTS[fault]
    change(reapi)
    _, files, compiled = machines.build(remote=engine(reapi, job_timeout=0.5 if fault == "hangs" else 60))
    assert len(compiled) == VARIANTS and files == machines.build()[1]
    error = capsys.readouterr().err
    assert said in error and error.count("warning: ") == 1


def test_a_service_that_comes_back_goes_on(
    machines: Machines, reapi: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is executed there again."""
    monkeypatch.setattr(shared, "_AWAY", 0.01)
    monkeypatch.setattr(exchange, "_GLANCE", 0.01)
    manifest = machines.project / "kernels.toml"
    manifest.write_text(MANIFEST)
    source = machines.project / "kernels/scale.py"
    source.write_text(source.read_text() + '\nMODE = "late"\n')
    failures = iter([True, True])

    def fail(method: str, context: grpc.ServicerContext) -> None:
        if method == "Execute" and next(failures, False):
            context.abort(grpc.StatusCode.UNAVAILABLE, "for a moment")

    reapi.fail = fail
    _, files, compiled = machines.build(remote=engine(reapi, jobs=1, is_only=False), jobs=1)
    assert files == machines.build()[1] and len(compiled) + len(reapi.actions) == 6 and reapi.actions
    first, second = capsys.readouterr().err.splitlines()
    assert "UNAVAILABLE: for a moment; steps run on this machine" in first
    assert second == f"{reapi.target} answers again"


def test_a_mistake_in_a_kernel_is_reported_as_ever(machines: Machines, reapi: Service) -> None:
    source = machines.project / "kernels/scale.py"
    source.write_text(source.read_text() + '\nMODE = "error"\n')
    manifest = machines.project / "kernels.toml"
    manifest.write_text(manifest.read_text().replace("[false]", "[true]"))
    alone, _, _ = machines.build(keep_going=True)
    elsewhere, _, _ = machines.build(remote=engine(reapi), keep_going=True)
    assert [str(failure) for failure in elsewhere.failures] == [str(failure) for failure in alone.failures]
    assert "NEGATE is not for this kernel" in str(elsewhere.failures[0]) and len(alone.failures) == 2


def test_a_machine_with_another_ptxas_does_nothing(
    machines: Machines, reapi: Service, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its cubins would be others, under the same key."""
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.5, V13.5.37'\n")
    tool.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "KBUILD_PTXAS": str(tool),
    }
    _, _, compiled = machines.build(remote=engine(reapi), environment=environment)
    assert len(compiled) == VARIANTS
    assert "has no ptxas of the build's version" in capsys.readouterr().err


def test_the_compiler_itself_on_a_machine_with_another_kbuild(
    tmp_path: Path, reapi: Service, machines: Machines
) -> None:
    """The build's own goes along, and the cubin is the same with line information, which names files."""
    (tmp_path / "broken/kbuild").mkdir(parents=True)
    (tmp_path / "broken/kbuild/__init__.py").write_text("raise ImportError('another one')\n")
    reapi.environment = {"PYTHONPATH": str(tmp_path / "broken")}
    real = {**REAL, "compile": DEFAULTS.changed({"lineinfo": True})}
    _, files, _ = machines.build(**real)
    result, elsewhere, _ = machines.build(remote=engine(reapi), **real)
    assert elsewhere == files and len(files) == 6 and len(reapi.actions) == 2
    assert result.exchanged is not None and result.exchanged.executed == 2
    assert fake_compile.__module__ not in str(reapi.blobs)


def test_actions_of_ptx_for_newer_gpus(machines: Machines, reapi: Service) -> None:
    """They are executed when they are asked for."""
    manifest = machines.project / "kernels.toml"
    manifest.write_text(manifest.read_text().replace('"sm_90"]', '"sm_90+ptx"]'))
    source = machines.project / "kernels/scale.py"
    source.write_text(source.read_text() + '\nMODE = "accelerated"\n')
    _, files, _ = machines.build(archs=("sm_90",))
    _, elsewhere, compiled = machines.build(archs=("sm_90",), remote=engine(reapi))
    assert elsewhere == files and compiled == [] and any(name.endswith(".portable.ptx") for name in files)


def test_a_kernel_in_cuda_brings_its_headers(
    tmp_path: Path, reapi: Service, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pytest.importorskip("cuda.bindings", reason="pip install 'kbuild[cuda]'")
    machines = Machines(write_project(tmp_path), tmp_path_factory.mktemp("machines"))
    real = {**REAL, "kernels": ("matmul",), "archs": ("sm_90",)}
    _, files, _ = machines.build(**real)
    result, elsewhere, _ = machines.build(remote=engine(reapi), **real)
    assert elsewhere == files and files and result.exchanged is not None
    assert result.exchanged.executed == len(reapi.actions) == len(files) // 3
    inputs = protos.parse("Action", reapi.blobs[reapi.actions[0]]).input_root_digest.hash
    assert {"project/kernels/matmul.cu", "project/kernels/index.cuh"} <= set(names_below(reapi, inputs))
