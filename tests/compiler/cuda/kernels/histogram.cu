#include <stdint.h>
__global__ void shared_bins(const uint8_t *x, unsigned *bins, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (local[i]) atomicAdd(&bins[i], local[i]);
}
__global__ void atomics(const int *x, int *o, unsigned long long *q, float *f, double *d) {
  int v = x[threadIdx.x];
  atomicMax(o, v);
  atomicMin(o + 1, v);
  atomicAnd(o + 2, v | 4);
  atomicOr(o + 3, v);
  atomicXor(o + 4, v);
  atomicSub(o + 5, v);
  atomicAdd(q, (unsigned long long)v);
  atomicMax(q + 1, (unsigned long long)v);
  atomicAdd(f, (float)v);
  atomicAdd(d, (double)v);
  atomicExch(o + 6, 7);
  atomicCAS(o + 7, 0, 9);
  atomicInc((unsigned *)o + 8, 1000);
  atomicDec((unsigned *)o + 9, 1000);
  float *m = f + 1;
  int old = atomicOr((int *)m, 0), assumed;
  do {
    assumed = old;
    old = atomicCAS((int *)m, assumed, __float_as_int(fmaxf(__int_as_float(assumed), (float)v)));
  } while (assumed != old);
  atomicAdd_block(o + 10, v);
  atomicAdd_system(o + 11, v);
}
__global__ void lock(int *mutex, int *count) {
  if (threadIdx.x == 0) {
    while (atomicCAS(mutex, 0, 1) != 0) __nanosleep(20);
    __threadfence();
    int c = *(volatile int *)count;
    *(volatile int *)count = c + 1;
    __threadfence();
    atomicExch(mutex, 0);
  }
}
