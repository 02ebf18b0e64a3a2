"""`python -m kbuild`."""

from kbuild.cli import run

if __name__ == "__main__":
    run()
