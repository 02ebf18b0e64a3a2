#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void groups(const float *x, float *out) {
  cg::thread_block block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  float v = x[block.thread_rank()];
  for (int o = tile.size() / 2; o > 0; o /= 2) v += tile.shfl_down(v, o);
  if (tile.thread_rank() == 0) out[block.thread_rank() / 8] = v;
  block.sync();
  if (x[block.thread_rank()] > 0) {
    auto g = cg::coalesced_threads();
    if (g.thread_rank() == 0) atomicAdd(out, (float)g.size());
  }
}
