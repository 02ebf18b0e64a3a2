// Operations on the parts of a word.
__global__ void simd(const unsigned *x, unsigned *y) {
  const int i = threadIdx.x, n = blockDim.x;
  const unsigned a = x[i], b = x[i + n];
  unsigned *out = y + i;
  out[0 * n] = __vadd2(a, b);
  out[1 * n] = __vsub4(a, b);
  out[2 * n] = __vaddss2(a, b);
  out[3 * n] = __vaddus4(a, b);
  out[4 * n] = __vabsdiffs2(a, b);
  out[5 * n] = __vabsdiffu4(a, b);
  out[6 * n] = __vavgu4(a, b);
  out[7 * n] = __vcmpgts2(a, b);
  out[8 * n] = __vmaxs2(a, b);
  out[9 * n] = __vminu4(a, b);
  out[10 * n] = __vsadu4(a, b);
  out[11 * n] = __vsadu2(a, b);
  out[12 * n] = __vseteq4(a, b);
  out[13 * n] = __vneg4(a);
  out[14 * n] = __dp2a_lo((int)a, (int)b, 5);
  out[15 * n] = __dp4a(a, b, 5u);
}
