"""The package of a build for some of a manifest's architectures: `kbuild wheel --arch sm_90`.

Such a wheel has a version of its own, `1.0+sm90`: the version of the project with a local label (PEP 440) that names
the architectures.

* Installers take `1.0+sm80` and `1.0+sm90` for different versions.  They say that the second replaces the first;
  `pip list`, lock files and `importlib.metadata` tell which is there; and `demo==1.0+sm90` asks for one of them.
* A build tag (PEP 427), `demo-1.0-90-cp310-…`, only breaks ties between wheels of one version.  pip would keep an
  installed `1.0` when it is given the other file, choose the highest tag from an index for every GPU, and prefer
  any tag to none, which is the whole wheel.
* PyPI takes no local versions.  There a wheel for one architecture would come before the whole one, since `==1.0`
  fits `1.0+sm90` too.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kbuild.aot.manifest.model import Package


def partial_package(package: Package, archs: Collection[str]) -> Package:
    """The package with these architectures of its own alone; the same one if they are all."""
    kept = tuple(arch for arch in package.archs if arch in archs)
    if kept == package.archs:
        return package
    label = ".".join(arch.replace("_", "") for arch in kept)
    return replace(
        package,
        version=f"{package.version}{'.' if '+' in package.version else '+'}{label}",
        archs=kept,
        ptx_archs=tuple(arch for arch in package.ptx_archs if arch in kept),
    )
