/* Objects that stand for memory as Triton's JIT takes them: all that have `data_ptr()` and a `dtype`, torch's or one of Triton's language, as
   what triton.reinterpret() returns. */

/* The type that a `dtype` names, as "torch.float16", "fp8e5"; 0 for others, without an exception. */
static uint64_t type_of_dtype(PyObject *dtype)
{
    PyObject *text = PyObject_Str(dtype);
    const char *name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    const char *last = name ? strrchr(name, '.') : NULL;
    uint64_t type = 0;
    for (int i = 0; name && i < type_name_count && !type; i++)
        if (strcmp(type_names[i].name, last ? last + 1 : name) == 0)
            type = type_names[i].bit;
    PyErr_Clear();
    Py_XDECREF(text);
    return type;
}

static inline int is_wrapped(PyObject *value)
{
    return PyObject_HasAttr(value, names.data_ptr) && PyObject_HasAttr(value, names.dtype);
}

/* Reads one that has no other protocol; its device is that of its address. */
static int read_wrapped(const Kernel *kernel, int index, PyObject *value, Call *call, uint64_t *type)
{
    PyObject *dtype = PyObject_GetAttr(value, names.dtype);
    if (!dtype)
        return -1;
    *type = type_of_dtype(dtype);
    Py_DECREF(dtype);
    PyObject *address = PyObject_CallMethodObjArgs(value, names.data_ptr, NULL);
    if (!address)
        return -1;
    if (take_unsigned(address, &call->values[index].address) < 0)
        return no_address(kernel, index);
    return locate_address(kernel, index, call);
}
