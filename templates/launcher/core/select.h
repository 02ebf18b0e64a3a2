/* From the facts of a call to the row that is launched. */

static int row_matches(const Kernel *kernel, const VariantEntry *row, const uint64_t *facts, int *failing)
{
    for (int i = 0; i < kernel->fact_count; i++)
        if ((facts[i] & row->required[i]) != row->required[i]) {
            *failing = i;
            return 0;
        }
    *failing = -1;
    return 1;
}

/* Whether two rows that both match read the arguments of unknown type (raw addresses, floats) as the same types. */
static int rows_agree(const Kernel *kernel, const VariantEntry *one, const VariantEntry *other, const uint64_t *facts)
{
    for (int i = 0; i < kernel->parameter_count; i++) {
        uint64_t types = facts[DEVICE_FACTS + i] & TYPE_MASK;
        uint64_t difference = (one->required[DEVICE_FACTS + i] ^ other->required[DEVICE_FACTS + i]) & TYPE_MASK;
        if (kernel->parameters[i].kind != KIND_INTEGER && (types & (types - 1)) && difference)
            return 0;
    }
    return 1;
}

/* The first row of the kernel (counted from 0 in the kernel) that the facts allow, or NO_ROW, or AMBIGUOUS. */
static int select_row(const Kernel *kernel, const uint64_t *facts)
{
    int chosen = NO_ROW, failing;
    for (int i = 0; i < kernel->row_count; i++) {
        const VariantEntry *row = &rows[kernel->first_row + i];
        if (!row_matches(kernel, row, facts, &failing))
            continue;
        if (chosen == NO_ROW)
            chosen = i;
        else if (!rows_agree(kernel, &rows[kernel->first_row + chosen], row, facts))
            return AMBIGUOUS;
    }
    return chosen;
}

static int cached_row(const Kernel *kernel, const uint64_t *facts)
{
    Cache *cache = kernel->cache;
    size_t size = (size_t)kernel->fact_count * sizeof *facts;
    if (cache->rows[cache->last] && memcmp(facts, cache->facts + cache->last * kernel->fact_count, size) == 0)
        return cache->rows[cache->last] - 1;
    uint64_t hash = 0;
    for (int i = 0; i < kernel->fact_count; i++)
        hash = (hash << 7 | hash >> 57) ^ facts[i];
    int slot = (int)(hash * UINT64_C(0x9E3779B97F4A7C15) >> 59);
    uint64_t *remembered = cache->facts + slot * kernel->fact_count;
    if (!cache->rows[slot] || memcmp(facts, remembered, size) != 0) {
        int row = select_row(kernel, facts);
        if (row < 0)
            return row;
        memcpy(remembered, facts, size);
        cache->rows[slot] = row + 1;
    }
    cache->last = slot;
    return cache->rows[slot] - 1;
}
