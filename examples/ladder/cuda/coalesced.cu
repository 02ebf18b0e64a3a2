// Step 2: neighbouring threads take neighbouring *columns*, and nothing else changes.
//
// At each k a warp reads 32 neighbouring elements of B, which are four whole sectors, and one element of A, which all
// its threads share: 5 sectors instead of 33.

extern "C" __global__ void coalesced(const float *A, const float *B, float *C, int M, int N, int K) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || column >= N)
    return;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k)
    sum += A[(long long)row * K + k] * B[(long long)k * N + column];
  C[(long long)row * N + column] = sum;
}
