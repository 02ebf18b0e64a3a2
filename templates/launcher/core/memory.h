/* Memory of an operator's tensors: what is to be made, what two tensors share, and what is zero at the start. */

/* The element type of an output or workspace: its own, or that of its group. */
static uint64_t type_to_make(const OpCall *oc, int tensor)
{
    const OpTensor *declared = &oc->op->tensors[tensor];
    if (!(declared->types & (declared->types - 1)))
        return declared->types;
    for (int i = 0; i < tensor; i++)
        if (declared->group >= 0 && oc->op->tensors[i].group == declared->group && is_given(oc, i) && !(oc->types[i] & (oc->types[i] - 1)))
            return oc->types[i];
    return 0;
}

/* Whether an optional output stays out: the operator returns none of these, and the call gives none. */
static int is_left_out(const OpCall *oc, int tensor)
{
    const Operator *op = oc->op;
    int is_output = tensor >= op->input_count && tensor < op->input_count + op->output_count, is_asked_for = 0;
    for (int i = op->input_count; is_output && i < op->input_count + op->output_count; i++) {
        int is_returned = 0;
        for (int k = 0; k < op->return_count; k++)
            is_returned = is_returned || op->returned[k] == i;
        is_asked_for = is_asked_for || (op->tensors[i].is_optional && (is_returned || is_given(oc, i)));
    }
    return is_output && op->tensors[tensor].is_optional && !is_asked_for;
}

/* Sizes of a tensor to make, and its strides, which have no gaps; -1 with a report. */
static int extents_to_make(OpCall *oc, int tensor)
{
    const OpTensor *declared = &oc->op->tensors[tensor];
    Extents *made = &oc->extents[tensor];
    made->rank = 0;
    for (int place = 0; place < declared->rank; place++) {
        int dim = declared->dims[place], count = 1;
        const int64_t *sizes = &oc->frame.sizes[dim];
        if (place == declared->pack) {
            const OpTensor *source = &oc->op->tensors[oc->packs[dim]];
            sizes = &oc->extents[oc->packs[dim]].sizes[source->pack];
            count = oc->extents[oc->packs[dim]].rank - source->rank + 1;
        }
        if (made->rank + count > MAX_RANK)
            return refuse_rank(&oc->op->arguments, parameter_of(oc->op, tensor), made->rank + count);
        for (int i = 0; i < count; i++)
            made->sizes[made->rank++] = sizes[i];
    }
    int64_t dense = 1;
    for (int i = made->rank - 1; i >= 0; i--) {
        made->strides[i] = dense;
        if (made->sizes[i] < 0 || __builtin_mul_overflow(dense, made->sizes[i] ? made->sizes[i] : 1, &dense))
            return wrong_shape(oc, tensor, "cannot be made");
    }
    return 0;
}

static int64_t bytes_of(uint64_t types)
{
    if (types & (TYPE_I64 | TYPE_U64 | TYPE_FP64))
        return 8;
    if (types & (TYPE_I32 | TYPE_U32 | TYPE_FP32))
        return 4;
    return types & (TYPE_I16 | TYPE_U16 | TYPE_FP16 | TYPE_BF16) ? 2 : 1;
}

/* Bytes from a tensor's first element to the end of its last, of the dimensions with strides below `limit`; 0: it is empty. */
static uint64_t span_of(const Extents *extents, int64_t bytes, int64_t limit)
{
    int64_t last = 0;
    for (int i = 0; i < extents->rank; i++) {
        if (!extents->sizes[i])
            return 0;
        int64_t stride = extents->strides[i] * bytes;
        last += extents->sizes[i] > 1 && stride < limit ? (extents->sizes[i] - 1) * stride : 0;
    }
    return (uint64_t)(last + bytes);
}

/* Whether all strides of a tensor from a period on are multiples of it. */
static int has_period(const Extents *extents, int64_t bytes, int64_t period)
{
    for (int i = 0; i < extents->rank; i++)
        if (extents->sizes[i] > 1 && extents->strides[i] * bytes >= period && extents->strides[i] * bytes % period)
            return 0;
    return 1;
}

/* Whether two tensors have bytes in common; parts of one row beside each other, as of a packed q, k and v, have not. */
static int is_overlapping(const OpCall *oc, int one, int other)
{
    const Extents *a = &oc->extents[one], *b = &oc->extents[other];
    int64_t bytes_a = bytes_of(oc->types[one] & oc->op->tensors[one].types), bytes_b = bytes_of(oc->types[other] & oc->op->tensors[other].types);
    uint64_t from_a = oc->addresses[one], from_b = oc->addresses[other];
    uint64_t span_a = span_of(a, bytes_a, INT64_MAX), span_b = span_of(b, bytes_b, INT64_MAX);
    if (!span_a || !span_b || from_a + span_a <= from_b || from_b + span_b <= from_a)
        return 0;
    for (int i = 0; i < a->rank; i++) {
        int64_t period = a->strides[i] * bytes_a;
        if (a->sizes[i] < 2 || period <= 0 || !has_period(a, bytes_a, period) || !has_period(b, bytes_b, period))
            continue;
        uint64_t inner_a = span_of(a, bytes_a, period), inner_b = span_of(b, bytes_b, period);
        uint64_t place = (from_b >= from_a ? from_b - from_a : (uint64_t)period - (from_a - from_b) % (uint64_t)period) % (uint64_t)period;
        if (inner_a <= place && place + inner_b <= (uint64_t)period)
            return 0;
    }
    return 1;
}

/* Refuses memory that is written for two elements, or for a tensor and another one. */
static int check_aliases(OpCall *oc)
{
    const Operator *op = oc->op;
    for (int i = 0; i < op->input_count + op->output_count; i++) {
        if (!op->tensors[i].is_written || !is_given(oc, i) || oc->made >> i & 1)
            continue;
        for (int axis = 0; axis < oc->extents[i].rank; axis++)
            if (!oc->extents[i].strides[axis] && oc->extents[i].sizes[axis] > 1)
                return wrong_shape(oc, i, "is written, and several of its elements are one");
        for (int k = 0; k < op->input_count + op->output_count; k++) {
            if (k == i || !is_given(oc, k) || oc->made >> k & 1 || !is_overlapping(oc, i, k))
                continue;
            size_t length = (size_t)oc->extents[i].rank * sizeof(int64_t);
            int is_same = oc->addresses[i] == oc->addresses[k] &&
                          oc->extents[i].rank == oc->extents[k].rank &&
                          memcmp(oc->extents[i].sizes, oc->extents[k].sizes, length) == 0 &&
                          memcmp(oc->extents[i].strides, oc->extents[k].strides, length) == 0;
            if (op->tensors[i].may_alias && k < op->input_count && is_same)
                continue;
            return report(WRONG_VALUE, "%s(): %s is written, and shares memory with %s", op->name, op->tensors[i].name, op->tensors[k].name);
        }
    }
    return 0;
}

/* Fills what the manifest wants zeroed, on the stream of the call, in the current context; -1 with a report. */
static int zero_tensors(const OpCall *oc, CUstream stream)
{
    const Operator *op = oc->op;
    for (int i = op->input_count; i < tensor_count(op); i++) {
        int64_t bytes = bytes_of(oc->types[i] & op->tensors[i].types);
        uint64_t span = op->tensors[i].is_zeroed && is_given(oc, i) ? span_of(&oc->extents[i], bytes, INT64_MAX) : 0;
        if (span && driver_check(driver.cuMemsetD8Async(oc->addresses[i], 0, (size_t)span, stream), "cuMemsetD8Async") < 0)
            return -1;
    }
    return 0;
}

/* What the expressions of an operator see of a call before sizes are computed: so many words. */
static int words_of_call(const Operator *op)
{
    return op->dim_count + op->stride_count + op->scalar_count + 2 + (op->scalar_count + 2 * tensor_count(op) + 7) / 8;
}

static void read_words(const OpCall *oc, int64_t *words)
{
    const Operator *op = oc->op;
    const OpFrame *frame = &oc->frame;
    int tensors = tensor_count(op);
    words[words_of_call(op) - 1] = 0; /* which the flags may not fill */
    *words++ = 1; /* it is no empty entry */
    *words++ = frame->num_sms;
    memcpy(words, frame->sizes, (size_t)op->dim_count * sizeof *words);
    memcpy(words += op->dim_count, frame->strides, (size_t)op->stride_count * sizeof *words);
    memcpy(words += op->stride_count, frame->scalars, (size_t)op->scalar_count * sizeof *words);
    uint8_t *flags = (uint8_t *)(words + op->scalar_count);
    memcpy(flags, frame->given, (size_t)(op->scalar_count + tensors));
    memcpy(flags + op->scalar_count + tensors, frame->aligned, (size_t)tensors);
}

/* Sizes of what is to be made, on a device of so many multiprocessors; -1 with a report.  What choices come to, each thread remembers of
   a few calls: hundreds of nanoseconds otherwise. */
static int compute_shapes(OpCall *oc, int num_sms)
{
    const Operator *op = oc->op;
    oc->frame.num_sms = num_sms;
    int fault = 0, count = words_of_call(op);
    int64_t words[count], *slot = NULL;
    size_t bytes = (size_t)count * sizeof *words, sizes = (size_t)op->dim_count * sizeof *words;
    if (op->memory) {
        read_words(oc, words);
        uint64_t hash = 0;
        for (int i = 0; i < count; i++)
            hash = (hash ^ (uint64_t)words[i]) * UINT64_C(0x9E3779B97F4A7C15), hash ^= hash >> 32;
        slot = op->memory() + (hash >> 60) * (uint64_t)(count + op->dim_count);
        if (memcmp(slot, words, bytes) == 0) {
            memcpy(oc->frame.sizes, slot + count, sizes);
            return 0;
        }
    }
    op->shapes(&oc->frame, &fault);
    if (fault)
        return report_fault(op);
    if (slot) {
        memcpy(slot, words, bytes);
        memcpy(slot + count, oc->frame.sizes, sizes);
    }
    return 0;
}

/* Whether expressions that are bound to one argument agree; -1 with a report. */
static int check_agreement(const OpCall *oc)
{
    int fault = 0, failing = oc->op->agree(&oc->frame, &fault);
    if (fault)
        return report_fault(oc->op);
    return failing < 0 ? 0 : report(WRONG_VALUE, "%s(): %s", oc->op->name, oc->op->messages[failing]);
}
