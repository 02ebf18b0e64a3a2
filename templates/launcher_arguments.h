/* Arguments of a call: who is who, what they are (torch tensors, other arrays, numbers), and the facts dispatch needs. */

/* The DLPack structures, version 0: https://dmlc.github.io/dlpack */
typedef struct {
    void *data;
    struct { int32_t device_type, device_id; } device;
    int32_t ndim;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;

enum { DLPACK_INT = 0, DLPACK_UNSIGNED = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4, DLPACK_BOOL = 6, DLPACK_CUDA = 2, DLPACK_CUDA_MANAGED = 13 };

/* CU_STREAM_LEGACY, another name of the stream 0. */
enum { DEFAULT_STREAM = 1 };

/* One call, on the stack of its thread. */
typedef struct {
    uint64_t facts[MAX_FACTS];
    Value values[MAX_PARAMETERS];
    int device;                 /* ordinal, -1 while unknown */
    int offline;                /* arguments stand for others on a device: nothing is asked of the driver */
    int has_torch_tensor;
    int has_stream;
    uint64_t stream;            /* the CUstream's address */
    uint64_t producers[MAX_PARAMETERS]; /* streams on which arguments will be ready, each once; DEFAULT_STREAM for the default one */
    int producer_count;
    PyObject *held[MAX_PARAMETERS]; /* DLPack capsules, until the launch is queued */
    int holders[MAX_PARAMETERS];    /* their parameters */
    int held_count;
} Call;

enum { DTYPE_SLOTS = 128, KNOWN_TYPES = 8 };

static struct {
    PyObject *tensor;                    /* torch.Tensor; NULL until torch is found in sys.modules */
    PyObject *current_stream;            /* torch._C._cuda_getCurrentRawStream; NULL where torch has no CUDA */
    PyTypeObject *types[KNOWN_TYPES];    /* classes known to be tensors */
    PyObject *dtypes[DTYPE_SLOTS];       /* dtype objects, hashed by address */
    uint64_t dtype_bits[DTYPE_SLOTS];
    int next_type;
} torch;

static struct { PyObject *data_ptr, *dtype, *get_device, *numel, *array_interface, *dlpack, *dlpack_device, *shape, *stride, *torch,
                *torch_cuda; } names;

static unsigned dtype_slot(const PyObject *dtype)
{
    uintptr_t slot = ((uintptr_t)dtype >> 4) * 0x9E3779B1u >> 8 & (DTYPE_SLOTS - 1);
    while (torch.dtypes[slot] && torch.dtypes[slot] != dtype)
        slot = (slot + 1) & (DTYPE_SLOTS - 1);
    return (unsigned)slot;
}

/* Looks whether torch has been imported by now; never imports it. */
static void find_torch(void)
{
    PyObject *module = PyImport_GetModule(names.torch);
    PyObject *tensor = module ? PyObject_GetAttrString(module, "Tensor") : NULL;
    if (tensor) {
        for (int i = 0; i < torch_type_count; i++) {
            PyObject *dtype = PyObject_GetAttrString(module, torch_types[i].name);
            if (!dtype) {
                PyErr_Clear();
                continue;
            }
            unsigned slot = dtype_slot(dtype);
            torch.dtypes[slot] = dtype;
            torch.dtype_bits[slot] = torch_types[i].bit;
        }
        PyObject *inner = PyObject_GetAttrString(module, "_C");
        torch.current_stream = inner ? PyObject_GetAttrString(inner, "_cuda_getCurrentRawStream") : NULL;
        Py_XDECREF(inner);
        torch.tensor = tensor;
    }
    PyErr_Clear();
    Py_XDECREF(module);
}

static inline int is_known_tensor(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    for (int i = 0; i < KNOWN_TYPES; i++)
        if (torch.types[i] == type)
            return 1;
    return 0;
}

/* The same for an object of a class that was not met before. */
static int is_torch_tensor(PyObject *value)
{
    if (!torch.tensor)
        find_torch();
    if (!torch.tensor || PyObject_IsInstance(value, torch.tensor) != 1) {
        PyErr_Clear();
        return 0;
    }
    if (torch.next_type < KNOWN_TYPES)
        torch.types[torch.next_type++] = (PyTypeObject *)Py_NewRef((PyObject *)Py_TYPE(value));
    return 1;
}

static int join_device(const Kernel *kernel, int index, Call *call, int device)
{
    if (!call->offline && call->device >= 0 && call->device != device) {
        PyErr_Format(PyExc_ValueError, "%s(): %s is on device %d, and an argument before it is on device %d",
                     kernel->name, kernel->parameters[index].name, device, call->device);
        return -1;
    }
    call->device = device;
    return 0;
}

static int no_memory(const Kernel *kernel, int index)
{
    PyErr_Format(PyExc_ValueError, "%s(): %s has elements, but no memory (its address is 0)",
                 kernel->name, kernel->parameters[index].name);
    return -1;
}

/* Takes over a reference to an int; -1 with an exception where it is none. */
static int take_integer(PyObject *object, int64_t *value)
{
    if (!object)
        return -1;
    *value = (int64_t)PyLong_AsUnsignedLongLongMask(object);
    Py_DECREF(object);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

static int read_torch_tensor(const Kernel *kernel, int index, PyObject *tensor, Call *call, uint64_t *type)
{
    int64_t address = 0, device = -1, count = 0;
    PyObject *dtype = PyObject_GetAttr(tensor, names.dtype);
    if (!dtype)
        return -1;
    *type = torch.dtype_bits[dtype_slot(dtype)];
    Py_DECREF(dtype);
    if (take_integer(PyObject_CallMethodObjArgs(tensor, names.data_ptr, NULL), &address) < 0 ||
        take_integer(PyObject_CallMethodObjArgs(tensor, names.get_device, NULL), &device) < 0)
        return -1;
    if (device < 0 && !call->offline) {
        PyErr_Format(PyExc_ValueError, "%s(): %s is not on a CUDA device; move it there with %s.cuda()",
                     kernel->name, kernel->parameters[index].name, kernel->parameters[index].name);
        return -1;
    }
    if (!address && !call->offline) {
        if (take_integer(PyObject_CallMethodObjArgs(tensor, names.numel, NULL), &count) < 0)
            return -1;
        if (count > 0)
            return no_memory(kernel, index);
    }
    call->values[index].address = (uint64_t)address;
    call->has_torch_tensor = 1;
    return join_device(kernel, index, call, (int)device);
}

/* The device that an address belongs to, if the driver knows it. */
static int locate_address(const Kernel *kernel, int index, Call *call)
{
    int ordinal = -1;
    uint64_t address = call->values[index].address;
    if (!address || call->offline)
        return 0;
    if (need_driver() < 0)
        return -1;
    if (driver.cuPointerGetAttribute(&ordinal, POINTER_DEVICE_ORDINAL, address) != CUDA_SUCCESS || ordinal < 0)
        return 0;
    return join_device(kernel, index, call, ordinal);
}

/* The number that a type's text ends with.  strtol would bind the library to the glibc that it was built with. */
static long read_size(const char *digits)
{
    long size = 0;
    while (*digits >= '0' && *digits <= '9' && size < 1000)
        size = 10 * size + (*digits++ - '0');
    return *digits ? 0 : size;
}

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

static int malformed_interface(const Kernel *kernel, int index)
{
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s(): the __cuda_array_interface__ of %s is malformed", kernel->name, kernel->parameters[index].name);
    return -1;
}

static int is_same_stream(uint64_t one, uint64_t other)
{
    return one == other || (one <= DEFAULT_STREAM && other <= DEFAULT_STREAM);
}

/* Notes a stream that the launch has to come after. */
static void add_producer(Call *call, uint64_t stream)
{
    for (int i = 0; i < call->producer_count; i++)
        if (is_same_stream(call->producers[i], stream))
            return;
    call->producers[call->producer_count++] = stream;
}

static int read_array_interface(const Kernel *kernel, int index, PyObject *interface, Call *call, uint64_t *type)
{
    PyObject *data = PyDict_Check(interface) ? PyDict_GetItemString(interface, "data") : NULL;
    PyObject *format = data ? PyDict_GetItemString(interface, "typestr") : NULL;
    PyObject *shape = format ? PyDict_GetItemString(interface, "shape") : NULL;
    PyObject *stream = shape ? PyDict_GetItemString(interface, "stream") : NULL;
    const char *text = shape && PyUnicode_Check(format) ? PyUnicode_AsUTF8AndSize(format, NULL) : NULL;
    if (!text || strlen(text) < 3 || !PyTuple_Check(shape) || !PyTuple_Check(data) || PyTuple_Size(data) != 2 ||
        !PyLong_Check(PyTuple_GetItem(data, 0)))
        return malformed_interface(kernel, index);
    int64_t count = 1, length = 0;
    for (Py_ssize_t i = 0; i < PyTuple_Size(shape); i++) {
        if (take_integer(Py_NewRef(PyTuple_GetItem(shape, i)), &length) < 0)
            return malformed_interface(kernel, index);
        count = length ? count : 0;
    }
    *type = text[0] == '>' ? 0 : type_of_format(text[1], read_size(text + 2));
    call->values[index].address = PyLong_AsUnsignedLongLong(PyTuple_GetItem(data, 0));
    if (!PyErr_Occurred() && stream && stream != Py_None)
        add_producer(call, PyLong_AsUnsignedLongLongMask(stream));
    if (PyErr_Occurred())
        return malformed_interface(kernel, index);
    if (!call->values[index].address && count)
        return no_memory(kernel, index);
    return locate_address(kernel, index, call);
}

/* Asks for a capsule that is ready on the caller's stream if that is known by now, on the default stream otherwise. */
static PyObject *export_dlpack(PyObject *value, Call *call)
{
    if (!call->has_stream)
        add_producer(call, DEFAULT_STREAM);
    PyObject *export = PyObject_GetAttr(value, names.dlpack);
    PyObject *none = PyTuple_New(0);
    PyObject *keywords = call->has_stream ? Py_BuildValue("{s:K}", "stream", (unsigned long long)(call->stream ? call->stream : DEFAULT_STREAM)) : NULL;
    PyObject *capsule = export && none && !PyErr_Occurred() ? PyObject_Call(export, none, keywords) : NULL;
    Py_XDECREF(export);
    Py_XDECREF(none);
    Py_XDECREF(keywords);
    return capsule;
}

static int read_dlpack(const Kernel *kernel, int index, PyObject *value, Call *call, uint64_t *type)
{
    PyObject *place = PyObject_CallMethodObjArgs(value, names.dlpack_device, NULL);
    int device_type, ordinal;
    int known = place && PyArg_ParseTuple(place, "ii", &device_type, &ordinal);
    Py_XDECREF(place);
    if (!known)
        return -1;
    if (device_type != DLPACK_CUDA && device_type != DLPACK_CUDA_MANAGED && !call->offline) {
        PyErr_Format(PyExc_ValueError, "%s(): %s is not on a CUDA device", kernel->name, kernel->parameters[index].name);
        return -1;
    }
    PyObject *capsule = export_dlpack(value, call);
    if (!capsule)
        return -1;
    call->holders[call->held_count] = index;
    call->held[call->held_count++] = capsule;
    const DLTensor *tensor = PyCapsule_GetPointer(capsule, "dltensor");
    if (!tensor)
        return -1;
    long size = tensor->dtype.lanes == 1 ? tensor->dtype.bits / 8 : 0;
    switch (tensor->dtype.code) {
    case DLPACK_INT: *type = type_of_format('i', size); break;
    case DLPACK_UNSIGNED: *type = type_of_format('u', size); break;
    case DLPACK_FLOAT: *type = type_of_format('f', size); break;
    case DLPACK_BFLOAT: *type = size == 2 ? TYPE_BF16 : 0; break;
    case DLPACK_BOOL: *type = type_of_format('b', size); break;
    default: *type = 0;
    }
    call->values[index].address = tensor->data ? (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset : 0;
    int has_elements = !tensor->data && !call->offline;
    for (int i = 0; has_elements && i < tensor->ndim; i++)
        has_elements = tensor->shape[i] != 0;
    if (has_elements)
        return no_memory(kernel, index);
    return join_device(kernel, index, call, ordinal);
}

static int wrong_type(const Kernel *kernel, int index, const char *expected, PyObject *value)
{
    PyObject *type = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "__name__");
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s(): %s must be %s, not %S",
                 kernel->name, kernel->parameters[index].name, expected, type ? type : Py_None);
    Py_XDECREF(type);
    return -1;
}

static int no_address(const Kernel *kernel, int index)
{
    PyErr_Clear();
    PyErr_Format(PyExc_OverflowError, "%s(): %s is no address of 64 bits", kernel->name, kernel->parameters[index].name);
    return -1;
}

/* What is known of which powers of two divide a number. */
static inline uint64_t divisibility(uint64_t number)
{
    return (uint64_t)((number & 15) == 0) * HINT_16 | (uint64_t)((number & 7) == 0) * HINT_8;
}

static int read_pointer(const Kernel *kernel, int index, PyObject *value, Call *call, uint64_t *fact)
{
    uint64_t type = TYPE_MASK;
    int status;
    PyObject *interface = NULL;
    if (is_known_tensor(value)) {
        status = read_torch_tensor(kernel, index, value, call, &type);
    } else if (value == Py_None) {
        call->values[index].address = 0;
        status = 0;
    } else if (PyLong_Check(value)) {
        call->values[index].address = PyLong_AsUnsignedLongLong(value);
        status = PyErr_Occurred() ? no_address(kernel, index) : locate_address(kernel, index, call);
    } else if (is_torch_tensor(value)) {
        status = read_torch_tensor(kernel, index, value, call, &type);
    } else if ((interface = PyObject_GetAttr(value, names.array_interface))) {
        status = read_array_interface(kernel, index, interface, call, &type);
        Py_DECREF(interface);
    } else if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return -1;
    } else {
        PyErr_Clear();
        if (!PyObject_HasAttr(value, names.dlpack))
            return wrong_type(kernel, index, "a tensor on a CUDA device or an address", value);
        status = read_dlpack(kernel, index, value, call, &type);
    }
    *fact = type | divisibility(call->values[index].address);
    return status;
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

/* An int for an object that counts as one, numpy.bool among them; NULL without an exception for any other. */
static PyObject *as_integer(PyObject *value)
{
    PyObject *integer = PyNumber_Index(value);
    PyErr_Clear();
    if (integer)
        return integer;
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "__name__");
    if (name && (PyUnicode_CompareWithASCIIString(name, "bool") == 0 || PyUnicode_CompareWithASCIIString(name, "bool_") == 0)) {
        int truth = PyObject_IsTrue(value);
        integer = truth < 0 ? NULL : PyLong_FromLong(truth);
    }
    PyErr_Clear();
    Py_XDECREF(name);
    return integer;
}

static int read_integer(const Kernel *kernel, int index, PyObject *value, Call *call, uint64_t *fact)
{
    int overflow = 0, large = 0;
    PyObject *integer = NULL;
    if (!PyLong_Check(value)) {
        integer = as_integer(value);
        if (!integer)
            return wrong_type(kernel, index, "an integer", value);
        value = integer;
    }
    int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow > 0) {
        number = (int64_t)PyLong_AsUnsignedLongLong(value);
        large = !PyErr_Occurred();
    }
    Py_XDECREF(integer);
    if (overflow && !large) {
        PyErr_Clear();
        PyErr_Format(PyExc_OverflowError, "%s(): %s does not fit 64 bits", kernel->name, kernel->parameters[index].name);
        return -1;
    }
    call->values[index].integer = number;
    *fact = integer_facts(number, large);
    return 0;
}

#include "launcher_extents.h"

static int read_parameter(const Kernel *kernel, int index, PyObject *value, Call *call)
{
    const Parameter *parameter = &kernel->parameters[index];
    uint64_t fact = TYPE_MASK;
    int status = 0;
    if (!value) {
        call->values[index].integer = 0;
        call->facts[DEVICE_FACTS + index] = fact & parameter->mask;
        return 0;
    }
    switch (parameter->kind) {
    case KIND_POINTER:
        status = read_pointer(kernel, index, value, call, &fact);
        break;
    case KIND_INTEGER:
        status = parameter->is_extent ? read_extent(kernel, index, value, call, &fact) : read_integer(kernel, index, value, call, &fact);
        break;
    default:
        call->values[index].number = PyFloat_AsDouble(value);
        status = call->values[index].number == -1.0 && PyErr_Occurred() ? wrong_type(kernel, index, "a number", value) : 0;
    }
    call->facts[DEVICE_FACTS + index] = fact & parameter->mask;
    return status;
}

static int same_value(const OptionValue *known, PyObject *value)
{
    if (known->text)
        return PyUnicode_Check(value) && PyUnicode_CompareWithASCIIString(value, known->text) == 0;
    if (PyLong_Check(value)) {
        int overflow;
        int64_t integer = PyLong_AsLongLongAndOverflow(value, &overflow);
        return !overflow && (known->is_float ? (double)integer == known->number : integer == known->integer);
    }
    return known->is_float && PyFloat_Check(value) && PyFloat_AsDouble(value) == known->number;
}

/* One bit for the value that was given, or for the default; where there is neither, as derived options may, every bit. */
static int read_option(const Kernel *kernel, int index, PyObject *value, Call *call)
{
    const Option *option = &kernel->options[index];
    uint64_t *fact = &call->facts[DEVICE_FACTS + kernel->parameter_count + index];
    *fact = value ? 0 : option->standard < 0 ? ~UINT64_C(0) : UINT64_C(1) << option->standard;
    if (!value)
        return 0;
    uint64_t type = torch.tensor ? torch.dtype_bits[dtype_slot(value)] : 0;
    PyObject *integer = !PyLong_Check(value) && !PyUnicode_Check(value) && !PyFloat_Check(value) && !type ? as_integer(value) : NULL;
    for (int i = 0; i < option->count; i++)
        if (type ? option->values[i].type == type : same_value(&option->values[i], integer ? integer : value))
            *fact |= UINT64_C(1) << i;
    Py_XDECREF(integer);
    return 0;
}
