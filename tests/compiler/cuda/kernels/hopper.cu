#include <cuda.h>
#include <cuda_fp16.h>
#include <stdint.h>
__device__ __forceinline__ uint32_t smem(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(uint64_t *b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem(b)), "r"(n));
}
__device__ __forceinline__ void expect(uint64_t *b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem(b)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait(uint64_t *b, int phase) {
  asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra "
               "done;\nbra again;\ndone:\n}" ::"r"(smem(b)),
               "r"(phase)
               : "memory");
}
__device__ __forceinline__ void tma(void *dst, const CUtensorMap *map, uint64_t *b, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
               "{%3, %4}], [%2];" ::"r"(smem(dst)),
               "l"(map), "r"(smem(b)), "r"(x), "r"(y)
               : "memory");
}
// y = x, by tiles of 32 x 64.
__global__ void copy(const __grid_constant__ CUtensorMap x, float *y, int rows, int columns) {
  __shared__ alignas(128) float tile[32 * 64];
  __shared__ alignas(8) uint64_t full;
  if (threadIdx.x == 0) {
    init(&full, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    expect(&full, sizeof tile);
    tma(tile, &x, &full, blockIdx.x * 64, blockIdx.y * 32);
  }
  wait(&full, 0);
  for (int i = threadIdx.x; i < 32 * 64; i += blockDim.x) {
    int r = blockIdx.y * 32 + i / 64, c = blockIdx.x * 64 + i % 64;
    if (r < rows && c < columns) y[r * columns + c] = tile[i];
  }
}
// C[64, 64] = A[64, K] @ B[64, K]^T, one warpgroup; tiles of 64 halves, swizzled by 128 bytes.
__device__ __forceinline__ uint64_t descriptor(const void *p) {
  return ((uint64_t)(smem(p) & 0x3FFFF) >> 4) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}
__global__ void __launch_bounds__(128) gemm(const __grid_constant__ CUtensorMap a,
                                            const __grid_constant__ CUtensorMap b, float *c, int N, int K) {
  __shared__ alignas(1024) __half as[64 * 64], bs[64 * 64];
  __shared__ alignas(8) uint64_t full;
  if (threadIdx.x == 0) {
    init(&full, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  float d[32] = {};
  for (int k = 0, phase = 0; k < K; k += 64, phase ^= 1) {
    if (threadIdx.x == 0) {
      expect(&full, sizeof as + sizeof bs);
      tma(as, &a, &full, k, blockIdx.y * 64);
      tma(bs, &b, &full, k, blockIdx.x * 64);
    }
    wait(&full, phase);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int i = 0; i < 4; ++i)
      asm volatile(
          "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
          "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%"
          "26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, 0;\n}"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
            "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
            "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
            "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
            "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
          : "l"(descriptor(as + 16 * i)), "l"(descriptor(bs + 16 * i)), "r"(1));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  int w = threadIdx.x / 32, l = threadIdx.x % 32;
  for (int j = 0; j < 8; ++j)
    for (int h = 0; h < 2; ++h) {
      int r = blockIdx.y * 64 + w * 16 + h * 8 + l / 4, q = blockIdx.x * 64 + j * 8 + l % 4 * 2;
      c[r * N + q] = d[j * 4 + h * 2];
      c[r * N + q + 1] = d[j * 4 + h * 2 + 1];
    }
}
