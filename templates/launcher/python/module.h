/* The module that Python sees: a function for each kernel, and what dispatch.py asks for. */

static const Kernel *kernel_of_row(long row)
{
    const Kernel *kernel = kernels;
    while (row >= kernel->first_row + kernel->row_count)
        kernel++;
    return kernel;
}

/* The values of a kernel's costs for a call; None for one that has no value. */
static PyObject *tuple_of_costs(const Kernel *kernel, const Value *arguments, int num_sms)
{
    PyObject *tuple = PyTuple_New(kernel->cost_count);
    for (int i = 0; tuple && i < kernel->cost_count; i++) {
        int fault = 0;
        int64_t cost = kernel->cost(arguments, num_sms, i, &fault);
        PyObject *item = fault ? Py_NewRef(Py_None) : PyLong_FromLongLong(cost);
        if (!item || PyTuple_SetItem(tuple, i, item) < 0) {
            Py_DECREF(tuple);
            return NULL;
        }
    }
    return tuple;
}

/* _facts(kernel, multiprocessors, *arguments, **keywords): (ordinal or -1, facts, arguments, grid, costs), without the device's own facts.
   The number of multiprocessors is that of a device which need not be there; 0 stands for the call's own. */
static PyObject *call_facts(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    (void)module;
    if (count < 2)
        return PyErr_Format(PyExc_TypeError, "a kernel, and a number of multiprocessors");
    const Kernel *kernel = kernel_of(arguments[0]);
    long num_sms = kernel ? PyLong_AsLong(arguments[1]) : 0;
    if (!kernel || (num_sms == -1 && PyErr_Occurred()))
        return NULL;
    uint64_t room[room_of(kernel)];
    PyObject *result = NULL;
    Call call;
    begin_call(kernel, &call, room, num_sms != 0);
    if (bind_arguments(kernel, arguments + 2, count - 2, keywords, call.slots) < 0)
        return NULL;
    if (read_arguments(kernel, &call) == 0 && (num_sms || (num_sms = multiprocessors_of(&call)) >= 0) &&
        check_conditions(kernel, call.values, call.facts, (int)num_sms) == 0) {
        call.facts[FACT_TARGET] = call.facts[FACT_SHARED] = 0;
        PyObject *grid = call.slots[slots_of(kernel) - 1];
        result = Py_BuildValue("iNNON", call.device, tuple_of_bits(call.facts, kernel->fact_count),
                               tuple_of_slots(call.slots, slots_of(kernel) - 2), grid ? grid : Py_None,
                               tuple_of_costs(kernel, call.values, (int)num_sms));
    }
    release_arguments(&call);
    return result;
}

/* _grid(row, multiprocessors, *arguments, **keywords): the grid that a row would be launched with. */
static PyObject *call_grid(PyObject *module, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    (void)module;
    long index = count >= 2 ? PyLong_AsLong(arguments[0]) : -1;
    long num_sms = count >= 2 && !PyErr_Occurred() ? PyLong_AsLong(arguments[1]) : -1;
    if (PyErr_Occurred() || index < 0 || index >= row_count)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_IndexError, "no such row");
    const Kernel *kernel = kernel_of_row(index);
    uint64_t room[room_of(kernel)];
    PyObject *result = NULL;
    Call call;
    begin_call(kernel, &call, room, 1);
    int64_t grid[3];
    if (bind_arguments(kernel, arguments + 2, count - 2, keywords, call.slots) < 0)
        return NULL;
    int is_given = read_arguments(kernel, &call) < 0 ? -1 : read_grid(kernel, call.slots[slots_of(kernel) - 1], grid);
    if (is_given >= 0 && compute_grid(kernel, &rows[index], is_given, call.values, (int)num_sms, grid) >= 0)
        result = Py_BuildValue("LLL", (long long)grid[0], (long long)grid[1], (long long)grid[2]);
    release_arguments(&call);
    return result;
}

/* _place(row): the name of its kernel; archive, key and digest of its code. */
static PyObject *place_of_row(PyObject *module, PyObject *number)
{
    (void)module;
    long row = PyLong_AsLong(number);
    if (PyErr_Occurred() || row < 0 || row >= row_count)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_IndexError, "no such row");
    return Py_BuildValue("ssss", kernel_of_row(row)->name, archives[rows[row].archive].name, rows[row].key, rows[row].sha256);
}

/* The cost in a list of values and whether they are faults, in turn: what `_select` has in place of a kernel's own. */
static int64_t cost_given(const Value *costs, int64_t num_sms, int number, int *fault)
{
    (void)num_sms;
    *fault |= costs[2 * number + 1].integer != 0;
    return costs[2 * number].integer;
}

/* _select(kernel, facts, costs): (row or NO_ROW, AMBIGUOUS or COST_FAULT, the first failing fact of each row or -1). */
static PyObject *select_facts(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *index, *sequence, *costs;
    if (!PyArg_ParseTuple(arguments, "OO!O!", &index, &PyTuple_Type, &sequence, &PyTuple_Type, &costs))
        return NULL;
    const Kernel *kernel = kernel_of(index);
    if (!kernel)
        return NULL;
    uint64_t facts[kernel->fact_count];
    if (PyTuple_Size(sequence) != kernel->fact_count)
        return PyErr_Format(PyExc_ValueError, "%s has %d facts", kernel->name, kernel->fact_count);
    if (PyTuple_Size(costs) != kernel->cost_count)
        return PyErr_Format(PyExc_ValueError, "%s has %d costs", kernel->name, kernel->cost_count);
    for (int i = 0; i < kernel->fact_count && !PyErr_Occurred(); i++)
        facts[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(sequence, i));
    Value given[2 * kernel->cost_count + 1];
    for (int i = 0; i < kernel->cost_count && !PyErr_Occurred(); i++) {
        PyObject *cost = PyTuple_GetItem(costs, i);
        given[2 * i + 1].integer = cost == Py_None;
        given[2 * i].integer = cost == Py_None ? 0 : PyLong_AsLongLong(cost);
    }
    PyObject *trace = PyErr_Occurred() ? NULL : PyTuple_New(kernel->row_count);
    for (int i = 0; trace && i < kernel->row_count; i++) {
        int failing;
        row_matches(kernel, &rows[kernel->first_row + i], facts, &failing);
        PyTuple_SetItem(trace, i, PyLong_FromLong(failing));
    }
    if (!trace)
        return NULL;
    Kernel asked = *kernel;
    asked.cost = cost_given;
    int row = select_row(kernel, facts);
    return Py_BuildValue("iN", row < 0 ? row : cheapest_row(&asked, facts, row, given, 0), trace);
}

/* _device_facts(kernel, capability, shared_limit) */
static PyObject *facts_of_device(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *index;
    int capability, shared_limit;
    uint64_t facts[DEVICE_FACTS];
    if (!PyArg_ParseTuple(arguments, "Oii", &index, &capability, &shared_limit))
        return NULL;
    const Kernel *kernel = kernel_of(index);
    if (!kernel)
        return NULL;
    device_facts(kernel, capability, shared_limit, facts);
    return tuple_of_bits(facts, DEVICE_FACTS);
}

/* What is kept here is one for the process: the driver's state, objects of Python's, dispatch.py's functions. */
static int refuse_interpreter(void)
{
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == 0)
        return 0;
    PyErr_Format(PyExc_ImportError, "%s cannot be used in a sub-interpreter, as its state is one for the whole process; import it in "
                 "the main interpreter (of mod_wsgi: WSGIApplicationGroup %%{GLOBAL})", package_name);
    return -1;
}

/* _bind(open_device, load_row, no_variant, driver_error, launch_error): what dispatch.py does for the launcher. */
static PyObject *bind_hooks(PyObject *module, PyObject *arguments)
{
    (void)module;
    if (refuse_interpreter() < 0 || !PyArg_ParseTuple(arguments, "OOOOO", &hooks.open_device, &hooks.load_row, &hooks.no_variant, &hooks.driver_error,
                          &hooks.launch_error))
        return NULL;
    Py_INCREF(arguments); /* keeps the hooks for as long as the process lives */
    return Py_NewRef(Py_None);
}

/* _bind_operators(dispatch, allocate): what operators.py does for them. */
static PyObject *bind_operator_hooks(PyObject *module, PyObject *arguments)
{
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OO", &hooks.dispatch, &hooks.allocate))
        return NULL;
    Py_INCREF(arguments);
    return Py_NewRef(Py_None);
}

#define FASTCALL(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS

static const PyMethodDef own_methods[] = {
    { "_facts", FASTCALL(call_facts), NULL },
    { "_grid", FASTCALL(call_grid), NULL },
    { "_place", place_of_row, METH_O, NULL },
    { "_launches", FASTCALL(operator_launches), NULL },
    { "_xla_handler", xla_handler, METH_O, NULL },
    { "_select", select_facts, METH_VARARGS, NULL },
    { "_device_facts", facts_of_device, METH_VARARGS, NULL },
    { "_bind", bind_hooks, METH_VARARGS, NULL },
    { "_bind_operators", bind_operator_hooks, METH_VARARGS, NULL },
    { "_open_driver", open_driver, METH_O, NULL },
    { "_open_device", open_device, METH_O, NULL },
    { "_device", device_properties, METH_O, NULL },
    { "_load", load_row, METH_VARARGS, NULL },
    { "_default_device", ask_default_device, METH_NOARGS, NULL },
    { "_is_loaded", is_loaded, METH_VARARGS, NULL },
    { "_is_capturing", is_capturing, METH_VARARGS, NULL },
    { NULL, NULL, 0, NULL }
};

/* The functions of the module, those of the kernels first; they stay for as long as the process lives. */
static PyMethodDef *all_methods(void)
{
    PyMethodDef *methods = PyMem_Calloc(kernel_count + sizeof own_methods / sizeof *own_methods, sizeof *methods);
    if (!methods)
        return NULL;
    for (int k = 0; k < kernel_count; k++)
        methods[k] = (PyMethodDef){ kernels[k].name, FASTCALL(kernel_functions[k]), kernels[k].doc };
    memcpy(methods + kernel_count, own_methods, sizeof own_methods);
    return methods;
}

static struct PyModuleDef definition = { PyModuleDef_HEAD_INIT, .m_name = "_launcher", .m_size = -1 };

/* The functions of operators, in a module of their own, for they have the names of kernels. */
static PyMethodDef *operator_methods(int is_run)
{
    PyMethodDef *methods = PyMem_Calloc(operator_count + 1, sizeof *methods);
    for (int i = 0; methods && i < operator_count; i++)
        methods[i] = (PyMethodDef){ operators[i].name, FASTCALL((is_run ? operator_runs : operator_calls)[i]), NULL };
    return methods;
}

static struct PyModuleDef call_definition = { PyModuleDef_HEAD_INIT, .m_name = "_launcher._call", .m_size = -1 };
static struct PyModuleDef run_definition = { PyModuleDef_HEAD_INIT, .m_name = "_launcher._run", .m_size = -1 };

static int add_operators(PyObject *module, const char *name, struct PyModuleDef *of, int is_run)
{
    of->m_methods = of->m_methods ? of->m_methods : operator_methods(is_run);
    PyObject *functions = of->m_methods ? PyModule_Create(of) : PyErr_NoMemory();
    int status = functions ? PyObject_SetAttrString(module, name, functions) : -1;
    Py_XDECREF(functions);
    return status;
}

static int intern_names(void)
{
    for (int k = 0; k < kernel_count; k++) {
        const Kernel *kernel = &kernels[k];
        PyObject **slot = kernel->names;
        for (int i = 0; i < kernel->parameter_count; i++)
            *slot++ = PyUnicode_InternFromString(kernel->parameters[i].name);
        for (int i = 0; i < kernel->option_count; i++)
            *slot++ = PyUnicode_InternFromString(kernel->options[i].name);
        *slot++ = PyUnicode_InternFromString("stream");
        *slot++ = PyUnicode_InternFromString("grid");
    }
    names.data_ptr = PyUnicode_InternFromString("data_ptr");
    names.dtype = PyUnicode_InternFromString("dtype");
    names.get_device = PyUnicode_InternFromString("get_device");
    names.numel = PyUnicode_InternFromString("numel");
    names.array_interface = PyUnicode_InternFromString("__cuda_array_interface__");
    names.dlpack = PyUnicode_InternFromString("__dlpack__");
    names.dlpack_device = PyUnicode_InternFromString("__dlpack_device__");
    names.shape = PyUnicode_InternFromString("shape");
    names.stride = PyUnicode_InternFromString("stride");
    names.torch = PyUnicode_InternFromString("torch");
    names.jax = PyUnicode_InternFromString("jax");
    names.requires_grad = PyUnicode_InternFromString("requires_grad");
    names.torch_cuda = PyUnicode_InternFromString("torch.cuda");
    return PyErr_Occurred() ? -1 : 0;
}

__attribute__((visibility("default"))) PyMODINIT_FUNC PyInit__launcher(void)
{
    if (refuse_interpreter() < 0)
        return NULL;
    definition.m_doc = package_doc;
    definition.m_methods = definition.m_methods ? definition.m_methods : all_methods();
    if (!definition.m_methods)
        return PyErr_NoMemory();
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    if (intern_names() < 0 || add_operators(module, "_call", &call_definition, 0) < 0 ||
        add_operators(module, "_run", &run_definition, 1) < 0 || add_answers(module) < 0 || PyModule_AddStringConstant(module, "build_id", build_id) < 0 ||
        pthread_atfork(NULL, NULL, after_fork_in_child) != 0) {
        Py_DECREF(module);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return module;
}
