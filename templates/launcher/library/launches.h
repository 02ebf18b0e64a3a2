/* From facts to the driver's call. */

/* What a fact of a kernel is about. */
static const char *name_of_fact(const Kernel *kernel, int fact)
{
    if (fact < DEVICE_FACTS)
        return fact == FACT_TARGET ? "the device's architecture" : "the device's shared memory";
    fact -= DEVICE_FACTS;
    if (fact < kernel->parameter_count)
        return kernel->parameters[fact].name;
    fact -= kernel->parameter_count;
    return fact < kernel->option_count ? kernel->options[fact].name : "a condition on its sizes";
}

/* Says that no row takes a call, and which one is nearest: the one of which the fewest facts fail. */
static int refuse_call(const Kernel *kernel, const uint64_t *facts, int ordinal, const Device *device, int is_ambiguous)
{
    int nearest = 0, fewest = kernel->fact_count + 1;
    char names[512] = "";
    if (is_ambiguous)
        return report(WRONG_LAUNCH, "%s(): several variants take these arguments, whose types are not known", kernel->name);
    for (int i = 0; i < kernel->row_count; i++) {
        int failing = 0;
        for (int k = 0; k < kernel->fact_count; k++)
            failing += (facts[k] & rows[kernel->first_row + i].required[k]) != rows[kernel->first_row + i].required[k];
        if (failing < fewest)
            nearest = i, fewest = failing;
    }
    const VariantEntry *row = &rows[kernel->first_row + nearest];
    for (int k = 0, length = 0; k < kernel->fact_count && length < (int)sizeof names - 1; k++)
        if ((facts[k] & row->required[k]) != row->required[k])
            length += snprintf(names + length, sizeof names - (size_t)length, length ? ", %s" : "%s", name_of_fact(kernel, k));
    return report(WRONG_LAUNCH, "%s(): no variant takes these arguments on device %d (compute capability %d.%d); the nearest is %s, which is not "
                  "for these values of %s", kernel->name, ordinal, device->capability / 10, device->capability % 10, row->key, names);
}

/* A launch in the current context, the device's; empty grids are none. */
static int launch_values(const Kernel *kernel, Device *device, int ordinal, Value *values, uint64_t *facts, CUstream stream)
{
    int64_t grid[3];
    memcpy(facts, device->facts[kernel - kernels], sizeof device->facts[0]);
    if (check_conditions(kernel, values, facts, device->num_sms) < 0)
        return -1;
    pthread_mutex_lock(&lock);
    int found = cached_row(kernel, facts);
    pthread_mutex_unlock(&lock);
    found = row_by_cost(kernel, facts, found, values, device->num_sms);
    if (found == COST_FAULT)
        return -1;
    int index = kernel->first_row + found;
    if (found < 0)
        return refuse_call(kernel, facts, ordinal, device, found == AMBIGUOUS);
    const VariantEntry *row = &rows[index];
    int empty = compute_grid(kernel, row, 0, values, device->num_sms, grid);
    if (empty)
        return empty < 0 ? -1 : 0;
    TensorMap maps[row->map_count + 1];
    void *addresses[row->passed_count + 1];
    uint64_t encoded[row->passed_count + 1];
    pthread_mutex_lock(&lock);
    int status = need_row(kernel, device, ordinal, index, stream) < 0 ? -1 : pass_arguments(kernel, index, values, addresses, encoded, maps);
    pthread_mutex_unlock(&lock);
    if (status < 0)
        return -1;
    const char *failing;
    CUresult code = launch_function(row, device->functions[index], grid, stream, addresses, &failing);
    return code == CUDA_SUCCESS ? 0 : report_driver(failing, code, NULL, index);
}

/* The facts of a kernel's parameters and options from what a call of its bare launch gives. */
static int read_kernel_arguments(const Kernel *kernel, const DLTensor *const *tensors, Value *values, uint64_t *facts, const Scalar *options,
                                 int *ordinal)
{
    for (int i = 0; i < kernel->parameter_count; i++) {
        const LaunchParameter *parameter = &kernel->parameters[i];
        const DLTensor *tensor = tensors[parameter->is_extent ? parameter->tensor : i];
        uint64_t fact = TYPE_MASK, type = TYPE_MASK;
        Axis axis = { 0, 0, 0 };
        int status = 0;
        if (parameter->is_extent) {
            status = !tensor ? report(WRONG_VALUE, "%s(): %s has to be given", kernel->name, kernel->parameters[parameter->tensor].name)
                             : dlpack_axis(tensor, parameter->axis, &axis) < 0 || check_extent(kernel, i, &axis, values, &fact) < 0 ? -1 : 0;
        } else if (parameter->kind == KIND_POINTER) {
            values[i].address = 0;
            status = tensor ? read_view(kernel, i, tensor, &type, &values[i].address, ordinal) : 0;
            fact = type | divisibility(values[i].address);
        } else if (parameter->kind == KIND_INTEGER) {
            fact = integer_facts(values[i].integer, 0);
        }
        if (status < 0)
            return -1;
        facts[DEVICE_FACTS + i] = fact & parameter->mask;
    }
    for (int i = 0; i < kernel->option_count; i++) {
        const Option *option = &kernel->options[i];
        facts[DEVICE_FACTS + kernel->parameter_count + i] =
            !options[i].is_given ? option->standard < 0 ? ~UINT64_C(0) : UINT64_C(1) << option->standard
                                 : bits_of_option(option, &options[i].value, option->values[0].is_float, options[i].text);
    }
    return 0;
}

/* The function of a kernel: its bare launch. */
int call_kernel(const Kernel *kernel, const DLTensor *const *tensors, const Value *values, const Scalar *options, void *stream)
{
    Value own[kernel->parameter_count + 1];
    uint64_t facts[kernel->fact_count];
    int ordinal = -1, pushed;
    memcpy(own, values, (size_t)kernel->parameter_count * sizeof *own);
    if (!kernel->has_grid)
        return result_of(report(WRONG_LAUNCH, "%s(): its manifest has no grid, which a launch from C needs", kernel->name));
    if (read_kernel_arguments(kernel, tensors, own, facts, options, &ordinal) < 0)
        return result_of(-1);
    if (ordinal < 0)
        return result_of(report(WRONG_VALUE, "%s(): no tensor says on which device it is to run", kernel->name));
    Device *device = get_device(ordinal);
    if (!device || enter_context(device, &pushed) < 0)
        return result_of(-1);
    int status = launch_values(kernel, device, ordinal, own, facts, stream);
    leave_context(pushed);
    return result_of(status);
}
