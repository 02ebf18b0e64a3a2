/* Operators as custom calls of XLA, which JAX reaches by jax.ffi: https://openxla.org/xla/custom_call
 *
 * The structures are those of version 0 of XLA's interface in C for foreign functions, as far as they are used; each begins with its size,
 * and later versions add fields at the end.  A call has as operands the inputs that are given, as results all outputs, and as
 * attributes the scalars by name and `_given`, one bit for each input that is given. */

enum { XLA_VERSION_MAJOR = 0, XLA_VERSION_MINOR = 1, XLA_METADATA = 1, XLA_EXECUTE = 3, XLA_BUFFER = 1, XLA_SCALAR = 3, XLA_STRING = 4,
       XLA_INVALID_ARGUMENT = 3, XLA_INTERNAL = 13, XLA_S64 = 5, XLA_F64 = 12 };

typedef struct XlaExtension { size_t size; int type; struct XlaExtension *next; } XlaExtension;
typedef struct { size_t size; XlaExtension *extensions; int major, minor; } XlaVersion;
typedef struct { size_t size; XlaVersion version; uint32_t traits; } XlaMetadata;
typedef struct { XlaExtension extension; XlaMetadata *metadata; } XlaMetadataExtension;
typedef struct { size_t size; XlaExtension *extensions; const char *message; int code; } XlaErrorArguments;
typedef struct { size_t size; XlaExtension *extensions; XlaError *error; } XlaDestroyArguments;
typedef struct { size_t size; XlaExtension *extensions; void *context, *stream; } XlaStreamArguments;
typedef struct { size_t size; XlaExtension *extensions; int type; void *data; int64_t rank; int64_t *sizes; } XlaBuffer;
typedef struct { size_t size; XlaExtension *extensions; int64_t count; const int *types; void **values; } XlaValues;
typedef struct { const char *text; size_t length; } XlaText;
typedef struct { int type; const void *value; } XlaScalar;
typedef struct { size_t size; XlaExtension *extensions; int64_t count; const int *types; const XlaText **names; void **values; } XlaAttributes;

typedef struct {
    size_t size;
    XlaExtension *extensions;
    XlaVersion version;
    void *internal;
    XlaError *(*create_error)(XlaErrorArguments *);
    void *message_of_error;
    void (*destroy_error)(XlaDestroyArguments *);
    void *register_handler;
    XlaError *(*stream)(XlaStreamArguments *);
} XlaApi;

struct XlaCallFrame {
    size_t size;
    XlaExtension *extensions;
    const XlaApi *api;
    void *context;
    int stage;
    XlaValues operands, results;
    XlaAttributes attributes;
};

/* The error that XLA is given for the one that was reported. */
static XlaError *xla_error(const XlaApi *api)
{
    int code = failure.code == INVALID_ARGUMENT ? XLA_INVALID_ARGUMENT : XLA_INTERNAL;
    XlaErrorArguments arguments = { sizeof arguments, NULL, failure.text, code };
    return api->create_error(&arguments);
}

/* The element type of XLA's as DLPack has it; 0 bits for one that is not known there. */
static void type_of_xla(int type, DLTensor *view)
{
    static const struct { uint8_t code, bits; } types[] = {
        [1] = { DLPACK_BOOL, 8 }, [2] = { DLPACK_INT, 8 }, [3] = { DLPACK_INT, 16 }, [4] = { DLPACK_INT, 32 }, [5] = { DLPACK_INT, 64 },
        [6] = { DLPACK_UNSIGNED, 8 }, [7] = { DLPACK_UNSIGNED, 16 }, [8] = { DLPACK_UNSIGNED, 32 }, [9] = { DLPACK_UNSIGNED, 64 },
        [10] = { DLPACK_FLOAT, 16 }, [11] = { DLPACK_FLOAT, 32 }, [12] = { DLPACK_FLOAT, 64 }, [16] = { DLPACK_BFLOAT, 16 },
        [19] = { DLPACK_FLOAT8_E5M2, 8 }, [20] = { DLPACK_FLOAT8_E4M3FN, 8 }, [24] = { DLPACK_FLOAT8_E5M2FNUZ, 8 },
        [25] = { DLPACK_FLOAT8_E4M3FNUZ, 8 },
    };
    int is_known = type >= 0 && type < (int)(sizeof types / sizeof *types);
    view->dtype.code = is_known ? types[type].code : 0;
    view->dtype.bits = is_known ? types[type].bits : 0;
    view->dtype.lanes = 1;
}

/* The device of an address; 0 where the driver does not know it, as of an empty buffer. */
static int ordinal_of(const void *address)
{
    int ordinal = 0;
    if (address && driver.cuPointerGetAttribute(&ordinal, POINTER_DEVICE_ORDINAL, (uint64_t)(uintptr_t)address) != CUDA_SUCCESS)
        ordinal = 0;
    return ordinal;
}

static int view_of_xla(const Operator *op, const XlaValues *values, int64_t number, DLTensor *view)
{
    if (number >= values->count || values->types[number] != XLA_BUFFER)
        return report(WRONG_VALUE, "%s(): a custom call of XLA has too few buffers", op->name);
    const XlaBuffer *buffer = values->values[number];
    *view = (DLTensor){ .data = buffer->data, .ndim = (int32_t)buffer->rank, .shape = buffer->sizes };
    view->device.device_type = DLPACK_CUDA;
    view->device.device_id = ordinal_of(buffer->data);
    type_of_xla(buffer->type, view);
    return 0;
}

/* An attribute: the scalar of its name, or a number where there is none. */
static int read_attribute(const Operator *op, const XlaAttributes *attributes, int64_t number, Scalar *scalars, char *words, int64_t *given)
{
    const XlaText *name = attributes->names[number];
    const XlaScalar *value = attributes->values[number];
    const XlaText *text = attributes->values[number];
    int is_scalar = attributes->types[number] == XLA_SCALAR, index = 0;
    if (name->length == 6 && memcmp(name->text, "_given", 6) == 0 && is_scalar && value->type == XLA_S64) {
        memcpy(given, value->value, sizeof *given);
        return 0;
    }
    while (index < op->scalar_count && (strlen(op->scalars[index].name) != name->length || memcmp(op->scalars[index].name, name->text, name->length)))
        index++;
    if (index == op->scalar_count)
        return report(WRONG_VALUE, "%s(): a custom call of XLA has the unknown attribute %.*s", op->name, (int)name->length, name->text);
    ScalarKind kind = op->scalars[index].kind;
    scalars[index].is_given = 1;
    if (kind == SCALAR_STR && attributes->types[number] == XLA_STRING && text->length < MAX_WORD) {
        memcpy(words + index * MAX_WORD, text->text, text->length);
        words[index * MAX_WORD + text->length] = '\0';
        scalars[index].text = words + index * MAX_WORD;
    } else if (kind != SCALAR_STR && is_scalar && value->type == (kind == SCALAR_FLOAT ? XLA_F64 : XLA_S64)) {
        memcpy(&scalars[index].value, value->value, sizeof scalars[index].value);
    } else {
        return report(WRONG_TYPE, "%s(): the attribute %s has to be a %s", op->name, op->scalars[index].name,
                      kind == SCALAR_STR ? "string of less than 64 bytes" : kind == SCALAR_FLOAT ? "float64" : "int64");
    }
    return 0;
}

static int call_with_frame(const Operator *op, const XlaCallFrame *frame)
{
    int count = op->input_count + op->output_count;
    DLTensor views[count + 1];
    const DLTensor *tensors[count + 1];
    Scalar scalars[op->scalar_count + 1];
    char words[(op->scalar_count + 1) * MAX_WORD];
    int64_t given = -1, operand = 0;
    memset(scalars, 0, sizeof scalars);
    memset(tensors, 0, sizeof tensors);
    for (int64_t i = 0; i < frame->attributes.count; i++)
        if (read_attribute(op, &frame->attributes, i, scalars, words, &given) < 0)
            return -1;
    pthread_mutex_lock(&lock);
    int status = open_driver(); /* which is asked where buffers are */
    pthread_mutex_unlock(&lock);
    for (int i = 0; status == 0 && i < count; i++) {
        if (i < op->input_count && !(given >> i & 1))
            continue;
        status = i < op->input_count ? view_of_xla(op, &frame->operands, operand++, &views[i])
                                     : view_of_xla(op, &frame->results, i - op->input_count, &views[i]);
        tensors[i] = &views[i];
    }
    XlaStreamArguments stream = { sizeof stream, NULL, frame->context, NULL };
    XlaError *error = status == 0 ? frame->api->stream(&stream) : NULL;
    if (error) {
        XlaDestroyArguments arguments = { sizeof arguments, NULL, error };
        frame->api->destroy_error(&arguments);
        return report(WRONG_LAUNCH, "%s(): XLA gives no stream for its custom call", op->name);
    }
    return status < 0 ? -1 : call_operator(op, tensors, scalars, stream.stream);
}

/* The handler of an operator. */
XlaError *call_by_xla(const Operator *op, XlaCallFrame *frame)
{
    for (XlaExtension *each = frame->extensions; each; each = each->next)
        if (each->type == XLA_METADATA) { /* It asks for the version, and calls nothing. */
            XlaMetadata *metadata = ((XlaMetadataExtension *)each)->metadata;
            metadata->version.major = XLA_VERSION_MAJOR;
            metadata->version.minor = XLA_VERSION_MINOR;
            return NULL;
        }
    if (frame->stage != XLA_EXECUTE)
        return NULL;
    return call_with_frame(op, frame) == 0 ? NULL : xla_error(frame->api);
}
