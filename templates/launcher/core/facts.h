/* Facts of arguments: which types they may have, which numbers divide them, and how tensors lie. */

/* What is known of which powers of two divide a number. */
static inline uint64_t divisibility(uint64_t number)
{
    return (uint64_t)((number & 15) == 0) * HINT_16 | (uint64_t)((number & 7) == 0) * HINT_8 |
           (uint64_t)((number & 3) == 0) * HINT_4;
}

/* The integer types that hold a value, and its hints; `large` says that it is over INT64_MAX. */
static inline uint64_t integer_facts(int64_t value, int large)
{
    uint64_t facts = divisibility((uint64_t)value) | (uint64_t)(large || value >= 0) * TYPE_U64;
    if (large)
        return facts;
    return facts | TYPE_I64 | (uint64_t)(value == (int32_t)value) * TYPE_I32 | (uint64_t)(value == (int16_t)value) * TYPE_I16 |
           (uint64_t)(value == (int8_t)value) * TYPE_I8 | (uint64_t)(value == (uint32_t)value) * TYPE_U32 |
           (uint64_t)(value == (uint16_t)value) * TYPE_U16 | (uint64_t)(value == (uint8_t)value) * TYPE_U8 |
           (uint64_t)((value & ~INT64_C(1)) == 0) * TYPE_I1 | (uint64_t)(value == 1) * HINT_1;
}

/* The DLPack structures, version 0: https://dmlc.github.io/dlpack */
typedef struct DLTensor {
    void *data;
    struct { int32_t device_type, device_id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

enum { DLPACK_INT = 0, DLPACK_UNSIGNED = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4, DLPACK_BOOL = 6,
       DLPACK_FLOAT8_E4M3FN = 10, DLPACK_FLOAT8_E4M3FNUZ = 11, DLPACK_FLOAT8_E5M2 = 12, DLPACK_FLOAT8_E5M2FNUZ = 13,
       DLPACK_CUDA = 2, DLPACK_CUDA_MANAGED = 13 };

static uint64_t type_of_format(char code, long size)
{
    static const uint64_t integers[] = {TYPE_I8, TYPE_I16, TYPE_I32, TYPE_I64}, unsigneds[] = {TYPE_U8, TYPE_U16, TYPE_U32, TYPE_U64};
    int log2 = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : size == 8 ? 3 : -1;
    if (log2 < 0)
        return 0;
    switch (code) {
    case 'b': return size == 1 ? TYPE_I1 : 0;
    case 'i': return integers[log2];
    case 'u': return unsigneds[log2];
    case 'f': return size == 2 ? TYPE_FP16 : size == 4 ? TYPE_FP32 : size == 8 ? TYPE_FP64 : 0;
    case 'V': return TYPE_MASK; /* bytes without a type, as ml_dtypes has them: the other arguments decide */
    default: return 0;
    }
}

/* The element type of a DLPack tensor; 0 where it is none that is known. */
static uint64_t type_of_dlpack(const DLTensor *tensor)
{
    long size = tensor->dtype.lanes == 1 && tensor->dtype.bits % 8 == 0 ? tensor->dtype.bits / 8 : 0;
    switch (tensor->dtype.code) {
    case DLPACK_INT: return type_of_format('i', size);
    case DLPACK_UNSIGNED: return type_of_format('u', size);
    case DLPACK_FLOAT: return type_of_format('f', size);
    case DLPACK_BFLOAT: return size == 2 ? TYPE_BF16 : 0;
    case DLPACK_BOOL: return type_of_format('b', size);
    case DLPACK_FLOAT8_E4M3FN: return TYPE_FP8E4NV;
    case DLPACK_FLOAT8_E4M3FNUZ: return TYPE_FP8E4B8;
    case DLPACK_FLOAT8_E5M2: return TYPE_FP8E5;
    case DLPACK_FLOAT8_E5M2FNUZ: return TYPE_FP8E5B16;
    default: return 0;
    }
}

/* What one axis of a tensor is like; the other two count where the axis is there. */
typedef struct { int64_t rank, size, stride; /* in elements */ } Axis;

/* The same of a DLPack tensor; -1 where it is malformed, or there is none. */
static int dlpack_axis(const DLTensor *tensor, int axis, Axis *found)
{
    if (!tensor)
        return -1;
    found->rank = tensor->ndim;
    if (found->rank <= axis)
        return 0;
    found->size = tensor->shape[axis];
    found->stride = 1;
    if (tensor->strides) {
        found->stride = tensor->strides[axis];
        return 0;
    }
    for (int i = axis + 1; i < tensor->ndim; i++)
        if (__builtin_mul_overflow(found->stride, tensor->shape[i], &found->stride))
            return -1;
    return 0;
}

/* A size or stride of an axis of a tensor that the kernel takes as a tensor descriptor.  An axis of one element has any stride. */
static int check_extent(const Kernel *kernel, int index, const Axis *found, Value *values, uint64_t *fact)
{
    const LaunchParameter *extent = &kernel->parameters[index];
    const char *name = kernel->parameters[extent->tensor].name;
    int64_t rank = found->rank, size = found->size, stride = found->stride;
    if (rank != extent->rank)
        return report(WRONG_VALUE, "%s(): %s has %lld dimension%s, the kernel takes %d", kernel->name, name, (long long)rank,
                      rank == 1 ? "" : "s", extent->rank);
    if (size < 0)
        return report(WRONG_VALUE, "%s(): %s has %lld elements along axis %d", kernel->name, name, (long long)size, extent->axis);
    int is_aligned = (uint64_t)stride * (uint64_t)extent->stride_bytes % 16 == 0;  /* exact, for 16 divides 2^64 */
    if (size > 1 && (extent->stride_bytes ? !is_aligned : extent->axis == extent->rank - 1 && stride != 1))
        return report(WRONG_VALUE, extent->stride_bytes ? "%s(): %s has a stride of %lld elements along axis %d, not a multiple of 16 bytes"
                     : "%s(): %s has a stride of %lld elements along axis %d, where it must be contiguous",
                     kernel->name, name, (long long)stride, extent->axis);
    values[index].integer = !extent->stride_bytes ? size : size > 1 ? stride : 16;
    *fact = integer_facts(values[index].integer, 0);
    return 0;
}
