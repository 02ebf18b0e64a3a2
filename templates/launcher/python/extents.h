/* Sizes and strides of tensors that a kernel takes as tensor descriptors. */

static int torch_extent(PyObject *tensor, int axis, Axis *found)
{
    PyObject *shape = PyObject_GetAttr(tensor, names.shape), *number = shape ? PyLong_FromLong(axis) : NULL;
    int status = number && (found->rank = PySequence_Size(shape)) >= 0 ? 0 : -1;
    if (status == 0 && found->rank > axis &&
        (take_integer(PySequence_GetItem(shape, axis), &found->size) < 0 ||
         take_integer(PyObject_CallMethodObjArgs(tensor, names.stride, number, NULL), &found->stride) < 0))
        status = -1;
    Py_XDECREF(number);
    Py_XDECREF(shape);
    return status;
}

/* The same of an array interface; -1, with or without an exception, if it is malformed. */
static int entries_extent(const Interface *entries, int axis, Axis *found)
{
    long bytes = 0;
    if (!interface_format(entries, &bytes) || !entries->shape || !PyTuple_Check(entries->shape))
        return -1;
    found->rank = PyTuple_Size(entries->shape);
    if (found->rank <= axis)
        return 0;
    if (take_integer(Py_NewRef(PyTuple_GetItem(entries->shape, axis)), &found->size) < 0)
        return -1;
    if (entries->strides && entries->strides != Py_None) {
        if (!PyTuple_Check(entries->strides) || PyTuple_Size(entries->strides) != found->rank ||
            take_integer(Py_NewRef(PyTuple_GetItem(entries->strides, axis)), &found->stride) < 0)
            return -1;
        found->stride = bytes && found->stride % bytes == 0 ? found->stride / bytes : -1;
        return 0;
    }
    found->stride = 1;
    for (Py_ssize_t i = axis + 1; i < found->rank; i++) {
        int64_t further = 0;
        if (take_integer(Py_NewRef(PyTuple_GetItem(entries->shape, i)), &further) < 0 ||
            __builtin_mul_overflow(found->stride, further, &found->stride))
            return -1;
    }
    return 0;
}

static int interface_extent(PyObject *interface, int axis, Axis *found)
{
    Interface entries = open_interface(interface);
    int status = entries_extent(&entries, axis, found);
    close_interface(&entries);
    return status;
}

/* A size or stride of an axis of a tensor, read off it. */
static int read_extent(const Kernel *kernel, int index, PyObject *value, Call *call, uint64_t *fact)
{
    const LaunchParameter *extent = &kernel->parameters[index];
    PyObject *held = held_of(call, extent->tensor);
    Axis found = { 0, 0, 0 };
    if (held && PyCapsule_CheckExact(held)) {
        if (dlpack_axis(tensor_of(held), extent->axis, &found) < 0)
            return malformed(kernel, extent->tensor, "__dlpack__()");
    } else if (held) {
        if (interface_extent(held, extent->axis, &found) < 0)
            return malformed(kernel, extent->tensor, "__cuda_array_interface__");
    } else if (value == Py_None || PyLong_Check(value)) {
        return wrong_type(kernel, extent->tensor, "a tensor, whose sizes and strides the kernel needs", value);
    } else if (torch_extent(value, extent->axis, &found) < 0) {
        return -1;
    }
    return check_extent(kernel, index, &found, call->values, fact);
}
