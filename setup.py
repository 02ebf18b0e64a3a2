"""What pyproject.toml cannot say: the templates beside the package are installed within it, as kbuild/templates."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["kbuild", "kbuild.*"]), "kbuild.templates"],
    package_dir={"kbuild.templates": "templates"},
    package_data={
        "kbuild.templates": ["*.j2", "*.c", "*.h"],
        "kbuild": ["py.typed", "aot/client.c"],
        "kbuild.emulator.driver": ["*.c"],
    },
)
