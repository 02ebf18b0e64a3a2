/* Arguments of a call as the facts that dispatch needs: which types they may have, which numbers divide them, which values they are. */

#include "arrays.h"
#include "handles.h"
#include "wrapped.h"

/* Says that an argument is nothing that points to memory; operators take tensors alone, which have sizes. */
static int no_pointer(const Kernel *kernel, int index, PyObject *value)
{
    return wrong_type(kernel, index, kernel->of ? "a tensor on a CUDA device" : "a tensor on a CUDA device or an address", value);
}

static int read_pointer(const Kernel *kernel, int index, PyObject *value, Call *call, uint64_t *fact)
{
    uint64_t type = TYPE_MASK;
    int status;
    PyObject *interface = NULL, *address = NULL;
    if (is_known_tensor(value)) {
        status = read_torch_tensor(kernel, index, value, call, &type);
    } else if (value == Py_None) {
        call->values[index].address = 0;
        call->none = index;
        status = 0;
    } else if (PyBool_Check(value) || PyType_Check(value)) { /* a class has the attributes of its tensors */
        return no_pointer(kernel, index, value);
    } else if (PyLong_Check(value)) {
        call->values[index].address = PyLong_AsUnsignedLongLong(value);
        status = PyErr_Occurred() ? no_address(kernel, index) : locate_address(kernel, index, call);
    } else if (is_torch_tensor(value)) {
        status = read_torch_tensor(kernel, index, value, call, &type);
    } else if ((interface = PyObject_GetAttr(value, names.array_interface)) && !says_stream(interface) && PyObject_HasAttr(value, names.dlpack)) {
        Py_DECREF(interface); /* DLPack's exporter is told for whom the array has to be ready. */
        status = read_dlpack(kernel, index, value, call, &type);
    } else if (interface) {
        status = read_array_interface(kernel, index, interface, call, &type);
    } else if (!PyErr_ExceptionMatches(PyExc_AttributeError)) {
        return -1;
    } else {
        PyErr_Clear();
        if (!kernel->of && (address = address_by_cuda_python(value)))
            status = take_unsigned(address, &call->values[index].address) < 0 ? no_address(kernel, index) : locate_address(kernel, index, call);
        else if (PyObject_HasAttr(value, names.dlpack))
            status = read_dlpack(kernel, index, value, call, &type);
        else if (!kernel->of && is_wrapped(value))
            status = read_wrapped(kernel, index, value, call, &type);
        else
            return no_pointer(kernel, index, value);
    }
    if (status < 0)
        return -1;
    *fact = type | divisibility(call->values[index].address);
    return 0;
}

/* An int for an object that counts as one, numpy.bool among them; NULL for any other, with an exception only if one was raised in it. */
static PyObject *as_integer(PyObject *value)
{
    PyObject *integer = PyNumber_Index(value);
    if (integer || !PyErr_ExceptionMatches(PyExc_TypeError))
        return integer;
    PyErr_Clear();
    PyObject *name = name_of_type(value);
    if (name && (PyUnicode_CompareWithASCIIString(name, "bool") == 0 || PyUnicode_CompareWithASCIIString(name, "bool_") == 0)) {
        int truth = PyObject_IsTrue(value);
        integer = truth < 0 ? NULL : PyLong_FromLong(truth);
    }
    Py_XDECREF(name);
    return integer;
}

static int too_large(const Kernel *kernel, int index, const char *what)
{
    PyErr_Clear();
    PyErr_Format(PyExc_OverflowError, "%s(): %s does not fit %s", kernel->name, kernel->parameters[index].name, what);
    return -1;
}

static int read_integer(const Kernel *kernel, int index, PyObject *value, Call *call, uint64_t *fact)
{
    int overflow = 0, large = 0;
    PyObject *integer = NULL;
    if (!PyLong_Check(value)) {
        integer = as_integer(value);
        if (!integer)
            return PyErr_Occurred() ? -1 : wrong_type(kernel, index, "an integer", value);
        value = integer;
    }
    int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow > 0) {
        number = (int64_t)PyLong_AsUnsignedLongLong(value);
        large = !PyErr_Occurred();
        PyErr_Clear();
    }
    Py_XDECREF(integer);
    if (overflow && !large)
        return too_large(kernel, index, "64 bits");
    call->values[index].integer = number;
    *fact = integer_facts(number, large);
    return 0;
}

#include "extents.h"

static int read_parameter(const Kernel *kernel, int index, PyObject *value, Call *call)
{
    const LaunchParameter *parameter = &kernel->parameters[index];
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
        if (call->values[index].number == -1.0 && PyErr_Occurred())
            status = PyErr_ExceptionMatches(PyExc_TypeError)       ? wrong_type(kernel, index, "a number", value)
                   : PyErr_ExceptionMatches(PyExc_OverflowError) ? too_large(kernel, index, "a double")
                                                                   : -1;
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
    if (PyErr_Occurred())
        return -1;
    for (int i = 0; i < option->count; i++)
        if (type ? option->values[i].type == type : same_value(&option->values[i], integer ? integer : value))
            *fact |= UINT64_C(1) << i;
    Py_XDECREF(integer);
    return 0;
}
