// Step 3: a block of T x T threads keeps tiles of A and B in shared memory.
//
// Each element is read from global memory once by a block, and T times from shared memory: global traffic falls by T.
// What remains is one load of shared memory for A, one for B and one fused multiply-add, per thread and k.

template <int T>
__global__ void __launch_bounds__(T * T)
    shared_tiles(const float *A, const float *B, float *C, int M, int N, int K) {
  __shared__ float a_tile[T][T];
  __shared__ float b_tile[T][T];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * T + y;
  const int column = blockIdx.x * T + x;
  float sum = 0.0f;
  for (int k0 = 0; k0 < K; k0 += T) {
    a_tile[y][x] = row < M && k0 + x < K ? A[(long long)row * K + k0 + x] : 0.0f;
    b_tile[y][x] = column < N && k0 + y < K ? B[(long long)(k0 + y) * N + column] : 0.0f;
    __syncthreads();  // The tiles are complete before anybody reads them ...
    for (int k = 0; k < T; ++k)
      sum += a_tile[y][k] * b_tile[k][x];
    __syncthreads();  // ... and read by all before anybody overwrites them.
  }
  if (row < M && column < N)
    C[(long long)row * N + column] = sum;
}
