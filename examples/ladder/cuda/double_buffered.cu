// Step 8: the next tiles are on their way while the present ones are multiplied.
//
// Global loads go to registers before the multiplications of a tile, and from there to the other of two buffers after
// them: their latency is hidden, and one barrier for each tile is enough.

#include "tiles.cuh"

template <int BM, int BN, int BK, int WM, int WN>
__global__ void __launch_bounds__(BM / WM * (BN / WN) * 32, 2)
    double_buffered(const float *A, const float *B, float *C, int M, int N, int K) {
  constexpr int THREADS = BM / WM * (BN / WN) * 32;
  constexpr int TM = WM / 4, TN = WN / 8;
  __shared__ __align__(16) float a_tile[2][BK][BM];
  __shared__ __align__(16) float b_tile[2][BK][BN];
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
  float4 a_next[a_share.COUNT], b_next[b_share.COUNT];

  auto load = [&] {
#pragma unroll
    for (int v = 0; v < a_share.COUNT; ++v)
      a_next[v] = vector(&A[(long long)(v * a_share.STEP) * K]);
#pragma unroll
    for (int v = 0; v < b_share.COUNT; ++v)
      b_next[v] = vector(&B[(long long)(v * b_share.STEP) * N]);
    A += BK;
    B += (long long)BK * N;
  };
  auto store = [&](int buffer) {
#pragma unroll
    for (int v = 0; v < a_share.COUNT; ++v)
      store_column(&a_tile[buffer][a_share.column][a_share.row + v * a_share.STEP], BM, a_next[v]);
#pragma unroll
    for (int v = 0; v < b_share.COUNT; ++v)
      vector(&b_tile[buffer][b_share.row + v * b_share.STEP][b_share.column]) = b_next[v];
  };

  float sum[TM][TN] = {};
  if (K > 0) {
    load();
    store(0);
  }
  __syncthreads();
  int buffer = 0;
  for (int k0 = 0; k0 < K; k0 += BK, buffer ^= 1) {
    const bool more = k0 + BK < K;
    if (more)
      load();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      float a[TM], b[TN];
      load_strided<16>(a, &a_tile[buffer][k][row]);
      load_strided<32>(b, &b_tile[buffer][k][column]);
      multiply_add(sum, a, b);
    }
    if (more)
      store(buffer ^ 1);
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < TM; ++m)
#pragma unroll
    for (int n = 0; n < TN; n += 4)
      vector(&C[(long long)(m / 4 * 16 + m % 4) * N + n / 4 * 32]) = vector(&sum[m][n]);
}
