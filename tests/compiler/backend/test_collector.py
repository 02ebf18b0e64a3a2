"""When Python gives memory back while a kernel is compiled."""

from __future__ import annotations

import gc

import pytest

from kbuild.compiler.backend.collector import collected_later


def test_garbage_is_collected_after_a_compilation_and_not_where_the_caller_does_not_want_it() -> None:
    with collected_later():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError), collected_later():
        raise ValueError
    assert gc.isenabled()
    gc.disable()
    try:
        with collected_later():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
