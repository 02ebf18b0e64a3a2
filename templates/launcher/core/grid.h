/* The grid of a launch, and the driver's call. */

/* An IEEE number of so many bits for exponent and mantissa, rounded to nearest even. */
static uint64_t encode_float(double value, int exponent_bits, int mantissa_bits)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t sign = bits >> 63 << (exponent_bits + mantissa_bits);
    int exponent = (int)(bits >> 52 & 0x7FF) - 1023, bias = (1 << (exponent_bits - 1)) - 1;
    uint64_t fraction = bits & ((UINT64_C(1) << 52) - 1);
    uint64_t infinity = ((UINT64_C(1) << exponent_bits) - 1) << mantissa_bits;
    if (exponent == 1024)
        return sign | infinity | (fraction ? UINT64_C(1) << (mantissa_bits - 1) : 0);
    int shift = 52 - mantissa_bits, biased = exponent + bias;
    uint64_t base = 0;
    if (biased > 0) {
        base = (uint64_t)biased << mantissa_bits;
    } else {
        fraction |= UINT64_C(1) << 52;
        shift += 1 - biased;
    }
    if (shift > 54)
        return sign;
    uint64_t kept = base + (fraction >> shift), rest = fraction & ((UINT64_C(1) << shift) - 1), half = UINT64_C(1) << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1));
    return sign | (kept < infinity ? kept : infinity);
}

/* A size below zero holds as much as one of zero.  Where there would be nothing to do with zeros, such a size is a mistake, though
   the product of two of them may look like work. */
static int refuse_negative_sizes(const Kernel *kernel, const VariantEntry *row, const Value *arguments, int num_sms)
{
    int negative = -1, fault = 0;
    for (int i = 0; i < kernel->parameter_count; i++)
        if (kernel->parameters[i].in_grid && arguments[i].integer < 0)
            negative = i;
    if (negative < 0)
        return 0;
    Value clamped[kernel->parameter_count];
    for (int i = 0; i < kernel->parameter_count; i++) {
        clamped[i] = arguments[i];
        if (kernel->parameters[i].in_grid && arguments[i].integer < 0)
            clamped[i].integer = 0;
    }
    int64_t grid[3] = { 1, 1, 1 };
    kernel->grid(clamped, row->constants, num_sms, grid, &fault);
    if (fault || (grid[0] > 0 && grid[1] > 0 && grid[2] > 0))
        return 0;
    return report(WRONG_LAUNCH, "%s(): %s is %lld, and its grid takes no size below zero", kernel->name,
                  kernel->parameters[negative].name, (long long)arguments[negative].integer);
}

/* Which run-time conditions hold on a device of so many multiprocessors; -1 with a report. */
static int check_conditions(const Kernel *kernel, const Value *values, uint64_t *facts, int num_sms)
{
    int fault = 0;
    kernel->conditions(values, num_sms, facts + DEVICE_FACTS + kernel->parameter_count + kernel->option_count, &fault);
    return fault ? report(WRONG_LAUNCH, "%s(): a condition of its rows overflows 64 bits, or divides by zero", kernel->name) : 0;
}

/* The grid of a row, computed unless it is given: 0 to launch, 1 when it is empty, -1 with a report. */
static int compute_grid(const Kernel *kernel, const VariantEntry *row, int is_given, const Value *arguments, int num_sms, int64_t *grid)
{
    static const int64_t limits[] = {INT32_MAX, UINT16_MAX, UINT16_MAX};
    int fault = 0;
    if (!is_given) {
        grid[0] = grid[1] = grid[2] = 1;
        kernel->grid(arguments, row->constants, num_sms, grid, &fault);
    }
    if (fault)
        return report(WRONG_LAUNCH, "%s(): its grid overflows 64 bits, or divides by zero", kernel->name);
    for (int i = 0; i < 3; i++)
        if (grid[i] < 0 || grid[i] > limits[i])
            return report(WRONG_LAUNCH, "%s(): the grid (%lld, %lld, %lld) has %lld programs along axis %d; a launch takes 0 to %lld",
                          kernel->name, (long long)grid[0], (long long)grid[1], (long long)grid[2], (long long)grid[i], i,
                          (long long)limits[i]);
    if (grid[0] % row->cluster_size)
        return report(WRONG_LAUNCH, "%s(): the grid has %lld programs along axis 0, not a multiple of the cluster size %d", kernel->name,
                      (long long)grid[0], row->cluster_size);
    if (!is_given && refuse_negative_sizes(kernel, row, arguments, num_sms) < 0)
        return -1;
    return !grid[0] || !grid[1] || !grid[2];
}

/* Launches a row; with launch_pdl it may begin before the launch before it in the stream has ended. */
static CUresult launch_function(const VariantEntry *row, CUfunction function, const int64_t *grid, CUstream stream, void **addresses,
                                const char **failing)
{
    unsigned x = (unsigned)grid[0], y = (unsigned)grid[1], z = (unsigned)grid[2];
    const unsigned *block = row->block, shared = (unsigned)row->shared;
    if (!row->launch_pdl || !driver.cuLaunchKernelEx || driver.version < FIRST_WITH_STREAM_SERIALIZATION) {
        *failing = "cuLaunchKernel";
        return driver.cuLaunchKernel(function, x, y, z, block[0], block[1], block[2], shared, stream, addresses, NULL);
    }
    *failing = "cuLaunchKernelEx";
    LaunchAttribute attribute = { STREAM_SERIALIZATION, 0, { 1 } };
    LaunchConfig config = { { x, y, z }, { block[0], block[1], block[2] }, shared, stream, &attribute, 1 };
    return driver.cuLaunchKernelEx(&config, function, addresses, NULL);
}

/* The addresses of what a row's kernel takes, from the values of its parameters. `encoded` and `maps` have room for them; -1 with a
   report. */
static int pass_arguments(const Kernel *kernel, int index, Value *values, void **addresses, uint64_t *encoded, TensorMap *maps)
{
    static uint64_t null = 0;
    const VariantEntry *row = &rows[index];
    int map_count = 0;
    for (int i = 0; i < row->passed_count; i++) {
        const Passed *passed = &row->passed[i];
        addresses[i] = passed->parameter < 0 ? (void *)&null : (void *)&values[passed->parameter];
        if (passed->exponent) {
            encoded[i] = encode_float(values[passed->parameter].number, passed->exponent, passed->mantissa);
            addresses[i] = &encoded[i];
        }
        if (passed->map >= 0) {
            if (make_map(kernel, index, passed->map, values, &maps[map_count]) < 0)
                return -1;
            addresses[i] = &maps[map_count++];
        }
    }
    return 0;
}
