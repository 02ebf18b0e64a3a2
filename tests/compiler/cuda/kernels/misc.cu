#include <assert.h>
#include <stdint.h>
#include <stdio.h>
__device__ __noinline__ int collatz(int n, int *steps) {
  int s = 0;
  while (n != 1 && s < 200) {
    n = n & 1 ? 3 * n + 1 : n / 2;
    ++s;
  }
  *steps = s;
  return n;
}
struct Pair {
  float a;
  int b;
  double c;
};
__device__ __noinline__ Pair make(float a, int b) {
  Pair p = {a * 2, b + 1, a + b};
  return p;
}
__device__ __noinline__ float sum(Pair p) { return p.a + p.b + (float)p.c; }
__device__ float apply(float (*f)(float), float x) { return f(x); }
__device__ float twice(float x) { return 2 * x; }
__device__ float thrice(float x) { return 3 * x; }
__device__ int counter;
__device__ float table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__global__ void calls(const int *x, int *y, float *z) {
  int i = threadIdx.x, s;
  int r = collatz(x[i] + 1, &s);
  y[i] = r + s;
  z[i] = sum(make(x[i], i)) + table[i & 7];
  atomicAdd(&counter, 1);
}
__global__ void pointers(const int *x, float *z) {
  float (*f)(float) = x[threadIdx.x] & 1 ? twice : thrice;
  z[threadIdx.x] = apply(f, threadIdx.x);
}
__global__ void locals(const int *x, int *y) {
  int a[16];
  for (int i = 0; i < 16; ++i) a[i] = x[(threadIdx.x + i) % 32];
  int k = x[threadIdx.x] & 15;
  a[k] += 100;
  y[threadIdx.x] = a[(k * 7) & 15] + a[x[(threadIdx.x + 1) % 32] & 15];
  switch (x[threadIdx.x] % 11) {
  case 0:
    y[threadIdx.x] += 1;
    break;
  case 1:
    y[threadIdx.x] *= 3;
    break;
  case 2:
    y[threadIdx.x] -= 5;
    break;
  case 3:
    y[threadIdx.x] ^= 9;
    break;
  case 4:
    y[threadIdx.x] <<= 2;
    break;
  case 5:
    y[threadIdx.x] |= 64;
  case 6:
    y[threadIdx.x] += 7;
    break;
  case 7:
    y[threadIdx.x] /= 3;
    break;
  case 8:
    y[threadIdx.x] %= 5;
    break;
  default:
    y[threadIdx.x] = ~y[threadIdx.x];
  }
}
__global__ void bits(const unsigned *x, unsigned *y, const long long *l, long long *m) {
  unsigned v = x[threadIdx.x];
  long long w = l[threadIdx.x];
  int i = threadIdx.x;
  y[i] = __popc(v) + __clz(v) * 3 + __ffs(v) * 5 + __brev(v) + __byte_perm(v, 0x12345678, 0x3210 + (i & 7)) +
         __funnelshift_l(v, i, 5) + __umulhi(v, 77777) + __vadd4(v, 0x01020304) +
         __dp4a((int)v, 0x01010101, 3) + __sad((int)v, 3, 4u) + __usad(v, 5, 7u) + __mul24((int)v, 3) +
         __rhadd((int)v, 3) + __vabsdiffu4(v, 0x11223344);
  m[i] = w / 7 + w % 13 + __popcll(w) + __clzll(w) + __ffsll(w) + __brevll(w) + (w >> 5) +
         (long long)__umul64hi(w, 12345678912345ull) + __mul64hi(w, 3) + (w * w) + llabs(w) + max(w, 3ll) +
         (v ? w / v : 0) + (w << (i & 31));
}
__global__ void prints(const float *x, int n) {
  assert(n > 0);
  if (threadIdx.x == 3) printf("x[%d] = %f %s %lld\n", n, x[n], "text", 1ll << 40);
}
__global__ void chars(const char4 *c, const uint8_t *u, const short *s, char4 *d, bool *b, uint8_t *v,
                      short *t, signed char *q) {
  int i = threadIdx.x;
  char4 p = c[i];
  d[i] = make_char4(p.w, p.z, p.y + 1, p.x - 1);
  b[i] = u[i] > 100;
  v[i] = u[i] * 3;
  t[i] = s[i] / 3 - u[i];
  q[i] = (signed char)(s[i]) * 5;
}
__global__ void clocks(long long *t) {
  long long a = clock64();
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  unsigned sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  unsigned long long g;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g));
  t[threadIdx.x] = (clock64() - a >= 0) + lane;
}
__global__ void warps(const float *x, float *y) {
  int i = threadIdx.x, w = i / 32;
  float v = x[i];
  v += __shfl_sync(~0u, v, 3) + __shfl_sync(~0u, v, i + 1, 8) + __shfl_xor_sync(~0u, v, 5) +
       __shfl_up_sync(~0u, v, 2, 16) + __shfl_down_sync(~0u, v, 7);
  double d = __shfl_sync(~0u, (double)v, 9);
  unsigned long long q = __shfl_xor_sync(~0u, (unsigned long long)i, 1);
  if (i % 2) {
    v += __shfl_sync(__activemask(), v, 1);
  }
  __syncwarp();
  asm volatile("bar.sync %0, %1;" ::"r"(1 + w / 2), "r"(64));
  asm volatile("barrier.sync 3;");
  asm volatile("bar.arrive 4, 128;");
  asm volatile("bar.sync 5;");
  y[i] = v + d + q;
}
