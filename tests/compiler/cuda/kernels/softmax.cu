#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
template <class T> __device__ float load(const T *p) { return float(*p); }
template <class T, int THREADS> __global__ void softmax(const T *x, T *y, int n) {
  __shared__ float sm[THREADS / 32], ss[THREADS / 32];
  const T *row = x + (size_t)blockIdx.x * n;
  float m = -INFINITY, s = 0;
  for (int i = threadIdx.x; i < n; i += THREADS) {
    float v = load(row + i), w = fmaxf(m, v);
    s = s * __expf(m - w) + __expf(v - w);
    m = w;
  }
  for (int o = 16; o; o >>= 1) {
    float om = __shfl_xor_sync(~0u, m, o), os = __shfl_xor_sync(~0u, s, o), w = fmaxf(m, om);
    s = (m == -INFINITY ? 0 : s * __expf(m - w)) + (om == -INFINITY ? 0 : os * __expf(om - w));
    m = w;
  }
  if (threadIdx.x % 32 == 0) {
    sm[threadIdx.x / 32] = m;
    ss[threadIdx.x / 32] = s;
  }
  __syncthreads();
  float M = -INFINITY, S = 0;
  for (int w = 0; w < THREADS / 32; ++w) M = fmaxf(M, sm[w]);
  for (int w = 0; w < THREADS / 32; ++w) S += ss[w] * __expf(sm[w] - M);
  for (int i = threadIdx.x; i < n; i += THREADS)
    y[(size_t)blockIdx.x * n + i] = T(__expf(load(row + i) - M) / S);
}
__global__ void half2s(const __half2 *x, const __nv_bfloat162 *b, __half2 *y, __nv_bfloat162 *c) {
  int i = threadIdx.x;
  __half2 v = x[i];
  v = __hfma2(v, __float2half2_rn(2.0f), __hadd2(v, v));
  v = __hmax2(v, __float2half2_rn(0.0f));
  v = h2exp(__hmul2(v, __float2half2_rn(0.125f)));
  y[i] = __hsub2(v, __halves2half2(__low2half(v), __float2half(1.0f)));
  __nv_bfloat162 w = b[i];
  c[i] = __hmul2(__hadd2(w, w), __floats2bfloat162_rn(0.5f, 2.0f));
}
__global__ void math(const float *x, float *y, const double *d, double *e) {
  int i = threadIdx.x, n = blockDim.x;
  float v = x[i];
  y[i] = sinf(v * 1000) + cosf(v * 100000.0f);
  y[i + n] = expf(v) + logf(fabsf(v) + 1) + sqrtf(fabsf(v)) + rsqrtf(v * v + 1);
  y[i + 2 * n] = powf(fabsf(v), 1.7f) + tanhf(v) + erff(v);
  y[i + 3 * n] = fmodf(v, 0.3f) + rintf(v) + floorf(v) + truncf(v) + v / 3.0f + __fdividef(v, 3.0f) +
                 atan2f(v, 2.0f) + cbrtf(v) + log1pf(fabsf(v)) + expm1f(v) + __sinf(v) + __powf(2.0f, v) +
                 exp2f(v) + exp10f(v) + log2f(fabsf(v) + 1);
  double w = d[i];
  e[i] = exp(w) + log(fabs(w) + 1) + sqrt(fabs(w)) + sin(w) + cos(w * 1e6) + pow(fabs(w), 1.5) + w / 3 +
         tanh(w) + floor(w) + fma(w, w, w);
}
