// What the steps from 5 on share: how threads share the copying of a tile, accesses of 16 bytes, and the products of one column of A's tile with one row of B's.
#pragma once

// What one of THREADS threads copies of a tile of ROWS x COLUMNS elements, V of them at a time: COUNT pieces that lie STEP
// rows apart.
template <int ROWS, int COLUMNS, int V, int THREADS> struct Share {
  static constexpr int COUNT = ROWS * COLUMNS / (V * THREADS), STEP = THREADS * V / COLUMNS;
  static_assert(COUNT * STEP == ROWS, "the threads have to share the tile evenly");
  int row = threadIdx.x / (COLUMNS / V), column = threadIdx.x % (COLUMNS / V) * V;  // of the first piece
};

// The 16 bytes at `p`, which has to be a multiple of 16.
__device__ __forceinline__ float4 &vector(float *p) { return *reinterpret_cast<float4 *>(p); }
__device__ __forceinline__ const float4 &vector(const float *p) { return *reinterpret_cast<const float4 *>(p); }

// `to` = the N elements at `from`, by vectors.
template <int N> __device__ __forceinline__ void load_vectors(float (&to)[N], const float *from) {
#pragma unroll
  for (int i = 0; i < N; i += 4)
    vector(to + i) = vector(from + i);
}

// The four elements of `vector`, below each other in a tile with rows of `stride` elements.
__device__ __forceinline__ void store_column(float *to, int stride, float4 vector) {
  to[0] = vector.x;
  to[stride] = vector.y;
  to[2 * stride] = vector.z;
  to[3 * stride] = vector.w;
}

// `to` = four elements at `from`, four at `from` + STRIDE, …
template <int STRIDE, int N> __device__ __forceinline__ void load_strided(float (&to)[N], const float *from) {
#pragma unroll
  for (int i = 0; i < N; i += 4)
    vector(to + i) = vector(from + i / 4 * STRIDE);
}

// sum += a · bᵀ
template <int TM, int TN>
__device__ __forceinline__ void multiply_add(float (&sum)[TM][TN], const float (&a)[TM], const float (&b)[TN]) {
#pragma unroll
  for (int m = 0; m < TM; ++m)
#pragma unroll
    for (int n = 0; n < TN; ++n)
      sum[m][n] += a[m] * b[n];
}

// The same for four k: `a` has them of each row, and `b` points to the first of four rows, `stride` apart, of which the
// thread has four columns of every 32.
template <int TM, int TN>
__device__ __forceinline__ void multiply_add_four(float (&sum)[TM][TN], const float4 (&a)[TM], const float *b, int stride) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    float a_k[TM], b_k[TN];
#pragma unroll
    for (int m = 0; m < TM; ++m)
      a_k[m] = k == 0 ? a[m].x : k == 1 ? a[m].y : k == 2 ? a[m].z : a[m].w;
    load_strided<32>(b_k, b + k * stride);
    multiply_add(sum, a_k, b_k);
  }
}
