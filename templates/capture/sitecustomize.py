"""The first module that a captured process imports: `kbuild capture` puts this folder in front of PYTHONPATH.

It has kbuild record what Triton is asked for, if KBUILD_CAPTURE says where, and goes on with the `sitecustomize` that the
environment has itself.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _without_this_folder():
    return [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]


def _next():
    """The `sitecustomize` that would have been imported without this one."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _without_this_folder())
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


class _Kbuild:
    """Finds the recorder in the kbuild that captures, whose folder KBUILD_CAPTURE_HOME names, whichever kbuild the
    environment has, or none."""

    def __init__(self, is_first):
        self.is_first = is_first

    def find_spec(self, name, path=None, target=None):
        home = os.environ.get("KBUILD_CAPTURE_HOME", "")
        if name == "kbuild.aot.capture" if self.is_first else name in ("kbuild", "kbuild.aot"):
            return importlib.machinery.PathFinder.find_spec(name, [os.path.join(home, *name.split(".")[:-1])])
        return None


def _install():
    folder = os.environ.get("KBUILD_CAPTURE", "")
    if not folder:
        return
    sys.meta_path.insert(0, _Kbuild(True))
    sys.meta_path.append(_Kbuild(False))
    try:
        from kbuild.aot.capture.hook.install import install
    except ImportError as error:  # As with a Python that kbuild does not run on.
        print(f"kbuild capture: {sys.executable} records nothing: {error}", file=sys.stderr)
        return
    install(folder, os.environ.get("KBUILD_CAPTURE_DEVICE", ""))


_install()
_next()
