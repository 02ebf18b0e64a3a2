"""A wheel is a project: its metadata, its own modules and data, its licences; also the editable form and the sdist."""

from __future__ import annotations

import email
import platform
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from kbuild.aot import backend
from kbuild.aot.build import project as builder
from kbuild.aot.manifest.load import load
from kbuild.errors import ErrorGroup, KbuildError, ToolError

PYPROJECT = """\
[build-system]
requires = ["kbuild"]
build-backend = "kbuild.aot.backend"

[project]
name = "Fast-Norms"
version = "1.2"
description = "Norms, compiled ahead of time"
readme = "README.md"
requires-python = ">=3.11"
license = "MIT"
license-files = ["LICENSE", "legal/*.txt"]
authors = [{ name = "Ada", email = "ada@example.org" }]
keywords = ["cuda", "norm"]
classifiers = ["Topic :: Scientific/Engineering"]
dependencies = ["numpy>=1.26"]

[project.optional-dependencies]
torch = ["torch>=2.6"]

[project.urls]
Homepage = "https://example.org"

[project.scripts]
fast-norms = "fast_norms.cli:main"

[project.entry-points."plugins"]
norms = "fast_norms:scale"
"""


@pytest.fixture
def here(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with modules and data of its own, whose kernels are the package `fast_norms.kernels`; the
    compiler is the fake one."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("KBUILD_DISABLE_CACHE", "1")
    monkeypatch.setattr(builder, "COMPILER", "tests.aot.build.fake_compiler:compile")
    monkeypatch.setattr(builder, "SOURCE_DIGEST", "tests.aot.build.fake_compiler:source_digest")
    manifest = (project / "kernels.toml").read_text()
    manifest = manifest.replace('version = "0.1.0"\n', 'packages = ["src/fast_norms"]\n')
    (project / "kernels.toml").write_text(manifest.replace('"demo_kernels"', '"fast_norms.kernels"'))
    (project / "pyproject.toml").write_text(PYPROJECT)
    texts = {
        "README.md": "# Fast norms\n\nΣ of squares.\n",
        "LICENSE": "MIT licence\n",
        "legal/others.txt": "BSD\n",
        "src/fast_norms/__init__.py": "from fast_norms.kernels import scale\n",
        "src/fast_norms/cli.py": "def main(): ...\n",
        "src/fast_norms/py.typed": "",
        "src/fast_norms/data/shapes.json": "[1, 2]\n",
        "src/fast_norms/__pycache__/cli.cpython-311.pyc": "bytecode",
        "src/fast_norms/.hidden": "",
        "src/other.py": "",
        "tests/test_norms.py": "",
    }
    for name, text in texts.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    return project


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata_of(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_string(archive.read(name).decode())


def built(folder: Path) -> Path:
    return folder / backend.build_wheel(str(folder))


def changed(path: Path, old: str, new: str) -> None:
    """Put a text in place of another, which has to be there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def mistake(here: Path) -> str:
    """The one mistake that building the project reports."""
    with pytest.raises(KbuildError) as caught:
        backend.build_wheel(str(here / "out"))
    (error,) = caught.value.errors()
    return str(error)


def test_a_wheel_has_all_that_the_project_table_says(here: Path, tmp_path: Path) -> None:
    wheel = built(tmp_path / "out")
    assert wheel.name.startswith("fast_norms-1.2-cp310-abi3-")
    found = metadata_of(wheel)
    assert (found["Name"], found["Version"]) == ("Fast-Norms", "1.2")
    assert found["Summary"] == "Norms, compiled ahead of time"
    assert found["License-Expression"] == "MIT"
    assert found.get_all("License-File") == ["LICENSE", "legal/others.txt"]
    assert found["Author-Email"] == "Ada <ada@example.org>"
    assert found["Keywords"] == "cuda,norm"
    assert found.get_all("Classifier") == ["Topic :: Scientific/Engineering"]
    assert found["Requires-Python"] == ">=3.11"
    assert found.get_all("Requires-Dist") == ["numpy>=1.26", 'torch>=2.6; extra == "torch"']
    assert found["Provides-Extra"] == "torch"
    assert found["Project-URL"] == "Homepage, https://example.org"
    assert found["Requires-External"].startswith("nvidia-driver")
    assert found["Description-Content-Type"] == "text/markdown"
    assert found.get_payload() == "# Fast norms\n\nΣ of squares.\n"
    with zipfile.ZipFile(wheel) as archive:
        points = archive.read("fast_norms-1.2.dist-info/entry_points.txt").decode()
        generator = archive.read("fast_norms-1.2.dist-info/WHEEL").decode().splitlines()[1]
    assert points == (
        "[console_scripts]\nfast-norms = fast_norms.cli:main\n\n[plugins]\nnorms = fast_norms:scale\n"
    )
    assert generator == "Generator: kbuild 0.1.0"


def test_a_wheel_has_the_projects_modules_and_data_with_the_kernels_among_them(
    here: Path, tmp_path: Path
) -> None:
    names = names_in(built(tmp_path / "out"))
    own = {name for name in names if name.startswith("fast_norms/") and "/kernels/" not in name}
    assert own == {
        "fast_norms/__init__.py",
        "fast_norms/cli.py",
        "fast_norms/data/shapes.json",
        "fast_norms/py.typed",
    }
    assert {"fast_norms/kernels/__init__.py", "fast_norms/kernels/_launcher.abi3.so"} <= names
    assert {
        "fast_norms-1.2.dist-info/licenses/LICENSE",
        "fast_norms-1.2.dist-info/licenses/legal/others.txt",
    } <= names
    assert not any("other.py" in name or "test_norms" in name for name in names)


def test_include_adds_single_files(here: Path, tmp_path: Path) -> None:
    changed(here / "kernels.toml", "packages = [", 'include = ["src/other.py", "legal/*.txt"]\npackages = [')
    names = names_in(built(tmp_path / "out"))
    assert {"other.py", "legal/others.txt"} <= names


def test_the_kernels_of_an_installed_wheel_are_imported_from_inside_the_package(
    here: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(built(tmp_path / "out")) as archive:
        archive.extractall(tmp_path / "site")
    code = "import fast_norms, fast_norms.kernels as k; print(k.__name__, fast_norms.scale is k.scale)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "fast_norms.kernels True\n", done.stderr


def test_an_editable_installation_imports_what_is_edited(here: Path, tmp_path: Path) -> None:
    assert backend.get_requires_for_build_editable() == []
    wheel = tmp_path / "out" / backend.build_editable(str(tmp_path / "out"))
    assert not any(name.startswith("fast_norms/") for name in names_in(wheel))
    ignored = (here / "src/fast_norms/kernels/.gitignore").read_text().splitlines()
    assert {"/.gitignore", "/__init__.py", "/_launcher.abi3.so", "/cubins/sm_90.kbz"} <= {*ignored}
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
        assert archive.read("fast_norms.pth").decode() == f"{here.resolve()}/src\n"
    (here / "src/fast_norms/cli.py").write_text("EDITED = 7\n")
    code = f"import site; site.addsitedir({str(tmp_path / 'site')!r})\n"
    code += "import fast_norms.cli; print(fast_norms.cli.EDITED, fast_norms.scale.__name__)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    assert done.stdout == "7 scale\n", done.stderr
    # What that has put into the project is not taken for modules of its own.
    (here / "src/fast_norms/kernels/own.py").write_text("")
    names = names_in(built(tmp_path / "again"))
    assert {"fast_norms/kernels/own.py", "fast_norms/kernels/__init__.py"} <= names


def test_kernels_beside_the_projects_package_stay_in_the_editable_wheel(here: Path, tmp_path: Path) -> None:
    changed(here / "kernels.toml", '"fast_norms.kernels"', '"norm_kernels"')
    wheel = tmp_path / "out" / backend.build_editable(str(tmp_path / "out"))
    assert {"norm_kernels/__init__.py", "fast_norms.pth"} <= names_in(wheel)
    assert not (here / "src/norm_kernels").exists()


def test_an_sdist_has_what_the_wheel_is_made_of(here: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    name = backend.build_sdist(str(tmp_path / "out"))
    assert name == "fast_norms-1.2.tar.gz"
    with tarfile.open(tmp_path / "out" / name) as archive:
        names = {member.removeprefix("fast_norms-1.2/") for member in archive.getnames()}
        information = archive.extractfile("fast_norms-1.2/PKG-INFO")
        assert information is not None
        assert email.message_from_bytes(information.read())["Requires-Dist"] == "numpy>=1.26"
    assert {
        "README.md",
        "LICENSE",
        "legal/others.txt",
        "pyproject.toml",
        "kernels.toml",
        "kernels/scale.py",
        "src/fast_norms/__init__.py",
        "src/fast_norms/data/shapes.json",
    } <= names
    assert not any("__pycache__" in name or name.startswith("tests/") for name in names)


def test_a_changed_module_makes_another_wheel(here: Path, tmp_path: Path) -> None:
    first = built(tmp_path / "out").read_bytes()
    assert built(tmp_path / "out").read_bytes() == first
    (here / "src/fast_norms/cli.py").write_text("def main(): print(1)\n")
    with zipfile.ZipFile(built(tmp_path / "out")) as archive:
        assert archive.read("fast_norms/cli.py") == b"def main(): print(1)\n"


def test_wheels_for_other_machines_are_left_alone(here: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    before = (
        "1.2-cp310-abi3-manylinux_2_28_aarch64",
        "1.2-cp310-abi3-win_amd64",
        "1.1-cp310-abi3-linux_x86_64",
    )
    for tags in before:
        (tmp_path / f"out/fast_norms-{tags}.whl").touch()
    (tmp_path / f"out/fast_norms-1.2-cp310-abi3-manylinux_2_99_{platform.machine()}.whl").touch()
    wheel = built(tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        wheel.name,
        *(f"fast_norms-{tags}.whl" for tags in before),
    }


def test_values_that_the_manifest_gives_are_dynamic(here: Path, tmp_path: Path) -> None:
    changed(here / "pyproject.toml", 'version = "1.2"\n', 'dynamic = ["version"]\n')
    changed(here / "kernels.toml", "packages = [", 'version = "2.0"\npackages = [')
    assert metadata_of(built(tmp_path / "out"))["Version"] == "2.0"


def test_without_a_pyproject_the_manifest_says_it_all(here: Path, tmp_path: Path) -> None:
    (here / "pyproject.toml").unlink()
    changed(here / "kernels.toml", "packages = [", 'version = "2.0"\ndistribution = "norms"\npackages = [')
    wheel = built(tmp_path / "out")
    found = metadata_of(wheel)
    assert wheel.name.startswith("norms-2.0-") and found["Name"] == "norms"
    assert found.get_all("License-File") == ["LICENSE"]  # Found by its name.
    assert "NVIDIA GPU" in str(found.get_payload())


def test_a_pyproject_of_another_backend_is_not_read(here: Path) -> None:
    changed(here / "pyproject.toml", "kbuild.aot.backend", "setuptools.build_meta")
    found = mistake(here)
    assert found.startswith('kernels.toml:2: error: package: missing key "version"\n')
    assert found.endswith("help: here, or as project.version in pyproject.toml")


@pytest.mark.parametrize(
    "file, old, new, message",
    [
        (
            "kernels.toml",
            "packages = [",
            'version = "1.3"\npackages = [',
            'kernels.toml:4: error: package.version: pyproject.toml:7 has project.version = "1.2"',
        ),
        ("kernels.toml", "src/fast_norms", "src/norms", 'package.packages[0]: no folder "src/norms"'),
        ("kernels.toml", "src/fast_norms", "../norms", '"../norms" is not a path within the project'),
        ("kernels.toml", "packages", "include", "package.include[0]: no file matches"),
        ("kernels.toml", "fast_norms.kernels", "json.kernels", '"json" is a module of Python itself'),
        ("kernels.toml", "fast_norms.kernels", "fast_norms.", '"" is not a name'),
        ("pyproject.toml", '"README.md"', '"READ.md"', "pyproject.toml:9: "),
        ("pyproject.toml", '["numpy>=1.26"]', '["numpy>>1"]', "pyproject.toml:16: "),
        ("pyproject.toml", 'license = "MIT"', 'dynamic = ["classifiers"]', "pyproject.toml:11: "),
        ("pyproject.toml", "keywords =", "keyword =", "pyproject.toml:5: error: Extra keys present"),
        ("pyproject.toml", "[project.urls]", "[project.urls", "pyproject.toml:21: "),
    ],
)
def test_mistakes_are_reported_with_their_lines(
    here: Path, file: str, old: str, new: str, message: str
) -> None:
    changed(here / file, old, new)
    assert message in mistake(here)


def test_a_module_where_the_kernels_go_is_refused(here: Path, tmp_path: Path) -> None:
    (here / "norm_kernels").mkdir()
    (here / "norm_kernels.py").write_text("")
    changed(here / "kernels.toml", '"fast_norms.kernels"', '"fast_norms"')
    with pytest.raises((ToolError, ErrorGroup), match="the project has one of its own"):
        built(tmp_path / "out")


def test_the_manifest_alone_loads_as_well(here: Path) -> None:
    package = load(here / "kernels.toml").package
    assert (package.version, package.distribution, package.path) == (
        "1.2",
        "Fast-Norms",
        "fast_norms/kernels",
    )
