"""A program that launches kernels through the stand-in of Triton, for tests of `bench/others/timed.py`: as text.

Torch is that of the CPU, with what the hook asks of CUDA put in; Triton's kernels and ours are functions of Python.
"""

from __future__ import annotations

LIBRARY = """\
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)


@triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + places, 2 * tl.load(x + places, mask=places < n), mask=places < n)


@triton.jit
def wrong(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)


@triton.jit
def unstable(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 6.0)


@triton.jit
def poisoned(x, BLOCK: tl.constexpr):
    for i in range(2):
        pass
    tl.store(x + tl.arange(0, BLOCK), i)


@triton.jit
def refused(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), tl.no_such_function(BLOCK))


@triton.jit
def hasty(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 3.0)


@triton.jit
def counted(x, done, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), tl.atomic_add(done, 1.0))


@triton.jit
def lost(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 5.0)


@triton.jit
def deadly(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 4.0)
"""

PROGRAM = """\
import os, subprocess, sys, time
from types import SimpleNamespace

import torch
from triton import compiler

import kbuild
from library import add, counted, deadly, double, hasty, lost, poisoned, refused, unstable, wrong


class Event:
    def __init__(self, enable_timing):
        pass

    def record(self):
        self.time = time.perf_counter()

    def query(self):
        return False

    def elapsed_time(self, end):
        return 1e3 * (end.time - self.time)


empty = torch.empty
torch.empty = lambda *size, device=None, **how: empty(1, **how) if device == "cuda" else empty(*size, **how)
torch.cuda.Event, torch.cuda.synchronize = Event, lambda: None
torch.cuda.is_current_stream_capturing = lambda: False
emptied = []
torch.cuda.empty_cache = lambda: emptied.append(True)


raised = [kbuild.KbuildError("no launch of this\\nand more"), torch.OutOfMemoryError("too much")]


def fails(*_):
    raise raised.pop(0)


def lose():
    torch.cuda.synchronize = fails
    raised[:] = [RuntimeError("an illegal access")] * 2
    fails()


def count(x, done):
    assert not done, "the memory is as it was before each launch"
    x.fill_(done.item())
    done += 1


times = []


def change(x, BLOCK):
    times.append(6.0)
    x.fill_(sum(times))


theirs = {
    "unstable": change,
    "add": lambda x, y, out, n, BLOCK: out.copy_(x + y),
    "double": lambda x, n, BLOCK: x.mul_(2),
    "wrong": lambda x, BLOCK: x.fill_(1),
    "poisoned": lambda x, BLOCK: x.fill_(2),
    "refused": lambda x, BLOCK: x.fill_(2),
    "hasty": lambda x, BLOCK: x.fill_(3),
    "counted": lambda x, done, BLOCK: count(x, done),
    "deadly": lambda x, BLOCK: x.fill_(4),
    "lost": lambda x, BLOCK: x.fill_(5),
}
ours = {
    "unstable": lambda x: x.fill_(9.0),
    "add": lambda x, y, out, n: (time.sleep(0.001), out.copy_(x + y)),
    "double": lambda x, n: x.mul_(2),
    "wrong": lambda x: x.fill_(1.5),
    "poisoned": lambda x: x.fill_(1),
    "hasty": fails,
    "counted": lambda x, done: count(x, done),
    "deadly": lambda x: os._exit(3),
    "lost": lambda x: lose(),
}
compiler.effects.update(theirs)
compiler.CompiledKernel.asm = property(lambda self: {"ttir": f"{self.src.name}: ub.{self.src.name[:6]} : i32"})


class Loaded:
    def __init__(self, artifact):
        self.name = artifact.metadata.name

    def __getitem__(self, grid):
        return lambda *args, stream: ours[self.name](*args)


kbuild.load = Loaded
x, y = torch.arange(256.0), torch.ones(256)
for n in (256, 256, 200):
    out = torch.zeros(256)
    add[(n // 64,)](x, y, out, n, BLOCK=64)
    assert (out == x + y).all()
double[lambda meta: (256 // meta["BLOCK"],)](x, 256)
assert (x == torch.arange(256.0) * 2 ** 3).all(), "two trials and the launch, each of which ran once"
for kernel, value in ((wrong, 1), (refused, 2), (hasty, 3)):
    held = torch.zeros(16)
    kernel[(1,)](held, BLOCK=16)
    assert (held == value).all(), "what Triton's kernel makes of it"
unstable[(1,)](torch.zeros(16), BLOCK=16)
poisoned[(1,)](torch.zeros(16), BLOCK=16)
hasty[(2,)](torch.zeros(16), BLOCK=16)
sys.modules["timed_hook"].MOST_BYTES = 1 << 20
hasty[(3,)](torch.zeros(1 << 20), BLOCK=16)
held = torch.ones(1 << 16), torch.zeros(1)
sys.modules["timed_hook"].LARGE = 1 << 18
counted[(1,)](*held, BLOCK=16)
assert not held[0].any() and held[1].item() == 1
if sys.argv[1:] == ["lost"]:
    for size in (1, 2):
        lost[(size,)](torch.zeros(16), BLOCK=16)
elif sys.argv[1:] == ["child"]:
    deadly[(1,)](torch.zeros(16), BLOCK=16)
else:
    assert subprocess.run([sys.executable, __file__, "child"]).returncode == 3
assert sys.customized, "by the environment's own sitecustomize"
print("done", len(emptied))
sys.exit(5)
"""
