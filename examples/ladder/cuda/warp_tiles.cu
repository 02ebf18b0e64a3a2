// Step 7: a warp computes a tile of WM x WN, in which its lanes stand in 4 rows of 8.
//
// In step 6 the lanes that read one row of B's tile together were 32 bytes apart, so that they met in the same banks of
// shared memory.  Here lane (r, c) has rows r · 4 + (0 … 3) of every 16, and columns c · 4 + (0 … 3) of every 32: the eight
// vectors of a row are 128 bytes side by side, one for each bank, and rows of A are read by eight lanes at once.

#include "tiles.cuh"

template <int BM, int BN, int BK, int WM, int WN>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, 2)
    warp_tiles(const float *A, const float *B, float *C, int M, int N, int K) {
  constexpr int THREADS = BM / WM * (BN / WN) * 32;
  constexpr int TM = WM / 4, TN = WN / 8;
  __shared__ __align__(16) float a_tile[BK][BM];
  __shared__ __align__(16) float b_tile[BK][BN];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = warp / (BN / WN) * WM + lane / 8 * 4;
  const int column = warp % (BN / WN) * WN + lane % 8 * 4;
  A += (long long)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (long long)(blockIdx.y * BM + row) * N + blockIdx.x * BN + column;
  const Share<BM, BK, 4, THREADS> a_share;
  const Share<BK, BN, 4, THREADS> b_share;
  A += (long long)a_share.row * K + a_share.column;
  B += (long long)b_share.row * N + b_share.column;
  float sum[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
#pragma unroll
    for (int v = 0; v < a_share.COUNT; ++v) {
      const float4 a = vector(&A[(long long)(v * a_share.STEP) * K]);
      store_column(&a_tile[a_share.column][a_share.row + v * a_share.STEP], BM, a);
    }
#pragma unroll
    for (int v = 0; v < b_share.COUNT; ++v)
      vector(&b_tile[b_share.row + v * b_share.STEP][b_share.column]) = vector(&B[(long long)(v * b_share.STEP) * N]);
    A += BK;
    B += (long long)BK * N;
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      float a[TM], b[TN];
      load_strided<16>(a, &a_tile[k][row]);
      load_strided<32>(b, &b_tile[k][column]);
      multiply_add(sum, a, b);
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < TM; ++m)
#pragma unroll
    for (int n = 0; n < TN; n += 4)
      vector(&C[(long long)(m / 4 * 16 + m % 4) * N + n / 4 * 32]) = vector(&sum[m][n]);
}
