/* A call of an operator, and the shapes of its tensors against the words of their declaration. */

typedef struct { int rank; int64_t sizes[MAX_RANK], strides[MAX_RANK]; } Extents;

/* One call, whatever its tensors are to the host.  The arrays have an element for each tensor, and lie on the stack of its thread. */
typedef struct OpCall {
    const Operator *op;
    OpFrame frame;
    Extents *extents;
    uint64_t *addresses;
    uint64_t *types;            /* one bit; all where the call does not say */
    int16_t *packs;             /* of each dimension that stands for any number: the tensor that has it */
    uint64_t made;              /* one bit for each tensor that the operator has made */
} OpCall;

static int tensor_count(const Operator *op)
{
    return op->input_count + op->output_count + op->workspace_count;
}

/* The number of the parameter in `arguments` that a tensor is: inputs, scalars, outputs, workspaces. */
static int parameter_of(const Operator *op, int tensor)
{
    return tensor < op->input_count ? tensor : tensor + op->scalar_count;
}

/* Whether a tensor is there: the call gives it, or the operator has made it. */
static int is_given(const OpCall *oc, int tensor)
{
    return oc->frame.given[oc->op->scalar_count + tensor];
}

/* What is known of no tensor yet. */
static void begin_operator(OpCall *oc)
{
    const Operator *op = oc->op;
    for (int i = 0; i < op->dim_count; i++)
        oc->frame.sizes[i] = op->fixed[i], oc->packs[i] = -1;
    memset(oc->frame.strides, 0, (size_t)op->stride_count * sizeof *oc->frame.strides);
    memset(oc->frame.given, 0, (size_t)(op->scalar_count + tensor_count(op)));
    memset(oc->frame.aligned, 1, (size_t)tensor_count(op));
    memset(oc->addresses, 0, (size_t)tensor_count(op) * sizeof *oc->addresses);
    memset(oc->types, 0xFF, (size_t)tensor_count(op) * sizeof *oc->types);
    oc->made = 0;
}

static int report_fault(const Operator *op)
{
    return report(WRONG_LAUNCH, "%s(): an expression of its declaration overflows 64 bits, or divides by zero", op->name);
}

static int refuse_rank(const Kernel *arguments, int index, int64_t rank)
{
    return report(WRONG_VALUE, "%s(): %s has %lld dimensions; operators take up to %d", arguments->name,
                  arguments->parameters[index].name, (long long)rank, (int)MAX_RANK);
}

/* The axes of a DLPack tensor; -1 with a report. */
static int axes_of_view(const Operator *op, int index, const DLTensor *view, Extents *extents)
{
    if (view->ndim > MAX_RANK)
        return refuse_rank(&op->arguments, index, view->ndim);
    extents->rank = view->ndim;
    int64_t dense = 1;
    for (int i = view->ndim - 1; i >= 0; i--) {
        extents->sizes[i] = view->shape[i];
        extents->strides[i] = view->strides ? view->strides[i] : dense;
        dense *= view->shape[i];
    }
    return 0;
}

/* Room for the text of sizes or strides. */
enum { EXTENTS_TEXT = MAX_RANK * 22 };

/* Sizes or strides as Python writes a tuple. */
static const char *text_of_extents(char *text, const int64_t *numbers, int count)
{
    int length = snprintf(text, EXTENTS_TEXT, "(");
    for (int i = 0; i < count; i++)
        length += snprintf(text + length, (size_t)(EXTENTS_TEXT - length), i ? ", %lld" : "%lld", (long long)numbers[i]);
    snprintf(text + length, (size_t)(EXTENTS_TEXT - length), count == 1 ? ",)" : ")");
    return text;
}

/* Says what is wrong with a tensor, and its shape and strides. */
static int wrong_shape(const OpCall *oc, int tensor, const char *what)
{
    const OpTensor *declared = &oc->op->tensors[tensor];
    const Extents *found = &oc->extents[tensor];
    char sizes[EXTENTS_TEXT], strides[EXTENTS_TEXT];
    return report(WRONG_VALUE, "%s(): %s %s: it has the shape %s with strides %s, and is declared as (%s)", oc->op->name, declared->name,
                  what, text_of_extents(sizes, found->sizes, found->rank), text_of_extents(strides, found->strides, found->rank),
                  declared->shape);
}

static const char *type_name(uint64_t bit)
{
    static const char *const words[] = { "i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "fp16", "bf16", "fp32", "fp64",
                                         "fp8e4nv", "fp8e5", "fp8e4b8", "fp8e4b15", "fp8e5b16" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (bit == UINT64_C(1) << i)
            return words[i];
    return "an unknown type";
}

/* Whether a tensor holds what the kernels take, and the same as the tensors of its group before it. */
static int check_type(OpCall *oc, int tensor)
{
    const OpTensor *declared = &oc->op->tensors[tensor];
    uint64_t type = oc->types[tensor];
    if (!(type & declared->types)) {
        char text[256] = "";
        for (uint64_t bits = declared->types; bits; bits &= bits - 1) {
            const char *separator = !*text ? "" : bits & (bits - 1) ? ", " : " or ";
            size_t length = strlen(text);
            snprintf(text + length, sizeof text - length, "%s%s", separator, type_name(bits & -bits));
        }
        return report(WRONG_TYPE, "%s(): %s holds %s, and the operator takes %s", oc->op->name, declared->name, type_name(type), text);
    }
    for (int i = 0; i < tensor && declared->group >= 0; i++)
        if (oc->op->tensors[i].group == declared->group && is_given(oc, i) && oc->types[i] != type && !(oc->types[i] & (oc->types[i] - 1)) &&
            !(type & (type - 1)))
            return report(WRONG_TYPE, "%s(): %s holds %s and %s holds %s; both have to be of one type", oc->op->name,
                          oc->op->tensors[i].name, type_name(oc->types[i]), declared->name, type_name(type));
    return 0;
}

/* Says which tensor has another size along a dimension. */
static int wrong_size(const OpCall *oc, int tensor, int place, int64_t size)
{
    const OpTensor *declared = &oc->op->tensors[tensor];
    int dim = declared->dims[place];
    for (int i = 0; i < tensor; i++)
        for (int k = 0; k < oc->op->tensors[i].rank; k++)
            if (oc->op->tensors[i].dims[k] == dim && is_given(oc, i) && oc->op->fixed[dim] < 0) {
                const OpTensor *known = &oc->op->tensors[i];
                const Extents *one = &oc->extents[i], *other = &oc->extents[tensor];
                char sizes[EXTENTS_TEXT], own[EXTENTS_TEXT];
                return report(WRONG_VALUE, "%s(): %s is %lld in %s and %lld in %s: %s (%s) has the shape %s, %s (%s) has %s", oc->op->name,
                              oc->op->dims[dim], (long long)oc->frame.sizes[dim], known->name, (long long)size, declared->name, known->name,
                              known->shape, text_of_extents(sizes, one->sizes, one->rank), declared->name, declared->shape,
                              text_of_extents(own, other->sizes, other->rank));
            }
    char what[160];
    snprintf(what, sizeof what, "has %lld elements where %lld are expected (%.60s)", (long long)size,
                  (long long)oc->frame.sizes[dim], oc->op->dims[dim]);
    return wrong_shape(oc, tensor, what);
}

/* The dimensions from `from` on that one word stands for: their product becomes its size, and they have to be without gaps. */
static int match_pack(OpCall *oc, int tensor, int place, int from, int count, int64_t *size, int64_t *stride)
{
    const Extents *found = &oc->extents[tensor];
    int dim = oc->op->tensors[tensor].dims[place];
    int64_t product = 1, inner = 0;
    for (int i = from + count - 1; i >= from; i--) {
        if (found->sizes[i] != 1 && product > 0) {
            if (inner && found->strides[i] != inner)
                return wrong_shape(oc, tensor, "has dimensions that cannot be taken as one; call contiguous() on it");
            *stride = inner ? *stride : found->strides[i];
            inner = found->strides[i];
        }
        if (__builtin_mul_overflow(product, found->sizes[i], &product))
            return wrong_shape(oc, tensor, "has more than 2^63 elements");
        inner = found->sizes[i] != 1 ? inner * found->sizes[i] : inner;
    }
    *size = product;
    if (oc->packs[dim] < 0) {
        oc->packs[dim] = (int16_t)tensor;
        return 0;
    }
    const OpTensor *other = &oc->op->tensors[oc->packs[dim]];
    const Extents *known = &oc->extents[oc->packs[dim]];
    int is_same = known->rank - other->rank + 1 == count;
    for (int i = 0; is_same && i < count; i++)
        is_same = known->sizes[other->pack + i] == found->sizes[from + i];
    if (!is_same && (known->rank - other->rank + 1 != count || *size == oc->frame.sizes[dim]))
        return wrong_size(oc, tensor, place, *size);
    return 0;
}

/* Sizes of the dimensions of a tensor, which have to be those of the tensors before it, and its strides. */
static int match_tensor(OpCall *oc, int tensor)
{
    const OpTensor *declared = &oc->op->tensors[tensor];
    const Extents *found = &oc->extents[tensor];
    int64_t *strides = oc->frame.strides + declared->first_stride;
    int packed = found->rank - declared->rank + 1, is_empty = 0;
    if (declared->pack < 0 ? found->rank != declared->rank : packed < 0) {
        char what[96];
        snprintf(what, sizeof what, "has %d dimensions, and %s%d are expected", found->rank, declared->pack < 0 ? "" : "at least ",
                      declared->rank - (declared->pack >= 0));
        return wrong_shape(oc, tensor, what);
    }
    for (int i = 0; i < found->rank; i++) {
        if (found->sizes[i] < 0)
            return wrong_shape(oc, tensor, "has a size below zero");
        is_empty = is_empty || !found->sizes[i];
    }
    int64_t behind = 1;  /* the stride of a dimension that follows without a gap */
    for (int place = declared->rank - 1, axis = found->rank; place >= 0; place--) {
        int is_pack = place == declared->pack, dim = declared->dims[place];
        axis -= is_pack ? packed : 1;
        int64_t size = 1, stride = behind;
        if (is_pack) {
            if (match_pack(oc, tensor, place, axis, packed, &size, &stride) < 0)
                return -1;
        } else {
            size = found->sizes[axis];
            stride = size == 1 ? behind : found->strides[axis];
        }
        if (oc->frame.sizes[dim] < 0)
            oc->frame.sizes[dim] = size;
        else if (oc->frame.sizes[dim] != size)
            return wrong_size(oc, tensor, place, size);
        if (!(declared->free >> place & 1) && stride != behind && size > 1 && !is_empty) {
            char what[160];
            snprintf(what, sizeof what, "has a stride of %lld along %.60s, which has to be %lld; call contiguous() on it",
                          (long long)stride, oc->op->dims[dim], (long long)behind);
            return wrong_shape(oc, tensor, what);
        }
        strides[place] = stride;
        if (__builtin_mul_overflow(stride, size, &behind))
            return wrong_shape(oc, tensor, "has strides beyond 64 bits");
    }
    return 0;
}

/* Whether the call fulfils what the operator requires of its arguments; -1 with a report. */
static int check_requirements(OpCall *oc)
{
    const Operator *op = oc->op;
    int fault = 0;
    for (int i = 0; i < op->input_count; i++)
        if (is_given(oc, i) && match_tensor(oc, i) < 0)
            return -1;
    for (int i = 0; i < op->dim_count; i++) /* a tensor that is not there has no elements */
        oc->frame.sizes[i] = oc->frame.sizes[i] < 0 ? 0 : oc->frame.sizes[i];
    op->defaults(&oc->frame, &fault);
    int failing = fault ? -1 : op->require(&oc->frame, &fault);
    if (fault)
        return report_fault(op);
    return failing < 0 ? 0 : report(WRONG_VALUE, "%s(): %s", op->name, op->messages[failing]);
}
