template <class T, int TILE, int ROWS>
__global__ void transpose(const T *__restrict__ x, T *__restrict__ y, int w, int h) {
  __shared__ T tile[TILE][TILE + 1];
  int c = blockIdx.x * TILE + threadIdx.x, r = blockIdx.y * TILE + threadIdx.y;
#pragma unroll
  for (int j = 0; j < TILE; j += ROWS)
    if (c < w && r + j < h) tile[threadIdx.y + j][threadIdx.x] = x[(r + j) * w + c];
  __syncthreads();
  c = blockIdx.y * TILE + threadIdx.x;
  r = blockIdx.x * TILE + threadIdx.y;
#pragma unroll
  for (int j = 0; j < TILE; j += ROWS)
    if (c < h && r + j < w) y[(r + j) * h + c] = tile[threadIdx.x][threadIdx.y + j];
}
__global__ void copy4(const float4 *x, float4 *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    float4 v = __ldg(x + i);
    v.x += 1;
    v.w *= 2;
    y[i] = v;
  }
}
