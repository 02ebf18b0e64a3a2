"""Which variants the next build would compile, and why: the history against the project as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from kbuild.aot import toolchain
from kbuild.aot.build import project as builder
from kbuild.aot.build import records
from kbuild.aot.build.inputs import BuildOptions, closure_digests, tool_digests
from kbuild.aot.build.plan import STATE, Job, each_once, job_of
from kbuild.aot.history.compare import Reason, State, differences, variant_differences
from kbuild.aot.history.extend import circumstances_of, source_parts, unrecorded
from kbuild.aot.history.ledger import Circumstances, History, Made, SourcePart, read
from kbuild.aot.identity import FileDigests, bytes_digest, compiler_digest
from kbuild.aot.manifest.expand import Expansion, Variant
from kbuild.aot.manifest.model import Kernel, Manifest
from kbuild.aot.manifest.positions import Path as KeyPath
from kbuild.aot.manifest.positions import line_of, parsed
from kbuild.compiler.backend.cubin import ptxas_version
from kbuild.errors import KbuildError


@dataclass(frozen=True)
class Answer:
    """What becomes of a variant, and why."""

    name: str
    state: str
    """`same`, `changed`, `new`, `damaged` or `gone`."""
    reasons: tuple[Reason, ...]
    """Of `changed` why it would be compiled again; of `same` why the last build that made it did; of `new` what
    distinguishes it from a variant that was built."""
    nearest: str = ""
    """That variant."""
    last: Made | None = None
    """How it was made last."""
    identity: str = ""
    """The key of its cubin in the cache."""


@dataclass
class Project:
    """A project as it is, and as its builds left it."""

    options: BuildOptions
    manifest: Manifest
    expansion: Expansion
    history: History

    @staticmethod
    def of(options: BuildOptions) -> Project:
        """Reads manifest, sources and history; raises KbuildError where a build could not begin either."""
        options = builder.completed(options)
        manifest, expansion = builder.load_variants(
            options.project, options.archs, options.kernels, options.compile
        )
        return Project(options, manifest, expansion, read(options.project / builder.BUILD))

    @property
    def build(self) -> Path:
        return self.options.project / builder.BUILD

    @cached_property
    def jobs(self) -> dict[str, Job]:
        """What a build would do, by variant."""
        sources, places = closure_digests(self.options, self.manifest, self.expansion.variants)
        compiler = compiler_digest()
        jobs = (
            job_of(
                self.manifest.kernel(variant.kernel),
                variant,
                sources,
                compiler,
                self.tools,
                places,
                self.manifest.package,
            )
            for variant in self.expansion.variants
        )
        return {job.variant.name: job for job in each_once(jobs)}

    @cached_property
    def ptxas(self) -> toolchain.Tool:
        """The ptxas that a build would use."""
        package = self.manifest.package
        return toolchain.find_ptxas(self.options.environment, package.ptxas, package.min_driver)

    @cached_property
    def tools(self) -> Mapping[str, str]:
        """Digests of the tools that a build would use."""
        return tool_digests(FileDigests(self.build / STATE / "digests.json"), self.ptxas)

    @cached_property
    def circumstances(self) -> Circumstances:
        """What a build would be made with."""
        versions = {"ptxas": ptxas_version(self.ptxas.path), **toolchain.llvm_versions()}
        return circumstances_of(compiler_digest(), self.tools, versions)

    @cached_property
    def _texts(self) -> dict[str, tuple[SourcePart, ...] | None]:
        return {}

    def source(self, job: Job) -> tuple[SourcePart, ...] | None:
        """The text of a job's kernel and what it reaches, as it is now; None where it cannot be read."""
        if job.source_digest not in self._texts:
            try:
                self._texts[job.source_digest] = source_parts(self.options.project, job)
            except (KbuildError, OSError, UnicodeDecodeError):
                self._texts[job.source_digest] = None
        return self._texts[job.source_digest]

    def was(self, made: Made) -> State:
        """The inputs of something that a build made."""
        history = self.history
        source = history.sources.get(str(made.job.get("source_digest")))
        return State(made, history.circumstances.get(made.made_with), source)

    def answer(self, name: str) -> Answer:
        """What becomes of a variant, by name."""
        last = self.history.last(name)
        if name not in self.jobs:
            return Answer(name, "gone", self._why_gone(last), last=last)
        job = self.jobs[name]
        found = records.read(self.build, job.record, bytes_digest(job.encode()))
        if last is None and found is not None:
            last = unrecorded(job)
        if last is None and (self.build / job.record).is_file():
            text = "the history of builds does not have it"
            return Answer(name, "changed", (Reason("files", text),), identity=job.identity)
        if last is None:
            return self._never_built(job)
        if last.job.get("identity") != job.identity or last.identity != unrecorded(job).identity:
            now = State(unrecorded(job), self.circumstances, self.source(job))
            reasons = tuple(self._placed(differences(self.was(last), now), job.variant))
            return Answer(name, "changed", reasons, last=last, identity=job.identity)
        if found is None:
            text = "its files in the build directory are not there, or not as they were made"
            return Answer(name, "damaged", (Reason("files", text),), last=last, identity=job.identity)
        return Answer(name, "same", self._why_last(name), last=last, identity=job.identity)

    def _why_last(self, name: str) -> tuple[Reason, ...]:
        """Why the last build that made a variant did; nothing where it was the first."""
        last, before = self.history.last(name), self.history.before(name)
        if last is None or before is None:
            return ()
        return tuple(self._placed(differences(self.was(before), self.was(last)), last.variant))

    def _never_built(self, job: Job) -> Answer:
        """A variant that no build has made, and what distinguishes it from the one most like it that was."""
        name = job.variant.name
        alike = [
            (len(list(variant_differences(other, job.variant))), -made.build, made.name)
            for other, made in self._last_of(job.variant.kernel)
        ]
        if not alike:
            return Answer(name, "new", (), identity=job.identity)
        nearest = self.history.made[min(alike)[-1]][-1]
        now = State(unrecorded(job), self.circumstances, self.source(job))
        reasons = tuple(self._placed(differences(self.was(nearest), now), job.variant))
        return Answer(name, "new", reasons, nearest.name, identity=job.identity)

    def _last_of(self, kernel: str) -> list[tuple[Variant, Made]]:
        """All variants of a kernel that were ever built, each as it was last."""
        if kernel not in self._variants:
            last = [entries[-1] for entries in self.history.made.values()]
            self._variants[kernel] = [
                (made.variant, made) for made in last if made.name.startswith(f"{kernel}.")
            ]
        return self._variants[kernel]

    @cached_property
    def _variants(self) -> dict[str, list[tuple[Variant, Made]]]:
        return {}

    def _why_gone(self, last: Made | None) -> tuple[Reason, ...]:
        """Why the manifest does not ask for a variant any more."""
        if last is None:
            return ()
        was = last.variant
        for point in self.expansion.excluded:
            if (point.kernel, point.arch, point.matrix) == (was.kernel, was.arch, was.matrix):
                return (Reason("manifest", f"it is excluded: {point.reason}"),)
        if was.arch not in self.manifest.package.archs:
            text = f"{was.arch} is not among its architectures"
            return tuple(self._placed([Reason("manifest", text, key=("archs",))], was))
        if was.kernel not in {kernel.name for kernel in self.manifest.kernels}:
            return (Reason("manifest", f'it has no kernel "{was.kernel}" any more'),)
        alike = [
            ([each for each in variant_differences(was, variant) if each.kind != "option"], variant)
            for variant in self.expansion.variants
            if variant.kernel == was.kernel
        ]
        return tuple(self._placed(*min(alike, key=lambda found: len(found[0])))) if alike else ()

    def _placed(self, reasons: Iterable[Reason], variant: Variant) -> list[Reason]:
        """Reasons with the lines that they are about: of the manifest; of the source for defaults of parameters."""
        kernel = {each.name: each for each in self.manifest.kernels}.get(variant.kernel)
        found: list[Reason] = []
        for reason in reasons:
            if kernel and reason.key[:1] == ("config",) and reason.key[-1] in dict(kernel.defaults):
                reason = replace(reason, kind="source", place=self._shown(kernel.source))
            elif reason.key:
                reason = replace(reason, place=self._line(kernel, reason.key, variant))
            elif reason.place:
                reason = replace(reason, place=self._shown(reason.place))
            found.append(reason)
        return found

    def _shown(self, place: str) -> str:
        """A place in the project as messages name it."""
        return (self.options.project / place).as_posix()

    @cached_property
    def _lines(self) -> Mapping[KeyPath, int]:
        return parsed((self.options.project / builder.MANIFEST).read_bytes(), self.options.display)[1]

    def _line(self, kernel: Kernel | None, key: Sequence[str], variant: Variant) -> str:
        """The file and line of a key of a kernel's table, or of the package's."""
        path: KeyPath = ("package", *key)
        if key[0] != "archs" and kernel is not None:
            entry = (_config_of(kernel, variant),) if key[0] == "config" else ()
            path = ("kernel", self.manifest.kernels.index(kernel), key[0], *entry, *key[1:])
        return f"{self.options.display}:{line_of(self._lines, path)}"


def _config_of(kernel: Kernel, variant: Variant) -> int:
    """The place of the configuration that a variant has, among those written."""
    values = variant.values
    for place, config in enumerate(kernel.configs):
        is_alike = config.options.tags == variant.options.tags and config.guards == variant.guards
        if is_alike and all(values.get(name) == value for name, value in config.constexprs):
            return place
    return 0


def is_cached(answer: Answer, get: Callable[[str], object]) -> bool:
    """Whether the cubin that a variant needs is in the cache, of which `get` looks up a key."""
    return bool(answer.identity) and get(answer.identity) is not None
