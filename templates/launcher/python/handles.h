/* Streams and addresses as cuda-python has them: objects that are no integers of Python.
 *
 * A stream of another library says its handle by the protocol __cuda_stream__, a pair of a version, 0, and the address:
 * https://nvidia.github.io/cuda-python/cuda-core/latest/interoperability.html */

/* Whether an object's class comes from cuda.bindings or cuda.core; never raises. */
static int is_of_cuda_python(PyObject *value)
{
    PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(value), "__module__");
    const char *text = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8AndSize(module, NULL) : NULL;
    int found = text && strncmp(text, "cuda.", 5) == 0;
    PyErr_Clear();
    Py_XDECREF(module);
    return found;
}

/* The handle that __cuda_stream__ gives; NULL, with an exception only if it raised one or gives something else. */
static PyObject *handle_by_protocol(const Kernel *kernel, PyObject *stream)
{
    PyObject *protocol = PyObject_GetAttrString(stream, "__cuda_stream__");
    if (!protocol) {
        if (PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_Clear();
        return NULL;
    }
    /* It began as a property and became a method; both are in use. */
    PyObject *pair = PyCallable_Check(protocol) ? PyObject_CallNoArgs(protocol) : Py_NewRef(protocol), *handle = NULL;
    Py_DECREF(protocol);
    if (!pair)
        return NULL;
    PyObject *version = PyTuple_Check(pair) && PyTuple_Size(pair) == 2 ? PyTuple_GetItem(pair, 0) : NULL;
    if (version && PyLong_Check(version) && PyLong_AsLong(version) == 0)
        handle = Py_NewRef(PyTuple_GetItem(pair, 1));
    else if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_OverflowError))
        PyErr_Format(PyExc_TypeError, "%s(): the stream's __cuda_stream__ must give (0, address)", kernel->name);
    Py_DECREF(pair);
    return handle;
}

static int no_stream(const Kernel *kernel, PyObject *stream)
{
    PyErr_Clear();
    PyObject *type = PyLong_Check(stream) && !PyBool_Check(stream) ? PyUnicode_FromString("a number that is no address") : name_of_type(stream);
    PyErr_Format(PyExc_TypeError, "%s(): stream must be a torch.cuda.Stream, an object with __cuda_stream__, a CUstream of cuda.bindings, "
                 "or the address of one%s%V", kernel->name, type ? ", not " : "", type, "");
    Py_XDECREF(type);
    return -1;
}

static int read_stream(PyObject *stream, Call *call)
{
    if (!stream || stream == Py_None)
        return 0;
    call->has_stream = 1;
    PyObject *handle = PyLong_Check(stream) ? Py_NewRef(stream) : PyObject_GetAttrString(stream, "cuda_stream");
    if (!handle && !PyErr_ExceptionMatches(PyExc_AttributeError))
        return -1;
    PyErr_Clear();
    if (!handle && !(handle = handle_by_protocol(call->kernel, stream)) && PyErr_Occurred())
        return -1;
    if (!handle && is_of_cuda_python(stream))
        handle = PyNumber_Long(stream);
    if (handle && !PyBool_Check(handle) && take_unsigned(Py_NewRef(handle), &call->stream) == 0) {
        Py_DECREF(handle);
        return 0;
    }
    Py_XDECREF(handle);
    return no_stream(call->kernel, stream);
}

/* The address of a CUdeviceptr, or of a Buffer, whose bytes have no type; NULL, without an exception, for other objects. */
static PyObject *address_by_cuda_python(PyObject *value)
{
    PyObject *handle = is_of_cuda_python(value) ? PyObject_GetAttrString(value, "handle") : NULL, *address = NULL;
    PyErr_Clear();
    if (handle)
        address = PyNumber_Long(handle);
    else if (is_of_cuda_python(value) && !PyObject_HasAttr(value, names.dlpack))
        address = PyNumber_Long(value);
    PyErr_Clear();
    Py_XDECREF(handle);
    return address;
}
