/* Tensor maps: what TMA has to know of the tensors of a call. */

/* The tensor maps made last.  They hold addresses and sizes alone, so that they are right on every device. */
enum { MAP_CACHE_SLOTS = 64, MAP_ALIGNMENT = 16 };

enum { MAP_FACTS = 2 * MAX_MAP_RANK };

static struct { int plan; /* 1 + plan; 0: empty */ uint64_t facts[MAP_FACTS]; TensorMap map; } map_cache[MAP_CACHE_SLOTS];

static int64_t map_number(int64_t number, const Value *values)
{
    return number < 0 ? values[-1 - number].integer : number;
}

/* Sizes, and bytes from one index to the next, of the tensor of a plan; a size of zero counts as one, of which nothing is read
   that matters.  -1 with a report where TMA cannot read it. */
static int map_extents(const Kernel *kernel, const MapPlan *plan, const Value *values, uint64_t *sizes, uint64_t *pitches)
{
    const char *name = kernel->parameters[plan->base].name;
    uint64_t address = values[plan->base].address;
    if (address % MAP_ALIGNMENT)
        return report(WRONG_LAUNCH, "%s(): the address of %s is not divisible by %d, so it cannot be read through a tensor map",
                      kernel->name, name, (int)MAP_ALIGNMENT);
    for (int i = 0; i < plan->rank; i++) {
        int64_t size = map_number(plan->sizes[i], values), pitch = 0;
        int overflow = i && __builtin_mul_overflow(map_number(plan->strides[i - 1], values), (int64_t)plan->element_bytes, &pitch);
        if (size < 0 || size > INT64_C(1) << 32)
            return report(WRONG_LAUNCH, "%s(): %s has %lld elements along an axis, a tensor map 0 to 2^32", kernel->name, name,
                          (long long)size);
        if (overflow || pitch < 0 || pitch >> 40 || pitch % MAP_ALIGNMENT)
            return report(WRONG_LAUNCH, "%s(): %s has a stride of %lld elements; for a tensor map a stride is a multiple of %d bytes "
                          "below 2^40", kernel->name, name, (long long)map_number(plan->strides[i - 1], values), (int)MAP_ALIGNMENT);
        sizes[i] = size ? (uint64_t)size : 1;
        if (i)
            pitches[i - 1] = (uint64_t)pitch;
    }
    return 0;
}

/* The map of a plan for the parameters of a call; -1 with a report.  One thread at a time may be here: what guards the caches of rows,
   the GIL or a lock, guards this one. */
static int make_map(const Kernel *kernel, int index, int plan_number, const Value *values, TensorMap *made)
{
    const MapPlan *plan = &map_plans[plan_number];
    uint64_t facts[MAP_FACTS] = { values[plan->base].address };
    uint64_t hash = (uint64_t)plan_number;
    for (int i = 0; i < plan->rank; i++) {
        facts[1 + i] = (uint64_t)map_number(plan->sizes[i], values);
        if (i)
            facts[MAX_MAP_RANK + i] = (uint64_t)map_number(plan->strides[i - 1], values);
    }
    for (int i = 0; i < MAP_FACTS; i++)
        hash = (hash ^ facts[i]) * UINT64_C(0x9E3779B97F4A7C15);
    int slot = (int)(hash >> 58);
    if (map_cache[slot].plan == plan_number + 1 && memcmp(map_cache[slot].facts, facts, sizeof facts) == 0) {
        *made = map_cache[slot].map;
        return 0;
    }
    uint64_t sizes[MAX_MAP_RANK], pitches[MAX_MAP_RANK];
    if (map_extents(kernel, plan, values, sizes, pitches) < 0)
        return -1;
    if (!driver.cuTensorMapEncodeTiled)
        return report(WRONG_LAUNCH, "%s(): the driver is too old for tensor maps; it has to be of CUDA 12.0 or later", kernel->name);
    static const uint32_t steps[MAX_MAP_RANK] = { 1, 1, 1, 1, 1 };
    enum { NO_INTERLEAVE = 0, PROMOTE_128_BYTES = 2 };
    CUresult code = driver.cuTensorMapEncodeTiled(made, plan->type, (uint32_t)plan->rank, (void *)(uintptr_t)facts[0], sizes, pitches,
                                                  plan->box, steps, NO_INTERLEAVE, plan->swizzle, PROMOTE_128_BYTES, plan->fill);
    if (code != CUDA_SUCCESS)
        return report_driver("cuTensorMapEncodeTiled", code, NULL, index);
    map_cache[slot].plan = plan_number + 1;
    memcpy(map_cache[slot].facts, facts, sizeof facts);
    map_cache[slot].map = *made;
    return 0;
}
