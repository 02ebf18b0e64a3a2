/* Calls of operators on tensors of DLPack.  Outputs that a call leaves out, and workspaces, are memory in the order of the stream. */

/* Reads a tensor that the call gives. */
static int read_tensor(OpCall *oc, int tensor, const DLTensor *view, int *ordinal)
{
    const Operator *op = oc->op;
    int index = parameter_of(op, tensor);
    if (read_view(&op->arguments, index, view, &oc->types[tensor], &oc->addresses[tensor], ordinal) < 0 ||
        axes_of_view(op, index, view, &oc->extents[tensor]) < 0)
        return -1;
    char type[TYPE_NAME];
    if (!oc->types[tensor])
        return wrong_element(&op->arguments, index, name_of_dlpack(view, type));
    oc->frame.given[op->scalar_count + tensor] = 1;
    oc->frame.aligned[tensor] = oc->addresses[tensor] % 16 == 0;
    return check_type(oc, tensor);
}

static int read_scalar(OpCall *oc, int number, const Scalar *given)
{
    const OpScalar *scalar = &oc->op->scalars[number];
    oc->frame.given[number] = (uint8_t)given->is_given;
    oc->frame.scalars[number] = given->is_given ? given->value : scalar->standard;
    oc->frame.texts[number] = given->is_given ? given->text : scalar->text;
    if (!given->is_given && scalar->is_required)
        return report(WRONG_VALUE, "%s(): %s has to be given", oc->op->name, scalar->name);
    if (scalar->kind == SCALAR_BOOL && (oc->frame.scalars[number].integer & ~INT64_C(1)))
        return report(WRONG_VALUE, "%s(): %s is %lld, and has to be 0 or 1", oc->op->name, scalar->name,
                      (long long)oc->frame.scalars[number].integer);
    return scalar->kind == SCALAR_STR ? check_word(oc, number) : 0;
}

/* Everything about the call that needs no device. */
static int read_operator_arguments(OpCall *oc, const DLTensor *const *tensors, const Scalar *scalars, int *ordinal)
{
    const Operator *op = oc->op;
    for (int i = 0; i < op->input_count + op->output_count; i++) {
        if (tensors[i] && read_tensor(oc, i, tensors[i], ordinal) < 0)
            return -1;
        if (!tensors[i] && i < op->input_count && !op->tensors[i].is_optional)
            return report(WRONG_VALUE, "%s(): %s has to be given", op->name, op->tensors[i].name);
    }
    for (int i = 0; i < op->scalar_count; i++)
        if (read_scalar(oc, i, &scalars[i]) < 0)
            return -1;
    if (*ordinal < 0)
        return report(WRONG_VALUE, "%s(): no tensor says on which device it is to run", op->name);
    return check_requirements(oc);
}

/* Memory for an output or a workspace. */
static int allocate(OpCall *oc, int tensor, CUstream stream)
{
    const Operator *op = oc->op;
    oc->types[tensor] = type_to_make(oc, tensor);
    if (!oc->types[tensor])
        return report(WRONG_TYPE, "%s(): no argument says which type %s is of; give it", op->name, op->tensors[tensor].name);
    if (extents_to_make(oc, tensor) < 0)
        return -1;
    uint64_t bytes = span_of(&oc->extents[tensor], bytes_of(oc->types[tensor]), INT64_MAX);
    oc->addresses[tensor] = 0;
    if (bytes && driver_check(memory.cuMemAllocAsync(&oc->addresses[tensor], (size_t)bytes, stream), "cuMemAllocAsync") < 0)
        return -1;
    oc->made |= UINT64_C(1) << tensor;
    oc->frame.given[op->scalar_count + tensor] = 1;
    return 0;
}

/* Gives back what was allocated; the error of the call stays the one that is reported. */
static int release(const OpCall *oc, CUstream stream, int status)
{
    CUresult code = CUDA_SUCCESS;
    for (int i = 0; oc->made >> i; i++)
        if (oc->made >> i & 1 && oc->addresses[i]) {
            CUresult freed = memory.cuMemFreeAsync(oc->addresses[i], stream);
            code = code == CUDA_SUCCESS ? freed : code;
        }
    return status < 0 ? status : driver_check(code, "cuMemFreeAsync");
}

static int launch_one(const OpCall *oc, const OpLaunch *launch, Device *device, int ordinal, CUstream stream)
{
    const Kernel *kernel = &kernels[launch->kernel];
    Value values[kernel->parameter_count + 1], options[kernel->option_count + 1];
    uint64_t facts[kernel->fact_count];
    int wanted = is_wanted(oc, launch);
    if (wanted <= 0)
        return wanted;
    return bind_launch(oc, launch, kernel, values, facts, options) < 0 ? -1 : launch_values(kernel, device, ordinal, values, facts, stream);
}

/* The launches of a call whose arguments have been read, in the current context. */
static int run_operator(OpCall *oc, Device *device, int ordinal, CUstream stream)
{
    const Operator *op = oc->op;
    if (compute_shapes(oc, device->num_sms) < 0)
        return -1;
    for (int i = op->input_count; i < tensor_count(op); i++)
        if (!is_left_out(oc, i) && ((!is_given(oc, i) && allocate(oc, i, stream) < 0) || match_tensor(oc, i) < 0))
            return -1;
    if (check_aliases(oc) < 0 || check_agreement(oc) < 0 || zero_tensors(oc, stream) < 0)
        return -1;
    for (int i = 0; i < op->launch_count; i++)
        if (launch_one(oc, &op->launches[i], device, ordinal, stream) < 0)
            return -1;
    return 0;
}

/* The function of an operator: inputs and outputs, of which optional inputs and any outputs may be NULL, and scalars. */
int call_operator(const Operator *op, const DLTensor *const *tensors, const Scalar *scalars, void *stream)
{
    int count = tensor_count(op), ordinal = -1, pushed;
    Extents extents[count];
    int64_t sizes[op->dim_count + 1], strides[op->stride_count + 1];
    Value values[op->scalar_count + 1];
    const char *texts[op->scalar_count + 1];
    uint8_t given[op->scalar_count + count], aligned[count];
    uint64_t addresses[count], types[count];
    int16_t packs[op->dim_count + 1];
    OpCall oc = { op, { sizes, strides, values, texts, given, aligned, 0 }, extents, addresses, types, packs, 0 };
    begin_operator(&oc);
    if (read_operator_arguments(&oc, tensors, scalars, &ordinal) < 0)
        return result_of(-1);
    Device *device = get_device(ordinal);
    if (!device || enter_context(device, &pushed) < 0)
        return result_of(-1);
    int status = release(&oc, stream, run_operator(&oc, device, ordinal, stream));
    leave_context(pushed);
    return result_of(status);
}
