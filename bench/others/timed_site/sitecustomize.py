"""The first module that a process of `timed.py`'s command imports: this folder stands in front of PYTHONPATH.

It has the process run its kernels twice, if KBUILD_TIMED says where the rows go, by the kbuild of this checkout, and
goes on with the `sitecustomize` that the environment has itself.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
_FOLDERS = [_ROOT, os.path.join(_ROOT, "bench/others"), os.path.join(_ROOT, "bench/speed")]


def _install():
    folder = os.environ.get("KBUILD_TIMED", "")
    if not folder:
        return
    sys.path[:0] = _FOLDERS
    try:
        import timed_hook
    except ImportError as error:  # As with a Python that kbuild does not run on.
        print(f"timed.py: {sys.executable} measures nothing: {error}", file=sys.stderr)
        return
    finally:
        del sys.path[: len(_FOLDERS)]  # They have modules of names that the command's may have.
    timed_hook.install(folder, float(os.environ["KBUILD_TIMED_UNTIL"]), os.environ["KBUILD_TIMED_ONLY"])


def _next():
    folders = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", folders)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_install()
_next()
