// Step 4: a thread computes a column of TM elements of C.
//
// It reads one element of B from shared memory and uses it TM times: per k, TM + 1 loads for TM multiply-adds, where step
// 3 has two for each.  From here on M and N have to be multiples of the tile, and K of BK.

template <int BM, int BN, int BK, int TM>
__global__ void __launch_bounds__(BM / TM * BN)
    column_tiles(const float *A, const float *B, float *C, int M, int N, int K) {
  constexpr int THREADS = BM / TM * BN;
  __shared__ float a_tile[BM][BK];
  __shared__ float b_tile[BK][BN];
  const int x = threadIdx.x % BN, y = threadIdx.x / BN;
  A += (long long)blockIdx.y * BM * K;
  B += blockIdx.x * BN;
  C += (long long)blockIdx.y * BM * N + blockIdx.x * BN;
  float sum[TM] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = threadIdx.x; i < BM * BK; i += THREADS)
      a_tile[i / BK][i % BK] = A[(long long)(i / BK) * K + k0 + i % BK];
    for (int i = threadIdx.x; i < BK * BN; i += THREADS)
      b_tile[i / BN][i % BN] = B[(long long)(k0 + i / BN) * N + i % BN];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      const float b = b_tile[k][x];
#pragma unroll
      for (int m = 0; m < TM; ++m)
        sum[m] += a_tile[y * TM + m][k] * b;
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < TM; ++m)
    C[(long long)(y * TM + m) * N + x] = sum[m];
}
