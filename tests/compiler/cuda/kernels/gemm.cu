#include <cuda_pipeline.h>
// Register tiles, float4 loads, two buffers filled by cp.async.
template <int BM, int BN, int BK, int TM, int TN>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
    sgemm(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C, int M, int N,
          int K) {
  __shared__ float As[2][BM][BK], Bs[2][BK][BN];
  constexpr int THREADS = (BM / TM) * (BN / TN);
  const int tid = threadIdx.x, tx = tid % (BN / TN), ty = tid / (BN / TN);
  const float *a = A + blockIdx.y * BM * K, *b = B + blockIdx.x * BN;
  float acc[TM][TN] = {};
  auto fetch = [&](int buf, int k0) {
    for (int i = tid; i < BM * BK / 4; i += THREADS) {
      int r = i / (BK / 4), c = i % (BK / 4) * 4;
      __pipeline_memcpy_async(&As[buf][r][c], a + r * K + k0 + c, 16);
    }
    for (int i = tid; i < BK * BN / 4; i += THREADS) {
      int r = i / (BN / 4), c = i % (BN / 4) * 4;
      __pipeline_memcpy_async(&Bs[buf][r][c], b + (k0 + r) * N + c, 16);
    }
    __pipeline_commit();
  };
  fetch(0, 0);
  for (int k0 = 0, buf = 0; k0 < K; k0 += BK, buf ^= 1) {
    if (k0 + BK < K) {
      fetch(buf ^ 1, k0 + BK);
      __pipeline_wait_prior(1);
    } else
      __pipeline_wait_prior(0);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      float ra[TM], rb[TN];
      for (int i = 0; i < TM; ++i) ra[i] = As[buf][ty * TM + i][k];
      for (int j = 0; j < TN; ++j) rb[j] = Bs[buf][k][tx * TN + j];
      for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) acc[i][j] += ra[i] * rb[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < TM; ++i)
    for (int j = 0; j < TN; j += 4)
      *reinterpret_cast<float4 *>(&C[(blockIdx.y * BM + ty * TM + i) * N + blockIdx.x * BN + tx * TN + j]) =
          make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
}
