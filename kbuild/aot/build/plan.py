"""What a build does, as values: jobs for the variants, and the edges of the graph that ninja runs.

Planning is pure.  A job's file carries the identity of its cubin, and is the only input of its edge: what
does not change the identity, a comment for one, leaves the file as it is, and ninja has nothing to do.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from kbuild.aot.identity import bytes_digest, canonical_json, digest, request_digest
from kbuild.aot.manifest.expand import Expansion, Variant
from kbuild.aot.manifest.model import Kernel, Manifest, Package, Value, source_path
from kbuild.options import CompileOptions
from kbuild.targets import find_target

STATE = ".kbuild"
"""Directory within the build directory for internal files."""
PACKAGE = f"{STATE}/package.json"
"""The input of the last step."""
STEP = f"{STATE}/step"
"""The end of a step's command: the client of the build's server."""
LAUNCHER = f"{STATE}/launcher.o"
"""The part of a package's launcher that is the same for all, compiled; within the build directory."""
LIBRARY_CORE = f"{STATE}/library.o"
"""The same of its library for C."""
HEADERS = f"{STATE}/headers"
"""The headers that a launcher for another machine needs besides this machine's."""
LAUNCHER_JOB = f"{STATE}/launcher.json"
LAUNCHER_RECORD = f"{STATE}/launcher.o.json"
WHEEL = f"{STATE}/wheel.json"
"""Record of the last step: `wheel` is the path of the wheel, or of the part, within the build directory."""


@dataclass(frozen=True)
class Job:
    """Everything needed to compile one variant."""

    variant: Variant
    """The variant."""
    source: str
    """Python file, relative to the project."""
    function: str
    """Function in it."""
    constexprs: tuple[tuple[str, Value], ...]
    """All constexpr parameters that have a value: axes of the matrix, meta-parameters, defaults."""
    identity: str
    """Digest of all that goes into the cubin."""
    source_digest: str
    """Digest of the kernel and all it reaches, which must be unchanged when the compiler is done."""
    portable: str = ""
    """Digest of all that goes into PTX for newer GPUs, for when the cubin's own does not run there; empty where
    none is wanted."""
    like: str = ""
    """The `stem` of an earlier variant with the same cubin, as where only the facts differ that dispatch asks for; that one
    is compiled for both."""

    @cached_property
    def stem(self) -> str:
        """Path of the variant's files within the build directory, without suffix."""
        return f"{self.variant.arch}/{self.variant.kernel}/{self.variant.file_name}"

    @property
    def file(self) -> str:
        """Path of the job's own file within the build directory."""
        return f"{STATE}/jobs/{self.stem}.json"

    @property
    def portable_ptx(self) -> str:
        """Path of the PTX for newer GPUs, where that is another than the cubin's."""
        return f"{self.stem}.portable.ptx"

    @property
    def record(self) -> str:
        """Path of the record of what its step makes, which is the variant's facts as well."""
        return f"{self.stem}.json"

    def encode(self) -> bytes:
        """The job as canonical JSON."""
        return canonical_json(self.fields())

    def fields(self) -> dict[str, Any]:
        """What `decode` makes the job of."""
        fields = {
            "variant": str(self.variant),
            "source": self.source,
            "function": self.function,
            "identity": self.identity,
        }
        rest = {
            "constexprs": self.constexprs,
            "source_digest": self.source_digest,
            "options": self.variant.options.requested(),
        }
        optional = {name: value for name in ("portable", "like") if (value := getattr(self, name))}
        return fields | rest | optional

    @staticmethod
    def decode(fields: Mapping[str, object]) -> Job:
        """The job with these fields, which `encode` wrote."""
        values = dict(fields)
        constexprs = tuple((name, value) for name, value in values.pop("constexprs"))  # type: ignore[attr-defined]
        variant = Variant.parse(str(values.pop("variant")))
        # The text of a variant has no options of a request.
        variant = replace(variant, options=variant.options.changed(values.pop("options")))  # type: ignore[arg-type]
        return Job(variant=variant, constexprs=constexprs, **values)  # type: ignore[arg-type]

    def command(self) -> str:
        """The command line that compiles the same again, from the project's directory."""
        words = ["kbuild", "compile", f"{self.source}:{self.function}", "--arch", self.variant.arch]
        words += ["-s", ",".join(f"{name}={type_}" for name, type_ in self.variant.signature)]
        if self.constexprs:
            words += ["-c", ",".join(f"{name}={_word(value)}" for name, value in self.constexprs)]
        return shlex.join(words + self.variant.options.arguments())


@lru_cache(maxsize=4096)
def _code(options: CompileOptions) -> Mapping[str, object]:
    return options.code()


def _word(value: Value) -> str:
    """A compile-time value on the command line; in quotes where it would be read as something else than a
    word."""
    return (
        repr(value)
        if isinstance(value, str) and value.lower() in ("", "true", "false", "none")
        else str(value)
    )


@dataclass(frozen=True)
class Edge:
    """One step of the build."""

    job: str
    """File that says what to do; all paths are relative to the build directory."""
    outputs: tuple[str, ...]
    """Files it makes."""
    record: str
    """The output that is the record of the others."""
    identity: str
    """Digest of its inputs, apart from what other steps make."""
    description: str
    """Shown while it runs."""
    implicit: tuple[str, ...] = ()
    """Further files it depends on."""
    reads: tuple[str, ...] = ()
    """Records of the steps whose files it reads."""


@dataclass(frozen=True)
class Plan:
    """A whole build."""

    jobs: tuple[Job, ...]
    """One per variant, in the order of the expansion."""
    edges: tuple[Edge, ...]
    """The steps; those that compile variants stand in the order of the jobs."""
    files: tuple[tuple[str, bytes], ...]
    """Files to write first, where they differ: names within the build directory, and contents."""
    compiler: str
    """Digest of the compiler."""
    tools: Mapping[str, str]
    """Digests of the programs and libraries that it runs."""


def plan(
    manifest: Manifest,
    expansion: Expansion,
    sources: Mapping[str, str],
    compiler: str,
    tools: Mapping[str, str],
    package: Mapping[str, Any] | None = None,
    places: Mapping[str, str] | None = None,
) -> Plan:
    """The build of an expansion.

    `sources` maps kernels to digests of their source closures, and `places` those whose cubins name source
    lines to digests that know these; `compiler` and `tools` are digests as well.  `package`, if given, is
    the other inputs of the package besides manifest and cubins; without it no package is made.  Its entry
    `launcher` is the command that compiles the launcher, whose sources and compiler have the digests
    `templates` and `cc_digest`; a part of a build has none.
    """
    kernels = {kernel.name: kernel for kernel in manifest.kernels}
    jobs = tuple(
        each_once(
            job_of(kernels[variant.kernel], variant, sources, compiler, tools, places, manifest.package)
            for variant in expansion.variants
        )
    )
    files = [(job.file, job.encode()) for job in jobs]
    edges = [_compile_edge(job, text) for job, (_, text) in zip(jobs, files)]
    if package is not None:
        everything = canonical_json(
            {"manifest": manifest_digest(manifest), "jobs": [job.file for job in jobs], **package}
        )
        files.append((PACKAGE, everything))
        files.append(
            (f"{STATE}/assemble.json", canonical_json({"package": PACKAGE}))
        )  # Short, as all jobs are.
        if "launcher" in package:
            launcher = launcher_job(package)
            files.append((LAUNCHER_JOB, launcher))
            # First, for the last steps to have nothing left but what needs the cubins.
            edges.insert(0, _launcher_edge(launcher))
        edges.append(_package_edge(everything, manifest.package.name, edges))
    return Plan(jobs, tuple(edges), tuple(files), compiler, tools)


def each_once(jobs: Iterable[Job]) -> Iterator[Job]:
    """The jobs, of which those with equal cubins refer to the first of them."""
    first: dict[tuple[str, str], str] = {}
    for job in jobs:
        stem = first.setdefault((job.identity, job.portable), job.stem)
        yield job if stem == job.stem else replace(job, like=stem)


def launcher_job(package: Mapping[str, Any]) -> bytes:
    """The job of the step that compiles the launcher, from the inputs of a package."""
    return canonical_json({name: package[name] for name in ("templates", "cc_digest", "launcher")})


def made_of(identity: str, records: Iterable[bytes]) -> str:
    """Digest of all inputs of a step: its identity, and the records of what it reads, if anything."""
    read = [bytes_digest(record) for record in records]
    return digest([identity, *read]) if read else identity


def is_last(job: bytes) -> bool:
    """Whether an encoded job is that of the last step, which makes the package."""
    return job.startswith(b'{"package":')


def manifest_digest(manifest: Manifest) -> str:
    """The digest of a manifest's contents, without comments and formatting."""
    return digest(repr(manifest))


def job_of(
    kernel: Kernel,
    variant: Variant,
    sources: Mapping[str, str],
    compiler: str,
    tools: Mapping[str, str],
    places: Mapping[str, str] | None = None,
    package: Package | None = None,
) -> Job:
    """The job that compiles a variant; arguments as for `plan`, `package` being what it is shipped in."""
    constexprs = constexprs_of(kernel, variant)
    request: dict[str, object] = {
        "function": kernel.function,
        "signature": variant.signature,
        "constexprs": sorted(constexprs),
        "target": variant.arch,
        "options": _code(variant.options),
    }
    if places and variant.options.names_lines:
        request["places"] = [kernel.source, places[kernel.name]]
    source = sources[kernel.name]
    identity, portable = request_digest(request, source, compiler, tools), ""
    if package and variant.arch in package.ptx_archs and find_target(variant.arch).accelerated_arch:
        request["options"] = _code(variant.portable().options)
        portable = request_digest(request, source, compiler, tools)
    return Job(
        variant,
        str(source_path(kernel.source, Path())),
        kernel.function,
        constexprs,
        identity,
        source,
        portable,
    )


def constexprs_of(kernel: Kernel, variant: Variant) -> tuple[tuple[str, Value], ...]:
    """All constexpr parameters of a variant that have a value: axes of the matrix, meta-parameters, defaults."""
    is_parameter = {axis.name: axis.is_parameter for axis in kernel.matrix}
    return (*((name, value) for name, value in variant.matrix if is_parameter[name]), *variant.constexprs)


def _launcher_edge(job: bytes) -> Edge:
    return Edge(
        LAUNCHER_JOB,
        (LAUNCHER, LIBRARY_CORE, LAUNCHER_RECORD),
        LAUNCHER_RECORD,
        bytes_digest(job),
        "compile the launcher",
    )


def _compile_edge(job: Job, text: bytes) -> Edge:
    """The step that compiles a variant; `text` is the encoded job."""
    outputs = tuple(f"{job.stem}.{suffix}" for suffix in ("cubin", "json", "ptx"))
    needed = (f"{job.like}.json",) if job.like else ()
    return Edge(job.file, outputs, job.record, bytes_digest(text), f"compile {job.variant.name}", needed)


def _package_edge(package: bytes, name: str, others: Sequence[Edge]) -> Edge:
    needed = (PACKAGE, *(output for edge in others for output in edge.outputs))
    reads = tuple(edge.record for edge in others)
    job, what = f"{STATE}/assemble.json", f"package {name}"
    return Edge(job, (WHEEL,), WHEEL, bytes_digest(package), what, needed, reads)
