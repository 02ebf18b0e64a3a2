"""Kernels in the form that `optimize_dot_operands` leaves."""

from __future__ import annotations


def matmul(num_stages: int) -> str:
    """A matrix multiplication of f16 in steps of 32 along K = `n`, A masked along K."""
    return f"""
#b1 = blocked{{sizePerThread=[1,8], threadsPerWarp=[8,4], warpsPerCTA=[4,1], order=[1,0]}}
#b2 = blocked{{sizePerThread=[1,8], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}}
#s1 = swizzled{{vector=8, perPhase=2, maxPhase=4, order=[1,0]}}
#s2 = swizzled{{vector=8, perPhase=1, maxPhase=8, order=[1,0]}}
#mma = mma{{warps=[2,2], instruction=[16,8]}}
#da = dotOperand{{index=0, warps=[2,2], kWidth=2}}
#db = dotOperand{{index=1, warps=[2,2], kWidth=2}}
#ra = slice{{axis=1, size=4, parent=blocked{{sizePerThread=[1,1], threadsPerWarp=[8,4], warpsPerCTA=[4,1], order=[1,0]}}}}
#ra2 = blocked{{sizePerThread=[1,1], threadsPerWarp=[8,4], warpsPerCTA=[4,1], order=[1,0]}}
#ka = blocked{{sizePerThread=[8], threadsPerWarp=[32], warpsPerCTA=[4], order=[0]}}
#ka2 = blocked{{sizePerThread=[1,8], threadsPerWarp=[8,4], warpsPerCTA=[4,1], order=[1,0]}}
#kb = slice{{axis=1, size=8, parent=blocked{{sizePerThread=[1,1], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}}}}
#kb2 = blocked{{sizePerThread=[1,1], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}}
#rb = blocked{{sizePerThread=[8], threadsPerWarp=[32], warpsPerCTA=[4], order=[0]}}
#rb2 = blocked{{sizePerThread=[1,8], threadsPerWarp=[4,8], warpsPerCTA=[4,1], order=[1,0]}}
#ro = slice{{axis=1, size=16, parent=mma{{warps=[2,2], instruction=[16,8]}}}}
#ro2 = linear{{register=[[8,0],[32,0]], lane=[[0,0],[0,0],[1,0],[2,0],[4,0]], warp=[[16,0],[0,0]]}}
#co = slice{{axis=0, size=16, parent=mma{{warps=[2,2], instruction=[8,8]}}}}
#co2 = linear{{register=[[0,1],[0,16],[0,32]], lane=[[0,2],[0,4],[0,0],[0,0],[0,0]], warp=[[0,0],[0,8]]}}
tt.func @matmul(
    %a: !tt.ptr<f16> {{divisibility = 16}}, %b: !tt.ptr<f16> {{divisibility = 16}},
    %out: !tt.ptr<f32> {{divisibility = 16}}, %n: i32 {{divisibility = 16}}
) attributes {{num_warps = 4, num_stages = {num_stages}}} {{
  %c0: i32 = arith.constant {{value = 0}}
  %c32: i32 = arith.constant {{value = 32}}
  %c2048: i32 = arith.constant {{value = 2048}}
  %zero: tensor<64x64xf32, #mma> = arith.constant {{value = 0.0}}
  %other: tensor<64x32xf16, #b1> = arith.constant {{value = 0.0}}
  %ra: tensor<64xi32, #ra> = tt.make_range {{start = 0, end = 64}}
  %ra2: tensor<64x1xi32, #ra2> = tt.expand_dims %ra {{axis = 1}}
  %ns: tensor<64x1xi32, #ra2> = tt.splat %n
  %ran: tensor<64x1xi32, #ra2> = arith.muli %ra2, %ns
  %ra3: tensor<64x32xi32, #b1> = tt.broadcast %ran
  %ka: tensor<32xi32, #ka> = tt.make_range {{start = 0, end = 32}}
  %ka2: tensor<1x32xi32, #ka2> = tt.expand_dims %ka {{axis = 0}}
  %k_offsets: tensor<64x32xi32, #b1> = tt.broadcast %ka2
  %a_offsets: tensor<64x32xi32, #b1> = arith.addi %ra3, %k_offsets
  %kb: tensor<32xi32, #kb> = tt.make_range {{start = 0, end = 32}}
  %kb2: tensor<32x1xi32, #kb2> = tt.expand_dims %kb {{axis = 1}}
  %c64: tensor<32x1xi32, #kb2> = arith.constant {{value = 64}}
  %kbn: tensor<32x1xi32, #kb2> = arith.muli %kb2, %c64
  %kb3: tensor<32x64xi32, #b2> = tt.broadcast %kbn
  %rb: tensor<64xi32, #rb> = tt.make_range {{start = 0, end = 64}}
  %rb2: tensor<1x64xi32, #rb2> = tt.expand_dims %rb {{axis = 0}}
  %rb3: tensor<32x64xi32, #b2> = tt.broadcast %rb2
  %b_offsets: tensor<32x64xi32, #b2> = arith.addi %kb3, %rb3
  %sum, %p, %q: tensor<64x64xf32, #mma>, !tt.ptr<f16>, !tt.ptr<f16> =
      scf.for %c0, %n, %c32, init=[%zero, %a, %b]
      body(%k: i32, %c: tensor<64x64xf32, #mma>, %pa: !tt.ptr<f16>, %pb: !tt.ptr<f16>) {{
    %left: i32 = arith.subi %n, %k
    %lefts: tensor<64x32xi32, #b1> = tt.splat %left
    %m: tensor<64x32xi1, #b1> = arith.cmpi %k_offsets, %lefts {{predicate = "slt"}}
    %pas: tensor<64x32x!tt.ptr<f16>, #b1> = tt.splat %pa
    %a_pointers: tensor<64x32x!tt.ptr<f16>, #b1> = tt.addptr %pas, %a_offsets
    %pbs: tensor<32x64x!tt.ptr<f16>, #b2> = tt.splat %pb
    %b_pointers: tensor<32x64x!tt.ptr<f16>, #b2> = tt.addptr %pbs, %b_offsets
    %x: tensor<64x32xf16, #b1> = tt.load %a_pointers, mask=%m, other=%other
    %y: tensor<32x64xf16, #b2> = tt.load %b_pointers
    %sx: !ttg.memdesc<64x32xf16, #s1> = ttg.local_alloc src=%x
    %sy: !ttg.memdesc<32x64xf16, #s2> = ttg.local_alloc src=%y
    %fx: tensor<64x32xf16, #da> = ttg.local_load %sx
    %fy: tensor<32x64xf16, #db> = ttg.local_load %sy
    %d: tensor<64x64xf32, #mma> = tt.dot %fx, %fy, %c {{atom = "m16n8k16.f16"}}
    %pa_next: !tt.ptr<f16> = tt.addptr %pa, %c32
    %pb_next: !tt.ptr<f16> = tt.addptr %pb, %c2048
    scf.yield %d, %pa_next, %pb_next
  }}
  %ro: tensor<64xi32, #ro> = tt.make_range {{start = 0, end = 64}}
  %ro2: tensor<64x1xi32, #ro2> = tt.expand_dims %ro {{axis = 1}}
  %c64o: tensor<64x1xi32, #ro2> = arith.constant {{value = 64}}
  %ron: tensor<64x1xi32, #ro2> = arith.muli %ro2, %c64o
  %ro3: tensor<64x64xi32, #mma> = tt.broadcast %ron
  %co: tensor<64xi32, #co> = tt.make_range {{start = 0, end = 64}}
  %co2: tensor<1x64xi32, #co2> = tt.expand_dims %co {{axis = 0}}
  %co3: tensor<64x64xi32, #mma> = tt.broadcast %co2
  %out_offsets: tensor<64x64xi32, #mma> = arith.addi %ro3, %co3
  %outs: tensor<64x64x!tt.ptr<f32>, #mma> = tt.splat %out
  %out_pointers: tensor<64x64x!tt.ptr<f32>, #mma> = tt.addptr %outs, %out_offsets
  tt.store %out_pointers, %sum
  tt.return
}}
"""
