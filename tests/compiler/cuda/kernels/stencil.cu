__constant__ float weights[5] = {1, 2, 4, 2, 1};
__global__ void line5(const float *x, float *y, int n) {
  __shared__ float s[128 + 4];
  int g = blockIdx.x * 128 + threadIdx.x, t = threadIdx.x + 2;
  s[t] = g < n ? x[g] : 0;
  if (threadIdx.x < 2) {
    s[t - 2] = g >= 2 ? x[g - 2] : 0;
    s[t + 128] = g + 128 < n ? x[g + 128] : 0;
  }
  __syncthreads();
  float v = 0;
  for (int k = -2; k <= 2; ++k) v += weights[k + 2] * s[t + k];
  if (g < n) y[g] = v;
}
__global__ void cube(const float *x, float *y, int nx, int ny, int nz) {
  __shared__ float s[6][6][10];
  int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y,
      k = blockIdx.z * blockDim.z + threadIdx.z;
  auto at = [=](int a, int b, int c) {
    return a < 0 || b < 0 || c < 0 || a >= nx || b >= ny || c >= nz ? 0.0f : x[(c * ny + b) * nx + a];
  };
  float v = -6 * at(i, j, k) + at(i - 1, j, k) + at(i + 1, j, k) + at(i, j - 1, k) + at(i, j + 1, k) +
            at(i, j, k - 1) + at(i, j, k + 1);
  if (i < nx && j < ny && k < nz) y[(k * ny + j) * nx + i] = v;
  s[threadIdx.z][threadIdx.y][threadIdx.x] = v;
}
