// Barriers in shared memory and copies of tiles, as PTX has them (PTX ISA, mbarrier and cp.async.bulk.tensor).
#pragma once

using Barrier = unsigned long long;

__device__ __forceinline__ unsigned shared_address(const void *p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// A phase of the barrier ends when `arrivals` threads have arrived and all expected bytes have come.
__device__ __forceinline__ void initialize_barrier(Barrier *barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes barriers known to the copy engine.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Arrives, and lets the phase wait for `bytes` more.
__device__ __forceinline__ void expect_bytes(Barrier *barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void arrive(Barrier *barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Waits for the end of the phase with the given parity: 0 for the first, 1 for the second, 0 for the third, …
__device__ __forceinline__ void wait(Barrier *barrier, int parity) {
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
               "@!done bra again;\n"
               "}\n" ::"r"(shared_address(barrier)),
               "r"(parity)
               : "memory");
}

// Copies the tile of the tensor map whose first element is in column `x` and row `y`.
__device__ __forceinline__ void copy_tile(void *to, const void *map, int x, int y, Barrier *barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                   shared_address(to)),
               "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier))
               : "memory");
}
