/* Operators as functions of TVM's interface for foreign functions: https://tvm.apache.org/ffi
 *
 * Arguments come in the order of the C function: inputs, scalars, outputs; None stands for what is left out, and trailing ones may be.
 * The stream is the current one of the interface's environment.  Its library is in the process wherever its functions are called, and is
 * not linked. */

enum { TVM_NONE = 0, TVM_INT = 1, TVM_BOOL = 2, TVM_FLOAT = 3, TVM_DLTENSOR = 7, TVM_RAW_STR = 8, TVM_SMALL_STR = 11, TVM_STR = 65,
       TVM_TENSOR = 70 };

struct TvmAny {
    int32_t type;
    uint32_t length; /* of a small string */
    union { int64_t integer; double number; const void *pointer; const char *text; char bytes[8]; } value;
};

/* What all objects begin with. */
typedef struct { uint64_t references; int32_t type; uint32_t padding; void *deleter; } TvmObject;
typedef struct { const char *text; size_t length; } TvmText;

/* The tensor of an argument, NULL for None; -1 with a report for anything else. */
static int tensor_of_tvm(const Operator *op, int index, const TvmAny *argument, const DLTensor **tensor)
{
    *tensor = NULL;
    if (argument->type == TVM_DLTENSOR)
        *tensor = argument->value.pointer;
    else if (argument->type == TVM_TENSOR)
        *tensor = (const DLTensor *)((const TvmObject *)argument->value.pointer + 1);
    else if (argument->type != TVM_NONE)
        return report(WRONG_TYPE, "%s(): %s has to be a tensor", op->name, op->arguments.parameters[index].name);
    return 0;
}

static int scalar_of_tvm(const Operator *op, int number, const TvmAny *argument, char *word, Scalar *scalar)
{
    static const char *const kinds[] = { "an int", "a float", "a bool", "a str" };
    ScalarKind kind = op->scalars[number].kind;
    int is_whole = argument->type == TVM_INT || argument->type == TVM_BOOL;
    *scalar = (Scalar){ .is_given = argument->type != TVM_NONE };
    if (argument->type == TVM_NONE)
        return 0;
    if (kind == SCALAR_STR && (argument->type == TVM_RAW_STR || argument->type == TVM_SMALL_STR || argument->type == TVM_STR)) {
        const TvmText *object = (const TvmText *)((const TvmObject *)argument->value.pointer + 1);
        const char *text = argument->type == TVM_RAW_STR ? argument->value.text : argument->type == TVM_STR ? object->text : argument->value.bytes;
        size_t length = argument->type == TVM_RAW_STR ? strlen(text) : argument->type == TVM_STR ? object->length : argument->length;
        snprintf(word, MAX_WORD, "%.*s", (int)(length < MAX_WORD ? length : MAX_WORD - 1), text);
        scalar->text = word;
    } else if (kind == SCALAR_FLOAT && (is_whole || argument->type == TVM_FLOAT)) {
        scalar->value.number = is_whole ? (double)argument->value.integer : argument->value.number;
    } else if (kind != SCALAR_STR && kind != SCALAR_FLOAT && is_whole) {
        scalar->value.integer = argument->value.integer;
    } else {
        return report(WRONG_TYPE, "%s(): %s has to be %s", op->name, op->scalars[number].name, kinds[kind]);
    }
    return 0;
}

static int call_with_arguments(const Operator *op, const TvmAny *arguments, int32_t count)
{
    static const TvmAny none = { TVM_NONE, 0, { 0 } };
    int total = op->input_count + op->scalar_count + op->output_count;
    const DLTensor *tensors[op->input_count + op->output_count + 1];
    Scalar scalars[op->scalar_count + 1];
    char words[(op->scalar_count + 1) * MAX_WORD];
    int device = 0;
    if (count > total)
        return report(WRONG_VALUE, "%s(): it takes %d arguments, not %d", op->name, total, count);
    for (int i = 0, tensor = 0; i < total; i++) {
        const TvmAny *argument = i < count ? &arguments[i] : &none;
        int scalar = i - op->input_count;
        if (scalar >= 0 && scalar < op->scalar_count) {
            if (scalar_of_tvm(op, scalar, argument, words + scalar * MAX_WORD, &scalars[scalar]) < 0)
                return -1;
        } else {
            if (tensor_of_tvm(op, i, argument, &tensors[tensor]) < 0)
                return -1;
            device = tensor == 0 && tensors[0] ? tensors[0]->device.device_id : device;
            tensor++;
        }
    }
    void *(*current_stream)(int32_t, int32_t) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "TVMFFIEnvGetStream");
    memcpy(&current_stream, &found, sizeof found);
    return call_operator(op, tensors, scalars, current_stream ? current_stream(DLPACK_CUDA, device) : NULL);
}

/* The function of an operator. */
int call_by_tvm(const Operator *op, const TvmAny *arguments, int32_t count, TvmAny *result)
{
    *result = (TvmAny){ TVM_NONE, 0, { 0 } };
    if (call_with_arguments(op, arguments, count) == 0)
        return 0;
    void (*raise)(const char *kind, const char *message) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "TVMFFIErrorSetRaisedFromCStr");
    memcpy(&raise, &found, sizeof found);
    if (raise)
        raise(failure.kind == WRONG_TYPE ? "TypeError" : failure.kind == WRONG_VALUE ? "ValueError" : "RuntimeError", failure.text);
    return -1;
}
