// Step 9: cp.async copies from global to shared memory, several tiles ahead and past the registers, and tiles are larger.
//
// The copies move 16 bytes as they lie, so that A's tile is no longer transposed: a thread reads four k of each of its rows
// at a time.  Rows are four elements longer than they need to be, so that the four rows that a warp reads together
// begin in different banks.  With no tile in registers on its way, a thread can compute 16 x 8 elements: 24 loads for
// 512 multiply-adds, where step 8 has 16 for 256.

#include "tiles.cuh"

__device__ __forceinline__ void copy_async(float *to, const float *from) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

template <int BM, int BN, int BK, int WM, int WN, int STAGES>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32)
    async_copies(const float *A, const float *B, float *C, int M, int N, int K) {
  constexpr int THREADS = BM / WM * (BN / WN) * 32;
  constexpr int TM = WM / 4, TN = WN / 8, A_ROW = BK + 4;
  extern __shared__ __align__(16) float shared[];
  float(*a_tile)[BM][A_ROW] = reinterpret_cast<float(*)[BM][A_ROW]>(shared);
  float(*b_tile)[BK][BN] = reinterpret_cast<float(*)[BK][BN]>(shared + STAGES * BM * A_ROW);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / (BN / WN) * WM + lane / 8;
  const int column = warp % (BN / WN) * WN + lane % 8 * 4;
  const Share<BM, BK, 4, THREADS> a_share;
  const Share<BK, BN, 4, THREADS> b_share;
  A += (long long)(blockIdx.y * BM + a_share.row) * K + a_share.column;
  B += (long long)b_share.row * N + blockIdx.x * BN + b_share.column;
  C += (long long)(blockIdx.y * BM + row) * N + blockIdx.x * BN + column;

  int left = K;  // of the rows of A, to be copied
  auto copy = [&](int stage) {
    if (left > 0) {
#pragma unroll
      for (int v = 0; v < a_share.COUNT; ++v)
        copy_async(&a_tile[stage][a_share.row + v * a_share.STEP][a_share.column], &A[(long long)(v * a_share.STEP) * K]);
#pragma unroll
      for (int v = 0; v < b_share.COUNT; ++v)
        copy_async(&b_tile[stage][b_share.row + v * b_share.STEP][b_share.column], &B[(long long)(v * b_share.STEP) * N]);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");  // Empty at the end, so that groups are counted alike.
    left -= BK;
    A += BK;
    B += (long long)BK * N;
  };

  float sum[TM][TN] = {};
  for (int stage = 0; stage < STAGES - 1; ++stage)
    copy(stage);
  int stage = 0;
  for (int k0 = 0; k0 < K; k0 += BK) {
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();  // All copies of this tile have come, and all threads have left the tile that is overwritten next.
    copy(stage == 0 ? STAGES - 1 : stage - 1);
#pragma unroll
    for (int k = 0; k < BK; k += 4) {
      float4 a[TM];
#pragma unroll
      for (int m = 0; m < TM; ++m)
        a[m] = vector(&a_tile[stage][row + 4 * m][k]);
      multiply_add_four(sum, a, &b_tile[stage][k][column], BN);
    }
    stage = stage == STAGES - 1 ? 0 : stage + 1;
  }
#pragma unroll
  for (int m = 0; m < TM; ++m)
#pragma unroll
    for (int n = 0; n < TN; n += 4)
      vector(&C[(long long)(4 * m) * N + n / 4 * 32]) = vector(&sum[m][n]);
}
