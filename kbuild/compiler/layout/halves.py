"""The layouts of two tensors joined side by side, and of the halves of one."""

from __future__ import annotations

from kbuild.compiler.layout.linear import LinearLayout
from kbuild.compiler.layout.written import PendingLayout


def joined_layout(layout: LinearLayout) -> LinearLayout:
    """The layout of `tt.join`: a new minor dimension of 2, in the lowest register bit."""
    if isinstance(layout, PendingLayout):
        return PendingLayout.of((*layout.shape, 2), layout.kind)
    spread = {name: tuple(basis * 2 for basis in bases) for name, bases in layout.bases}
    spread["register"] = (1, *spread.get("register", ()))
    return LinearLayout.make((*layout.shape, 2), **spread)


def split_layout(layout: LinearLayout) -> LinearLayout | None:
    """The layout of the halves of `tt.split`, the inverse of `joined_layout`; None when another bit than a
    register's chooses the half."""
    if isinstance(layout, PendingLayout):
        return PendingLayout.of(layout.shape[:-1], layout.kind)
    halves = dict(layout.bases)
    if any(basis & 1 for name, bases in halves.items() for basis in bases if name != "register"):
        return None
    registers = halves.get("register", ())
    if 1 not in registers or sum(basis & 1 for basis in registers) != 1:
        return None
    rest = {
        name: tuple(b // 2 for b in bases if not (name == "register" and b == 1))
        for name, bases in halves.items()
    }
    return LinearLayout.make(layout.shape[:-1], **rest)
