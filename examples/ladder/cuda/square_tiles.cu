// Step 5: a thread computes a square of TM x TN elements of C.
//
// Per k it loads TM + TN numbers from shared memory into registers for TM · TN multiply-adds: with 8 x 8, a quarter of a
// load for each.  Its rows are a column of A's tile, its columns lie side by side in B's.

#include "tiles.cuh"

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM / TM * (BN / TN), 2)
    square_tiles(const float *A, const float *B, float *C, int M, int N, int K) {
  constexpr int THREADS = BM / TM * (BN / TN);
  __shared__ float a_tile[BM][BK];
  __shared__ float b_tile[BK][BN];
  const int x = threadIdx.x % (BN / TN), y = threadIdx.x / (BN / TN);
  A += (long long)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (long long)(blockIdx.y * BM + y * TM) * N + blockIdx.x * BN + x * TN;
  const Share<BM, BK, 1, THREADS> a_share;
  const Share<BK, BN, 1, THREADS> b_share;
  A += (long long)a_share.row * K + a_share.column;
  B += (long long)b_share.row * N + b_share.column;
  float sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
    for (int v = 0; v < a_share.COUNT; ++v)
      a_tile[a_share.row + v * a_share.STEP][a_share.column] = A[(long long)(v * a_share.STEP) * K];
#pragma unroll
    for (int v = 0; v < b_share.COUNT; ++v)
      b_tile[b_share.row + v * b_share.STEP][b_share.column] = B[(long long)(v * b_share.STEP) * N];
    A += BK;
    B += (long long)BK * N;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      float a[TM], b[TN];
#pragma unroll
      for (int m = 0; m < TM; ++m)
        a[m] = a_tile[y * TM + m][k];
#pragma unroll
      for (int n = 0; n < TN; ++n)
        b[n] = b_tile[k][x * TN + n];
      multiply_add(sum, a, b);
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < TM; ++m)
#pragma unroll
    for (int n = 0; n < TN; ++n)
      C[(long long)m * N + n] = sum[m][n];
}
