/* Sizes and strides of tensors that a kernel takes as tensor descriptors. */

static int torch_extent(PyObject *tensor, int axis, int64_t *rank, int64_t *size, int64_t *stride)
{
    PyObject *shape = PyObject_GetAttr(tensor, names.shape), *number = PyLong_FromLong(axis);
    int status = shape && number ? 0 : -1;
    if (status == 0 && (*rank = PySequence_Size(shape)) > axis &&
        (take_integer(PySequence_GetItem(shape, axis), size) < 0 ||
         take_integer(PyObject_CallMethodObjArgs(tensor, names.stride, number, NULL), stride) < 0))
        status = -1;
    Py_XDECREF(number);
    Py_XDECREF(shape);
    return status;
}

/* Of an array whose interface has been read without complaint. */
static int interface_extent(PyObject *interface, int axis, int64_t *rank, int64_t *size, int64_t *stride)
{
    PyObject *shape = PyDict_GetItemString(interface, "shape"), *strides = PyDict_GetItemString(interface, "strides");
    const char *format = PyUnicode_AsUTF8AndSize(PyDict_GetItemString(interface, "typestr"), NULL);
    long bytes = format ? read_size(format + 2) : 0;
    int64_t further;
    *rank = PyTuple_Size(shape);
    if (*rank <= axis)
        return 0;
    if (strides && PyTuple_Check(strides)) {
        if (take_integer(Py_XNewRef(PyTuple_GetItem(strides, axis)), stride) < 0)
            return -1;
        *stride = bytes && *stride % bytes == 0 ? *stride / bytes : -1;
    } else {
        *stride = 1;
        for (Py_ssize_t i = axis + 1; i < *rank; i++) {
            if (take_integer(Py_NewRef(PyTuple_GetItem(shape, i)), &further) < 0)
                return -1;
            *stride *= further;
        }
    }
    return take_integer(Py_NewRef(PyTuple_GetItem(shape, axis)), size);
}

static int dlpack_extent(const DLTensor *tensor, int axis, int64_t *rank, int64_t *size, int64_t *stride)
{
    *rank = tensor->ndim;
    if (*rank <= axis)
        return 0;
    *size = tensor->shape[axis];
    *stride = 1;
    for (int i = axis + 1; i < tensor->ndim; i++)
        *stride *= tensor->shape[i];
    if (tensor->strides)
        *stride = tensor->strides[axis];
    return 0;
}

/* A size or stride of a tensor that the kernel takes as a tensor descriptor.  An axis of one element has any stride. */
static int read_extent(const Kernel *kernel, int index, PyObject *value, Call *call, uint64_t *fact)
{
    const Parameter *extent = &kernel->parameters[index];
    const char *name = kernel->parameters[extent->tensor].name;
    int64_t rank = 0, size = 0, stride = 0;
    int status = -1, holder = 0;
    PyObject *interface = NULL;
    while (holder < call->held_count && call->holders[holder] != extent->tensor)
        holder++;
    if (holder < call->held_count) {
        status = dlpack_extent(PyCapsule_GetPointer(call->held[holder], "dltensor"), extent->axis, &rank, &size, &stride);
    } else if (is_known_tensor(value)) {
        status = torch_extent(value, extent->axis, &rank, &size, &stride);
    } else if (value != Py_None && !PyLong_Check(value) && (interface = PyObject_GetAttr(value, names.array_interface))) {
        status = interface_extent(interface, extent->axis, &rank, &size, &stride);
        Py_DECREF(interface);
    } else {
        return wrong_type(kernel, extent->tensor, "a tensor, whose sizes and strides the kernel needs", value);
    }
    if (status < 0)
        return -1;
    if (rank != extent->rank) {
        PyErr_Format(PyExc_ValueError, "%s(): %s has %lld dimensions, the kernel takes %d", kernel->name, name, (long long)rank, extent->rank);
        return -1;
    }
    if (size > 1 && (extent->stride_bytes ? stride * extent->stride_bytes % 16 != 0 : extent->axis == extent->rank - 1 && stride != 1)) {
        PyErr_Format(PyExc_ValueError, extent->stride_bytes ? "%s(): %s has a stride of %lld elements along axis %d, no multiple of 16 bytes"
                     : "%s(): %s has a stride of %lld elements along axis %d, where it must be contiguous",
                     kernel->name, name, (long long)stride, extent->axis);
        return -1;
    }
    call->values[index].integer = !extent->stride_bytes ? size : size > 1 ? stride : 16;
    *fact = integer_facts(call->values[index].integer, 0);
    return 0;
}
