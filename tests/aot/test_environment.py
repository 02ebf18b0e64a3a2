"""What kbuild sets for the programs that it starts, and what it leaves to the user."""

from __future__ import annotations

from kbuild.aot.environment import prepare


def test_large_pages_are_asked_for_unless_the_user_has_a_say() -> None:
    empty: dict[str, str] = {}
    prepare(empty)
    assert "hugetlb=1" in empty["GLIBC_TUNABLES"]
    own = {"GLIBC_TUNABLES": "glibc.malloc.check=3"}
    prepare(own)
    assert own == {"GLIBC_TUNABLES": "glibc.malloc.check=3"}
