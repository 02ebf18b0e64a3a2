// Step 10: the copy engine of sm_90 (TMA) fetches whole tiles, asked by one thread.
//
// No thread computes addresses or waits for a copy that it started: a barrier in shared memory counts the bytes that have
// come.  Tiles of A are swizzled in 128 bytes: the vector of four k that row r would have at place p is at p ^ (r % 8), which
// keeps rows in different banks without longer rows.  What lies beyond a matrix comes as zeros, so that all
// sizes are served; rows have to begin at multiples of 16 bytes.

#include <cuda.h>

#include "mbarrier.cuh"
#include "tiles.cuh"

template <int BM, int BN, int BK, int WM, int WN, int STAGES>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32)
    tma_copies(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B, float *C, int M, int N, int K) {
  static_assert(BK == 32, "a row of A's tile is as long as the swizzle: 128 bytes");
  constexpr int WARPS = BM / WM * (BN / WN);
  constexpr int TM = WM / 4, TN = WN / 8;
  constexpr int BYTES = (BM + BN) * BK * sizeof(float);
  extern __shared__ __align__(1024) float shared[];
  float(*a_tile)[BM][BK] = reinterpret_cast<float(*)[BM][BK]>(shared);
  float(*b_tile)[BK][BN] = reinterpret_cast<float(*)[BK][BN]>(shared + STAGES * BM * BK);
  __shared__ __align__(8) unsigned long long full[STAGES], empty[STAGES];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / (BN / WN) * WM + lane / 8;
  const int column = warp % (BN / WN) * WN + lane % 8 * 4;
  const int block_row = blockIdx.y * BM, block_column = blockIdx.x * BN;
  const int tiles = (K + BK - 1) / BK;

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) {
      initialize_barrier(&full[stage], 1);
      initialize_barrier(&empty[stage], WARPS);
    }
    fence_barrier_init();
  }
  __syncthreads();

  auto copy = [&](int stage, int tile) {
    expect_bytes(&full[stage], BYTES);
    copy_tile(&a_tile[stage][0][0], &A, tile * BK, block_row, &full[stage]);
    copy_tile(&b_tile[stage][0][0], &B, block_column, tile * BK, &full[stage]);
  };
  if (threadIdx.x == 0)
    for (int tile = 0; tile < STAGES - 1 && tile < tiles; ++tile)
      copy(tile, tile);

  float sum[TM][TN] = {};
  int stage = 0, phase = 0;  // of the tile that is multiplied
  for (int tile = 0; tile < tiles; ++tile) {
    if (threadIdx.x == 0 && tile + STAGES - 1 < tiles) {
      const int before = stage == 0 ? STAGES - 1 : stage - 1;
      if (tile > 0)  // This stage was read in the iteration before: by all warps, once they have arrived.
        wait(&empty[before], stage == 0 ? phase ^ 1 : phase);
      copy(before, tile + STAGES - 1);
    }
    wait(&full[stage], phase);
#pragma unroll
    for (int k = 0; k < BK; k += 4) {
      float4 a[TM];
#pragma unroll
      for (int m = 0; m < TM; ++m)
        a[m] = vector(&a_tile[stage][row + 4 * m][(k / 4 ^ (row + 4 * m) % 8) * 4]);
      multiply_add_four(sum, a, &b_tile[stage][k][column], BN);
    }
    __syncwarp();
    if (lane == 0)
      arrive(&empty[stage]);
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  }
#pragma unroll
  for (int m = 0; m < TM; ++m)
#pragma unroll
    for (int n = 0; n < TN; n += 4) {
      const int r = block_row + row + 4 * m, c = block_column + column + n / 4 * 32;
      if (r < M && c < N)
        vector(&C[(long long)r * N + c]) = vector(&sum[m][n]);
    }
}
