/* A call, and the arrays among its arguments: torch tensors, __cuda_array_interface__, DLPack.
 *
 * Whatever is asked of an argument may run Python code: no reference is borrowed across it, and nothing is taken for what it was. */

/* CU_STREAM_LEGACY, another name of the stream 0. */
enum { DEFAULT_STREAM = 1 };

/* Something of an argument's that has to live until the launch is queued: a DLPack capsule, or the dict of an array interface. */
typedef struct { PyObject *object; int64_t parameter; } Held;

/* One call.  The arrays are as long as its kernel needs, and lie in `room` on the stack of its thread. */
typedef struct {
    const Kernel *kernel;
    uint64_t *facts;            /* fact_count */
    Value *values;              /* parameter_count, as are the next two */
    uint64_t *producers;        /* streams on which arguments will be ready, each once; DEFAULT_STREAM for the default one */
    Held *held;
    PyObject **slots;           /* borrowed from the caller: parameters, options, stream, grid; NULL where not given */
    int device;                 /* ordinal, -1 while unknown */
    int offline;                /* arguments stand for others on a device: nothing is asked of the driver */
    int has_torch_tensor;
    const struct ExchangeApi *exchange; /* of the tensors, NULL: there is none */
    int has_stream;
    int none;                   /* the last pointer that was given as None, -1: none was */
    int producer_count, held_count;
    uint64_t stream;            /* the CUstream's address */
    /* Where an operator launches, instead of slots: the call, which launch of it this is, and the values of options. */
    const struct PyOpCall *operator_call;
    const struct OpLaunch *operator_launch;
    const Value *operator_options;
} Call;

static int slots_of(const Kernel *kernel)
{
    return kernel->parameter_count + kernel->option_count + 2;
}

/* Words of the room of a call. */
static size_t room_of(const Kernel *kernel)
{
    return (size_t)kernel->fact_count + (2 + sizeof(Held) / sizeof(uint64_t)) * (size_t)kernel->parameter_count + (size_t)slots_of(kernel);
}

static void begin_call(const Kernel *kernel, Call *call, uint64_t *room, int offline)
{
    call->kernel = kernel;
    call->facts = room;
    call->values = (Value *)(call->facts + kernel->fact_count);
    call->producers = (uint64_t *)(call->values + kernel->parameter_count);
    call->held = (Held *)(call->producers + kernel->parameter_count);
    call->slots = (PyObject **)(call->held + kernel->parameter_count);
    call->device = call->none = -1;
    call->offline = offline;
    call->has_torch_tensor = call->has_stream = 0;
    call->exchange = NULL;
    call->producer_count = call->held_count = 0;
    call->stream = 0;
    call->operator_call = NULL;
}

static void hold(Call *call, int index, PyObject *object)
{
    call->held[call->held_count++] = (Held){ object, index };
}

/* What is held of a parameter; NULL: nothing. */
static PyObject *held_of(const Call *call, int index)
{
    for (int i = 0; i < call->held_count; i++)
        if (call->held[i].parameter == index)
            return call->held[i].object;
    return NULL;
}

static struct { PyObject *data_ptr, *dtype, *get_device, *numel, *array_interface, *dlpack, *dlpack_device, *shape, *stride, *torch,
                *torch_cuda, *requires_grad, *jax; } names;

/* The name of an object's class; NULL, without an exception, where its metaclass gives none. */
static PyObject *name_of_type(PyObject *value)
{
    PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "__name__");
    PyErr_Clear();
    if (name && !PyUnicode_Check(name)) {
        Py_DECREF(name);
        return NULL;
    }
    return name;
}

static int wrong_type(const Kernel *kernel, int index, const char *expected, PyObject *value)
{
    PyErr_Clear();
    PyObject *type = name_of_type(value);
    if (type)
        PyErr_Format(PyExc_TypeError, "%s(): %s must be %s, not %U", kernel->name, kernel->parameters[index].name, expected, type);
    else
        PyErr_Format(PyExc_TypeError, "%s(): %s must be %s", kernel->name, kernel->parameters[index].name, expected);
    Py_XDECREF(type);
    return -1;
}

static int no_address(const Kernel *kernel, int index)
{
    PyErr_Clear();
    PyErr_Format(PyExc_OverflowError, "%s(): %s is not a 64-bit address", kernel->name, kernel->parameters[index].name);
    return -1;
}

static int join_device(const Kernel *kernel, int index, Call *call, int64_t device)
{
    const char *name = kernel->parameters[index].name;
    if (!call->offline && (device < 0 || device > INT32_MAX)) {
        PyErr_Format(PyExc_ValueError, "%s(): %s is on device %lld, which is not a valid number", kernel->name, name, (long long)device);
        return -1;
    }
    if (!call->offline && call->device >= 0 && call->device != device) {
        PyErr_Format(PyExc_ValueError, "%s(): %s is on device %lld, and an argument before it is on device %d",
                     kernel->name, name, (long long)device, call->device);
        return -1;
    }
    call->device = call->offline && (device < 0 || device > INT32_MAX) ? -1 : (int)device;
    return 0;
}

static int no_memory(const Kernel *kernel, int index)
{
    PyErr_Format(PyExc_ValueError, "%s(): %s has elements, but no memory (its address is 0)",
                 kernel->name, kernel->parameters[index].name);
    return -1;
}

/* Refuses a tensor of a type that no kernel takes, where it is an operator's: variants of a kernel say for themselves what they take. */
static int unknown_element(const Kernel *kernel, int index, const char *type)
{
    return tensor_of_parameter(kernel, index) ? wrong_element(kernel, index, type) : 0;
}

/* Whether an argument is a tensor that its operator writes. */
static int is_written(const Kernel *kernel, int index)
{
    const OpTensor *tensor = tensor_of_parameter(kernel, index);
    return tensor && tensor->is_written;
}

static int read_only(const Kernel *kernel, int index)
{
    PyErr_Format(PyExc_ValueError, "%s(): %s is read-only", kernel->name, kernel->parameters[index].name);
    return -1;
}

/* Takes over a reference to an int of 64 bits; -1 with an exception where it is not one. */
static int take_integer(PyObject *object, int64_t *value)
{
    if (!object)
        return -1;
    *value = PyLong_AsLongLong(object);
    Py_DECREF(object);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* Takes over a reference to an address or the handle of a stream; -1 with an exception where it is not one. */
static int take_unsigned(PyObject *object, uint64_t *value)
{
    if (!object)
        return -1;
    *value = PyLong_AsUnsignedLongLong(object);
    Py_DECREF(object);
    return *value == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

/* The number that a type's text ends with.  strtol would bind the library to the glibc that it was built with. */
static long read_size(const char *digits)
{
    long size = 0;
    while (*digits >= '0' && *digits <= '9' && size < 1000)
        size = 10 * size + (*digits++ - '0');
    return *digits ? 0 : size;
}

#include "torch.h"

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

/* Replaces what is wrong with an argument, but no exception of another kind, by a TypeError that names it. */
static int malformed(const Kernel *kernel, int index, const char *what)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError) &&
        !PyErr_ExceptionMatches(PyExc_OverflowError) && !PyErr_ExceptionMatches(PyExc_LookupError))
        return -1;
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "%s(): the %s of %s is malformed", kernel->name, what, kernel->parameters[index].name);
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

/* The entries of an array interface that are read: references of our own, for whatever its numbers do when they are asked
   may change the dict.  NULL where there is none; tuples cannot change. */
typedef struct { PyObject *data, *format, *shape, *strides, *stream; } Interface;

static Interface open_interface(PyObject *interface)
{
    int is_dict = PyDict_Check(interface);
#define ENTRY(name) (is_dict ? Py_XNewRef(PyDict_GetItemString(interface, name)) : NULL)
    return (Interface){ ENTRY("data"), ENTRY("typestr"), ENTRY("shape"), ENTRY("strides"), ENTRY("stream") };
#undef ENTRY
}

/* Whether an interface says on which stream its array will be ready; None says that it is ready.  Interfaces of version 2, such as
   those of JAX, have no such entry, and their arrays may still be written. */
static int says_stream(PyObject *interface)
{
    return !PyDict_Check(interface) || PyDict_GetItemString(interface, "stream");
}

static void close_interface(Interface *entries)
{
    Py_XDECREF(entries->data);
    Py_XDECREF(entries->format);
    Py_XDECREF(entries->shape);
    Py_XDECREF(entries->strides);
    Py_XDECREF(entries->stream);
}

/* Code and bytes of the element type; the code is 0 where there is none that is known. */
static char interface_format(const Interface *entries, long *bytes)
{
    const char *text = entries->format && PyUnicode_Check(entries->format) ? PyUnicode_AsUTF8AndSize(entries->format, NULL) : NULL;
    if (!text || strlen(text) < 3)
        return 0;
    *bytes = read_size(text + 2);
    return text[0] == '>' ? 'O' : text[1];
}

/* What an opened interface says beside address and stream. */
typedef struct { uint64_t type; int has_elements, is_read_only, has_odd_strides; } InterfaceFacts;

/* Sizes of an interface, and whether its strides can be counted in elements; -1, with or without an exception, if they are malformed. */
static int read_sizes(const Interface *entries, long bytes, InterfaceFacts *facts)
{
    Py_ssize_t rank = PyTuple_Size(entries->shape);
    int has_strides = bytes && entries->strides && PyTuple_Check(entries->strides) && PyTuple_Size(entries->strides) == rank;
    for (Py_ssize_t i = 0; i < rank; i++) {
        int64_t length = 0, stride = 0;
        if (take_integer(Py_NewRef(PyTuple_GetItem(entries->shape, i)), &length) < 0 || length < 0 ||
            (has_strides && take_integer(Py_NewRef(PyTuple_GetItem(entries->strides, i)), &stride) < 0))
            return -1;
        facts->has_elements = facts->has_elements && length;
        facts->has_odd_strides = facts->has_odd_strides || (has_strides && length > 1 && stride % bytes != 0);
    }
    return 0;
}

/* Everything that is read of an opened interface once; -1, with or without an exception, if it is malformed. */
static int read_entries(const Interface *entries, const Kernel *kernel, int index, Call *call, InterfaceFacts *facts)
{
    long bytes = 0;
    char code = interface_format(entries, &bytes);
    if (!code || !entries->shape || !PyTuple_Check(entries->shape) || !entries->data || !PyTuple_Check(entries->data) ||
        PyTuple_Size(entries->data) != 2 || PyBool_Check(PyTuple_GetItem(entries->data, 0)))
        return -1;
    *facts = (InterfaceFacts){ .type = type_of_format(code, bytes), .has_elements = 1 };
    if (read_sizes(entries, bytes, facts) < 0 || take_unsigned(Py_NewRef(PyTuple_GetItem(entries->data, 0)), &call->values[index].address) < 0)
        return -1;
    if (is_written(kernel, index) && (facts->is_read_only = PyObject_IsTrue(PyTuple_GetItem(entries->data, 1))) < 0)
        return -1;
    uint64_t stream = 0;
    if (entries->stream && entries->stream != Py_None) {
        if (take_unsigned(Py_NewRef(entries->stream), &stream) < 0)
            return -1;
        add_producer(call, stream);
    }
    return 0;
}

/* Refuses a type that no kernel takes, by the text of the interface. */
static int unknown_format(const Kernel *kernel, int index, const Interface *entries)
{
    char text[TYPE_NAME];
    snprintf(text, sizeof text, "\"%.40s\"", PyUnicode_AsUTF8AndSize(entries->format, NULL));
    return unknown_element(kernel, index, text);
}

/* Takes over a reference to the interface. */
static int read_array_interface(const Kernel *kernel, int index, PyObject *interface, Call *call, uint64_t *type)
{
    InterfaceFacts facts;
    hold(call, index, interface);
    Interface entries = open_interface(interface);
    int status = read_entries(&entries, kernel, index, call, &facts);
    if (status < 0)
        malformed(kernel, index, "__cuda_array_interface__");
    else if (!facts.type)
        status = unknown_format(kernel, index, &entries);
    close_interface(&entries);
    if (status < 0)
        return -1;
    *type = facts.type;
    if (facts.has_odd_strides)
        return report(WRONG_VALUE, "%s(): the strides of %s are no multiples of its elements' size", kernel->name, kernel->parameters[index].name);
    if (facts.is_read_only)
        return read_only(kernel, index);
    if (!call->values[index].address && facts.has_elements)
        return no_memory(kernel, index);
    return locate_address(kernel, index, call);
}

/* Calls an exporter with a stream, if that is not NULL, and with the version of DLPack whose tensors say that they are read-only. */
static PyObject *call_exporter(PyObject *export, PyObject *stream, int is_versioned)
{
    PyObject *none = PyTuple_New(0), *keywords = PyDict_New(), *version = is_versioned ? Py_BuildValue("(ii)", 1, 0) : NULL, *capsule = NULL;
    if (none && keywords && (version || !is_versioned) && (!stream || PyDict_SetItemString(keywords, "stream", stream) == 0) &&
        (!version || PyDict_SetItemString(keywords, "max_version", version) == 0))
        capsule = PyObject_Call(export, none, keywords);
    Py_XDECREF(none);
    Py_XDECREF(keywords);
    Py_XDECREF(version);
    return capsule;
}

/* Asks for a capsule that is ready on the caller's stream if that is known by now, on the default stream otherwise.  That is
   named, too, for arrays of JAX wait for nothing without a name. */
static PyObject *export_dlpack(PyObject *value, Call *call, int is_versioned)
{
    int is_named = call->has_stream || !call->offline;
    if (!call->has_stream)
        add_producer(call, DEFAULT_STREAM);
    uint64_t number = call->has_stream && call->stream ? call->stream : DEFAULT_STREAM;
    PyObject *export = PyObject_GetAttr(value, names.dlpack), *capsule = NULL;
    PyObject *stream = export && is_named ? PyLong_FromUnsignedLongLong(number) : NULL;
    if (export && (stream || !is_named)) {
        capsule = call_exporter(export, stream, is_versioned);
        if (!capsule && is_versioned && PyErr_ExceptionMatches(PyExc_TypeError)) { /* It is older than the keyword. */
            PyErr_Clear();
            capsule = call_exporter(export, stream, 0);
        }
    }
    Py_XDECREF(export);
    Py_XDECREF(stream);
    return capsule;
}

/* What capsules of DLPack 1 hold. */
typedef struct { uint32_t major, minor; void *context, *deleter; uint64_t flags; DLTensor tensor; } VersionedTensor;

enum { DLPACK_READ_ONLY = 1 };

static const VersionedTensor *versioned_of(PyObject *capsule)
{
    const VersionedTensor *found = PyCapsule_IsValid(capsule, "dltensor_versioned") ? PyCapsule_GetPointer(capsule, "dltensor_versioned") : NULL;
    return found && found->major == 1 ? found : NULL;
}

/* The tensor of a capsule; NULL, with or without an exception, where it holds none. */
static const DLTensor *tensor_of(PyObject *capsule)
{
    const VersionedTensor *versioned = versioned_of(capsule);
    const DLTensor *tensor = versioned ? &versioned->tensor
                           : PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
    return tensor && tensor->ndim >= 0 && (!tensor->ndim || tensor->shape) ? tensor : NULL;
}

static int read_dlpack(const Kernel *kernel, int index, PyObject *value, Call *call, uint64_t *type)
{
    PyObject *place = PyObject_CallMethodObjArgs(value, names.dlpack_device, NULL);
    int device_type, ordinal;
    if (!place)
        return -1;
    int known = PyTuple_Check(place) && PyArg_ParseTuple(place, "ii", &device_type, &ordinal);
    Py_DECREF(place);
    if (!known)
        return malformed(kernel, index, "__dlpack_device__()");
    if (device_type != DLPACK_CUDA && device_type != DLPACK_CUDA_MANAGED && !call->offline) {
        PyErr_Format(PyExc_ValueError, "%s(): %s is not on a CUDA device", kernel->name, kernel->parameters[index].name);
        return -1;
    }
    PyObject *capsule = export_dlpack(value, call, is_written(kernel, index));
    if (!capsule)
        return -1;
    hold(call, index, capsule);
    const DLTensor *tensor = tensor_of(capsule);
    if (!tensor)
        return malformed(kernel, index, "__dlpack__()");
    char name[TYPE_NAME];
    *type = type_of_dlpack(tensor);
    if (!*type && unknown_element(kernel, index, name_of_dlpack(tensor, name)) < 0)
        return -1;
    if (is_written(kernel, index) && versioned_of(capsule) && versioned_of(capsule)->flags & DLPACK_READ_ONLY)
        return read_only(kernel, index);
    call->values[index].address = tensor->data ? (uint64_t)(uintptr_t)tensor->data + tensor->byte_offset : 0;
    int has_elements = !tensor->data && !call->offline;
    for (int i = 0; has_elements && i < tensor->ndim; i++)
        has_elements = tensor->shape[i] != 0;
    if (has_elements)
        return no_memory(kernel, index);
    return join_device(kernel, index, call, ordinal);
}

