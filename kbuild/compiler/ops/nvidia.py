"""Operations of NVIDIA's newer architectures (`ttng`): products by warpgroups, which run while the threads go on."""

from __future__ import annotations

from kbuild.compiler.ir.core import Op, Trait, Value
from kbuild.compiler.ir.types import Type

READS, WRITES = Trait.READS, Trait.WRITES


class WarpGroupDot(Op, name="ttng.warp_group_dot", traits=READS | Trait.COLLECTIVE):
    """a·b + c by wgmma: `a` a tile of shared memory or a tensor, `b` a tile of shared memory, `atom` the instruction.

    With `is_async` the result is there, and the operands may be overwritten, only after a `ttng.warp_group_dot_wait`
    that covers it; until then it may be handed on, and be `c` of another such product.
    """

    a: Value
    b: Value
    c: Value
    atom: str
    is_async: bool = False
    input_precision: str = "tf32"
    max_num_imprecise_acc: int = 0

    def infer(self) -> list[Type]:
        return [self.c.type]

    def has(self, trait: Trait) -> bool:
        """A product in flight is ordered with the waits, like a write."""
        return super().has(trait) or (self.is_async and trait is WRITES)


class WarpGroupDotWait(Op, name="ttng.warp_group_dot_wait", traits=WRITES | Trait.COLLECTIVE):
    """Waits until at most `pendings` of the warpgroup's products are in flight.  `values` are results of products that
    have ended then, and are to be used through the results of this operation."""

    values: tuple[Value, ...] = ()
    pendings: int = 0

    def infer(self) -> list[Type]:
        return [value.type for value in self.values]


class FenceAsyncShared(Op, name="ttng.fence_async_shared", traits=WRITES):
    """What the thread has written to shared memory is seen by the units that read it asynchronously, wgmma and TMA, once
    they start after a barrier."""
