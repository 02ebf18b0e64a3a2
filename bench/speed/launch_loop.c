/* The least that launches can cost: the driver's own call in a loop, with the arguments ready. */

#include <dlfcn.h>
#include <time.h>

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned attribute_count;
} Config;

/* Nanoseconds for each of `count` launches of a CUfunction; -1 where the driver refuses one. */
double launch_loop(void *function, unsigned blocks, unsigned threads, void **parameters, int count)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*launch)(const Config *, void *, void **, void **) = dlsym(driver, "cuLaunchKernelEx");
    Config config = { { blocks, 1, 1 }, { threads, 1, 1 }, 0, 0, 0, 0 };
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < count; i++)
        if (launch(&config, function, parameters, 0))
            return -1;
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / count;
}

/* The same for calls of an operator of two inputs and an output by the package's library for C; tensors are DLPack's. */
double operator_loop(int (*operator)(const void *, const void *, void *, void *), void *x, void *y, void *out, int count)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < count; i++)
        if (operator(x, y, out, 0))
            return -1;
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec)) / count;
}
