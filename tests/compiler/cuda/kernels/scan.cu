__global__ void hillis(const int *x, int *y, int n) {
  __shared__ int s[2][256];
  int t = threadIdx.x, p = 0;
  s[0][t] = t < n ? x[t] : 0;
  __syncthreads();
  for (int o = 1; o < 256; o *= 2) {
    s[1 - p][t] = t >= o ? s[p][t] + s[p][t - o] : s[p][t];
    p = 1 - p;
    __syncthreads();
  }
  if (t < n) y[t] = s[p][t];
}
__global__ void warp_scan(const int *x, int *y, int n) {
  __shared__ int sums[32];
  int t = threadIdx.x, lane = t & 31, w = t >> 5;
  int v = t < n ? x[t] : 0;
#pragma unroll
  for (int o = 1; o < 32; o *= 2) {
    int u = __shfl_up_sync(~0u, v, o);
    if (lane >= o) v += u;
  }
  if (lane == 31) sums[w] = v;
  __syncthreads();
  if (w == 0) {
    int s = lane < blockDim.x / 32 ? sums[lane] : 0;
    for (int o = 1; o < 32; o *= 2) {
      int u = __shfl_up_sync(~0u, s, o);
      if (lane >= o) s += u;
    }
    sums[lane] = s;
  }
  __syncthreads();
  if (w > 0) v += sums[w - 1];
  if (t < n) y[t] = v;
}
__global__ void blelloch(const float *x, float *y) {
  extern __shared__ float s[];
  int t = threadIdx.x, n = 2 * blockDim.x, o = 1;
  s[2 * t] = x[2 * t];
  s[2 * t + 1] = x[2 * t + 1];
  for (int d = n >> 1; d > 0; d >>= 1) {
    __syncthreads();
    if (t < d) {
      int a = o * (2 * t + 1) - 1, b = o * (2 * t + 2) - 1;
      s[b] += s[a];
    }
    o *= 2;
  }
  if (t == 0) s[n - 1] = 0;
  for (int d = 1; d < n; d *= 2) {
    o >>= 1;
    __syncthreads();
    if (t < d) {
      int a = o * (2 * t + 1) - 1, b = o * (2 * t + 2) - 1;
      float q = s[a];
      s[a] = s[b];
      s[b] += q;
    }
  }
  __syncthreads();
  y[2 * t] = s[2 * t];
  y[2 * t + 1] = s[2 * t + 1];
}
