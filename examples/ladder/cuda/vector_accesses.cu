// Step 6: memory is read and written 16 bytes at a time, and A's tile is kept transposed.
//
// A thread's rows lie side by side in the transposed tile, so that two loads of 16 bytes bring the eight of them; the same
// holds for B, and for global memory on both sides.  Four times fewer instructions move the same bytes.

#include "tiles.cuh"

template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__(BM / TM * (BN / TN), 2)
    vector_accesses(const float *A, const float *B, float *C, int M, int N, int K) {
  constexpr int THREADS = BM / TM * (BN / TN);
  __shared__ __align__(16) float a_tile[BK][BM];
  __shared__ __align__(16) float b_tile[BK][BN];
  const int x = threadIdx.x % (BN / TN), y = threadIdx.x / (BN / TN);
  A += (long long)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (long long)(blockIdx.y * BM + y * TM) * N + blockIdx.x * BN + x * TN;
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
      load_vectors(a, &a_tile[k][y * TM]);
      load_vectors(b, &b_tile[k][x * TN]);
      multiply_add(sum, a, b);
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < TM; ++m)
#pragma unroll
    for (int n = 0; n < TN; n += 4)
      vector(&C[(long long)m * N + n]) = vector(&sum[m][n]);
}
