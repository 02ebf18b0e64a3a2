__device__ __forceinline__ float warp_sum(float v) {
  for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffffu, v, o);
  return v;
}
__global__ void block_sum(const float *x, float *out, int n) {
  __shared__ float partial[32];
  float v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
  v = warp_sum(v);
  const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  if (lane == 0) partial[warp] = v;
  __syncthreads();
  if (warp == 0) {
    v = lane < blockDim.x / warpSize ? partial[lane] : 0.0f;
    v = warp_sum(v);
    if (lane == 0) atomicAdd(out, v);
  }
}
__global__ void tree_sum(const float *x, float *out, int n) {
  extern __shared__ float s[];
  int i = blockIdx.x * blockDim.x * 2 + threadIdx.x;
  s[threadIdx.x] = (i < n ? x[i] : 0) + (i + blockDim.x < n ? x[i + blockDim.x] : 0);
  __syncthreads();
  for (int o = blockDim.x / 2; o > 0; o >>= 1) {
    if (threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x + o];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
__global__ void redux(const int *x, int *out) {
  int v = x[threadIdx.x];
  int a = __reduce_add_sync(~0u, v), b = __reduce_min_sync(~0u, v), c = __reduce_max_sync(~0u, v);
  unsigned d = __reduce_and_sync(~0u, (unsigned)v), e = __reduce_or_sync(~0u, (unsigned)v),
           f = __reduce_xor_sync(~0u, (unsigned)v);
  if (threadIdx.x % 32 == 0) {
    int *o = out + threadIdx.x / 32 * 6;
    o[0] = a;
    o[1] = b;
    o[2] = c;
    o[3] = d;
    o[4] = e;
    o[5] = f;
  }
}
__global__ void votes(const int *x, int *out) {
  int v = x[threadIdx.x];
  unsigned b = __ballot_sync(~0u, v > 1);
  int all = __all_sync(~0u, v >= 0), any = __any_sync(~0u, v > 2);
  int c = __syncthreads_count(v > 1), o = __syncthreads_or(v == 3), a = __syncthreads_and(v >= 0);
  unsigned m = __match_any_sync(~0u, v);
  int pred;
  unsigned ma = __match_all_sync(~0u, v, &pred);
  out[threadIdx.x] = (int)(b ^ m) + all * 3 + any * 5 + c * 7 + o * 11 + a * 13 + ma + pred;
  if (v & 1) out[threadIdx.x] += __popc(__activemask());
}
__global__ void last_block(const float *x, float *partial, float *out, unsigned *ticket, int n) {
  __shared__ float s[128];
  __shared__ bool is_last;
  float v = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
  s[threadIdx.x] = v;
  __syncthreads();
  for (int o = 64; o > 0; o >>= 1) {
    if (threadIdx.x < o) s[threadIdx.x] += s[threadIdx.x + o];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = s[0];
    __threadfence();
    is_last = atomicInc(ticket, gridDim.x) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    float t = 0;
    for (int b = 0; b < gridDim.x; ++b) t += ((volatile float *)partial)[b];
    out[0] = t;
    *ticket = 0;
  }
}
