"""Starts an action on another machine, with the kbuild installed there if it is the build's, or else with the build's
own, which comes with the action.  Run as a file, before any kbuild can be imported.
"""

import json
import os
import sys
import zipfile


def main() -> int:
    """Does the action in the current directory; the exit code."""
    root = os.getcwd()
    with open("action.json", "rb") as stream:
        wanted = json.load(stream)["kbuild"]
    try:
        from kbuild.aot.identity import kbuild_identity  # Installed here, or not.

        is_the_same = kbuild_identity()["digest"] == wanted
    except Exception:  # Whatever is wrong with it, it is not the one.
        is_the_same = False
    if not is_the_same:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kbuild"]:
            del sys.modules[name]
        code = os.path.join(root, "code")
        with zipfile.ZipFile("kbuild.zip") as packed:
            packed.extractall(code)
        sys.path.insert(0, code)
    from kbuild.aot.remote import action  # Only now is known which.

    return action.main()


if __name__ == "__main__":
    sys.exit(main())
