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

/* Whether the facts allow a row which requires the same types, hints and options as one that they allow. */
static int rival_matches(const Kernel *kernel, const VariantEntry *row, const uint64_t *facts)
{
    uint64_t missing = (row->required[FACT_TARGET] & ~facts[FACT_TARGET]) | (row->required[FACT_SHARED] & ~facts[FACT_SHARED]);
    for (int i = kernel->fact_count - kernel->condition_count; i < kernel->fact_count; i++)
        missing |= row->required[i] & ~facts[i];
    return !missing;
}

/* Of the first row that the facts allow, and those that they allow and that it is compared with by cost, the cheapest; the first of
   those that cost the same.  COST_FAULT where one of the costs has no value. */
static int cheapest_row(const Kernel *kernel, const uint64_t *facts, int first, const Value *arguments, int num_sms)
{
    const VariantEntry *own = &rows[kernel->first_row];
    int cheapest = first, is_compared = 0, fault = 0;
    int64_t least = 0;
    for (int i = own[first].rival; i >= 0; i = own[i].rival) {
        if (!rival_matches(kernel, &own[i], facts))
            continue;
        if (!is_compared++)
            least = kernel->cost(arguments, num_sms, own[first].cost, &fault);
        int64_t cost = kernel->cost(arguments, num_sms, own[i].cost, &fault);
        if (cost < least)
            cheapest = i, least = cost;
    }
    return fault ? COST_FAULT : cheapest;
}

/* The row of a call: NO_ROW or AMBIGUOUS where there is none, or COST_FAULT with a report; `found` is the first that its facts
   allow. */
static int row_by_cost(const Kernel *kernel, const uint64_t *facts, int found, const Value *arguments, int num_sms)
{
    int row = found < 0 ? found : cheapest_row(kernel, facts, found, arguments, num_sms);
    if (row == COST_FAULT)
        report(WRONG_LAUNCH, "%s(): a cost of its rows overflows 64 bits, or divides by zero", kernel->name);
    return row;
}
