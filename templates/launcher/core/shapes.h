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

/* The tensor that a parameter is; NULL where it is one of a kernel, and none of an operator's. */
static const OpTensor *tensor_of_parameter(const Kernel *arguments, int index)
{
    const Operator *op = arguments->of;
    return op ? &op->tensors[index < op->input_count ? index : index - op->scalar_count] : NULL;
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

/* Adds sizes or strides as Python writes a tuple. */
static void add_extents(Message *message, const int64_t *numbers, int count)
{
    for (int i = 0; i < count; i++)
        add_text(message, i ? ", %lld" : "(%lld", (long long)numbers[i]);
    add_text(message, count == 0 ? "()" : count == 1 ? ",)" : ")");
}

/* Says what is wrong with a tensor, and its shape and strides. */
__attribute__((format(printf, 3, 4))) static int wrong_shape(const OpCall *oc, int tensor, const char *what, ...)
{
    const OpTensor *declared = &oc->op->tensors[tensor];
    const Extents *found = &oc->extents[tensor];
    Message *message = begin_message();
    va_list arguments;
    add_text(message, "%s(): %s ", oc->op->name, declared->name);
    va_start(arguments, what);
    add_words(message, what, arguments);
    va_end(arguments);
    add_text(message, ": it has the shape ");
    add_extents(message, found->sizes, found->rank);
    add_text(message, " with strides ");
    add_extents(message, found->strides, found->rank);
    add_text(message, ", and is declared as (%s)", declared->shape);
    return report_message(WRONG_VALUE, message);
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

/* Adds the names of types. */
static void add_types(Message *message, uint64_t types)
{
    for (uint64_t bits = types; bits; bits &= bits - 1)
        add_text(message, "%s%s", bits == types ? "" : bits & (bits - 1) ? ", " : " or ", type_name(bits & -bits));
}

/* Says that a tensor of an operator holds another type than those that it takes. */
static int wrong_element(const Kernel *arguments, int index, const char *type)
{
    const OpTensor *declared = tensor_of_parameter(arguments, index);
    Message *message = begin_message();
    add_text(message, "%s(): %s holds %s, and the operator takes ", arguments->name, declared->name, type);
    add_types(message, declared->types);
    return report_message(WRONG_TYPE, message);
}

/* The name of an element type of DLPack's, whether there are kernels for it or not. */
enum { TYPE_NAME = 48 };

static const char *name_of_dlpack(const DLTensor *tensor, char *text)
{
    static const char *const kinds[] = { "int", "uint", "float", NULL, "bfloat", "complex", "bool" };
    int code = tensor->dtype.code, bits = tensor->dtype.bits, lanes = tensor->dtype.lanes;
    int is_known = code < (int)(sizeof kinds / sizeof *kinds) && kinds[code] && bits;
    int length = is_known ? snprintf(text, TYPE_NAME, "%s%d", kinds[code], bits) : snprintf(text, TYPE_NAME, "an unknown type");
    if (lanes != 1)
        snprintf(text + length, TYPE_NAME - (size_t)length, "x%d", lanes);
    return text;
}

/* Whether a tensor holds what the kernels take, and the same as the tensors of its group before it. */
static int check_type(OpCall *oc, int tensor)
{
    const OpTensor *declared = &oc->op->tensors[tensor];
    uint64_t type = oc->types[tensor];
    if (!(type & declared->types))
        return wrong_element(&oc->op->arguments, parameter_of(oc->op, tensor), type_name(type));
    for (int i = 0; i < tensor && declared->group >= 0; i++)
        if (oc->op->tensors[i].group == declared->group && is_given(oc, i) && oc->types[i] != type && !(oc->types[i] & (oc->types[i] - 1)) &&
            !(type & (type - 1)))
            return report(WRONG_TYPE, "%s(): %s holds %s and %s holds %s; both have to be of one type", oc->op->name,
                          oc->op->tensors[i].name, type_name(oc->types[i]), declared->name, type_name(type));
    return 0;
}

/* Adds the size of the dimensions that a word of a tensor's shape stands for: a number, or a tuple where it may stand for several. */
static void add_size(Message *message, const OpCall *oc, int tensor, int place, int64_t size)
{
    const OpTensor *declared = &oc->op->tensors[tensor];
    const Extents *found = &oc->extents[tensor];
    if (place == declared->pack)
        add_extents(message, found->sizes + place, found->rank - declared->rank + 1);
    else
        add_text(message, "%lld", (long long)size);
    add_text(message, " in %s", declared->name);
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
                Message *message = begin_message();
                add_text(message, "%s(): %s is ", oc->op->name, oc->op->dims[dim]);
                add_size(message, oc, i, k, oc->frame.sizes[dim]);
                add_text(message, " and ");
                add_size(message, oc, tensor, place, size);
                add_text(message, ": %s (%s) has the shape ", known->name, known->shape);
                add_extents(message, one->sizes, one->rank);
                add_text(message, ", %s (%s) has ", declared->name, declared->shape);
                add_extents(message, other->sizes, other->rank);
                return report_message(WRONG_VALUE, message);
            }
    int64_t expected = oc->frame.sizes[dim];
    return wrong_shape(oc, tensor, "has %lld element%s where %lld %s expected (%s)", (long long)size, size == 1 ? "" : "s",
                       (long long)expected, expected == 1 ? "is" : "are", oc->op->dims[dim]);
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
        int expected = declared->rank - (declared->pack >= 0);
        return wrong_shape(oc, tensor, "has %d dimension%s, and %s%d %s expected", found->rank, found->rank == 1 ? "" : "s",
                           declared->pack < 0 ? "" : "at least ", expected, expected == 1 ? "is" : "are");
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
        if (!(declared->free >> place & 1) && stride != behind && size > 1 && !is_empty)
            return wrong_shape(oc, tensor, "has a stride of %lld along %s, which has to be %lld; call contiguous() on it",
                               (long long)stride, oc->op->dims[dim], (long long)behind);
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
