// Step 1: one thread computes one element of C = A · B, all three of fp32 and row-major.
//
// Neighbouring threads take neighbouring *rows*.  At each k the 32 threads of a warp read 32 elements of A that are K
// apart, each in a sector of its own, and one element of B: the warp moves 33 sectors of 32 bytes to use 33 numbers.

extern "C" __global__ void naive(const float *A, const float *B, float *C, int M, int N, int K) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const int column = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || column >= N)
    return;
  float sum = 0.0f;
  for (int k = 0; k < K; ++k)
    sum += A[(long long)row * K + k] * B[(long long)k * N + column];
  C[(long long)row * N + column] = sum;
}
