/* torch's tensors, which are read without importing torch: whoever passes one has. */

#include "exchange.h"

enum { DTYPE_SLOTS = 128, KNOWN_TYPES = 8 };

static struct {
    PyObject *tensor;                    /* torch.Tensor; NULL until torch is found in sys.modules */
    PyObject *parameter;                 /* torch.nn.Parameter, or NULL */
    /* Functions of torch, or NULL: */
    PyObject *empty_like, *empty_strided, *is_autocast, *is_grad_enabled, *count_modes;
    PyObject *current_stream;            /* torch._C._cuda_getCurrentRawStream; NULL where torch has no CUDA */
    PyTypeObject *types[KNOWN_TYPES];    /* classes known to be tensors */
    const ExchangeApi *exchanges[KNOWN_TYPES]; /* their functions; NULL where torch is older than 2.10 */
    int is_plain[KNOWN_TYPES];           /* whether they are torch's own, with memory and without a __torch_function__ */
    PyObject *dtypes[DTYPE_SLOTS];       /* dtype objects, hashed by address */
    uint64_t dtype_bits[DTYPE_SLOTS];
    int next_type;
} torch;

static unsigned dtype_slot(const PyObject *dtype)
{
    uintptr_t slot = ((uintptr_t)dtype >> 4) * 0x9E3779B1u >> 8 & (DTYPE_SLOTS - 1);
    while (torch.dtypes[slot] && torch.dtypes[slot] != dtype)
        slot = (slot + 1) & (DTYPE_SLOTS - 1);
    return (unsigned)slot;
}

/* NULL, without an exception, where there is none, or no object. */
static PyObject *attribute_of(PyObject *object, const char *name)
{
    PyObject *value = object ? PyObject_GetAttrString(object, name) : NULL;
    PyErr_Clear();
    return value;
}

/* Looks whether torch has been imported by now; never imports it. */
static void find_torch(void)
{
    PyObject *module = PyImport_GetModule(names.torch);
    PyObject *tensor = module ? PyObject_GetAttrString(module, "Tensor") : NULL;
    if (tensor) {
        for (int i = 0; i < type_name_count; i++) {
            PyObject *dtype = PyObject_GetAttrString(module, type_names[i].name);
            if (!dtype) {
                PyErr_Clear();
                continue;
            }
            unsigned slot = dtype_slot(dtype);
            torch.dtypes[slot] = dtype;
            torch.dtype_bits[slot] = type_names[i].bit;
        }
        PyObject *inner = attribute_of(module, "_C");
        PyObject *modules = attribute_of(module, "nn");
        torch.parameter = attribute_of(modules, "Parameter");
        Py_XDECREF(modules);
        torch.current_stream = attribute_of(inner, "_cuda_getCurrentRawStream");
        torch.is_grad_enabled = attribute_of(inner, "is_grad_enabled");
        torch.count_modes = attribute_of(inner, "_len_torch_dispatch_stack");
        torch.empty_like = attribute_of(module, "empty_like");
        torch.empty_strided = attribute_of(module, "empty_strided");
        torch.is_autocast = attribute_of(module, "is_autocast_enabled");
        Py_XDECREF(inner);
        torch.tensor = tensor;
    }
    PyErr_Clear();
    Py_XDECREF(module);
}

/* The number of a class among those known to be tensors; -1 for others. */
static inline int known_tensor(const PyObject *value)
{
    const PyTypeObject *type = Py_TYPE(value);
    for (int i = 0; i < KNOWN_TYPES; i++)
        if (torch.types[i] == type)
            return i;
    return -1;
}

static inline int is_known_tensor(const PyObject *value)
{
    return known_tensor(value) >= 0;
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
    if (torch.next_type < KNOWN_TYPES) {
        PyTypeObject *type = Py_TYPE(value);
        torch.exchanges[torch.next_type] = exchange_of(type);
        torch.is_plain[torch.next_type] = (PyObject *)type == torch.tensor || (PyObject *)type == torch.parameter;
        torch.types[torch.next_type++] = (PyTypeObject *)Py_NewRef((PyObject *)type);
    }
    return 1;
}

static int not_on_device(const Kernel *kernel, int index)
{
    const char *name = kernel->parameters[index].name;
    PyErr_Format(PyExc_ValueError, "%s(): %s is not on a CUDA device; move it there with %s.cuda()", kernel->name, name, name);
    return -1;
}

/* Reads a tensor by the functions of its class: 1 if it has been read, 0 if there are none or they refuse it, -1 with an exception. */
static int borrow_torch_tensor(const Kernel *kernel, int index, PyObject *tensor, Call *call, DLTensor *view, uint64_t *type)
{
    int known = known_tensor(tensor);
    const ExchangeApi *api = known >= 0 ? torch.exchanges[known] : NULL;
    if (!api)
        return 0;
    if (api->borrow(tensor, view) != 0) {
        PyErr_Clear();
        return 0;
    }
    int is_on_device = view->device.device_type == DLPACK_CUDA || view->device.device_type == DLPACK_CUDA_MANAGED;
    if (!is_on_device && !call->offline)
        return not_on_device(kernel, index);
    char name[TYPE_NAME];
    *type = type_of_dlpack(view);
    if (!*type && unknown_element(kernel, index, name_of_dlpack(view, name)) < 0)
        return -1;
    call->values[index].address = view->data ? (uint64_t)(uintptr_t)view->data + view->byte_offset : 0;
    for (int i = 0; !view->data && !call->offline; i++) {
        if (i == view->ndim)
            return no_memory(kernel, index);
        if (view->shape[i] == 0)
            break;
    }
    call->has_torch_tensor = 1;
    call->exchange = api;
    return join_device(kernel, index, call, is_on_device ? view->device.device_id : -1) < 0 ? -1 : 1;
}

/* Refuses a type that no kernel takes, by torch's name of it. */
static int unknown_dtype(const Kernel *kernel, int index, PyObject *dtype)
{
    PyObject *text = PyObject_Str(dtype);
    const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    int status = name ? unknown_element(kernel, index, strncmp(name, "torch.", 6) == 0 ? name + 6 : name) : -1;
    Py_XDECREF(text);
    return status;
}

/* Says that a tensor is sparse, where that is why it has no address; else the exception stays. */
static int no_data_ptr(const Kernel *kernel, int index, PyObject *tensor)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *layout = PyObject_GetAttrString(tensor, "layout"), *text = layout ? PyObject_Str(layout) : NULL;
    const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    int is_sparse = name && strncmp(name, "torch.sparse", 12) == 0;
    Py_XDECREF(layout);
    Py_XDECREF(text);
    PyErr_Clear();
    if (!is_sparse) {
        PyErr_Restore(type, value, traceback);
        return -1;
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    return report(WRONG_TYPE, "%s(): %s is a sparse tensor", kernel->name, kernel->parameters[index].name);
}

static int read_torch_tensor(const Kernel *kernel, int index, PyObject *tensor, Call *call, uint64_t *type)
{
    DLTensor view;
    int borrowed = borrow_torch_tensor(kernel, index, tensor, call, &view, type);
    if (borrowed)
        return borrowed < 0 ? -1 : 0;
    int64_t device = -1, count = 0;
    PyObject *dtype = PyObject_GetAttr(tensor, names.dtype);
    if (!dtype)
        return -1;
    *type = torch.dtype_bits[dtype_slot(dtype)];
    int status = *type || !kernel->of ? 0 : unknown_dtype(kernel, index, dtype);
    Py_DECREF(dtype);
    if (status < 0)
        return -1;
    PyObject *address = PyObject_CallMethodObjArgs(tensor, names.data_ptr, NULL);
    if (!address)
        return no_data_ptr(kernel, index, tensor);
    if (take_unsigned(address, &call->values[index].address) < 0)
        return no_address(kernel, index);
    if (take_integer(PyObject_CallMethodObjArgs(tensor, names.get_device, NULL), &device) < 0)
        return -1;
    if (device < 0 && !call->offline)
        return not_on_device(kernel, index);
    if (!call->values[index].address && !call->offline) {
        if (take_integer(PyObject_CallMethodObjArgs(tensor, names.numel, NULL), &count) < 0)
            return -1;
        if (count > 0)
            return no_memory(kernel, index);
    }
    call->has_torch_tensor = 1;
    return join_device(kernel, index, call, device);
}
