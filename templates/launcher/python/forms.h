/* The class of answers, and how forms of calls come there. */

static const Kernel *kernel_of(PyObject *index)
{
    long number = PyLong_AsLong(index);
    if (number >= 0 && number < kernel_count)
        return &kernels[number];
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_IndexError, "no such kernel");
    return NULL;
}

/* Reads (kernel, numbers of the values of its parameters, keywords) into `known`; -1 with an exception. */
static int know_launch(KnownLaunch *known, PyObject *launch, int value_count)
{
    PyObject *index, *places, *keywords;
    if (!PyTuple_Check(launch))
        return report(WRONG_TYPE, "a launch is (kernel, places, keywords)");
    if (!PyArg_ParseTuple(launch, "OO!O!", &index, &PyTuple_Type, &places, &PyDict_Type, &keywords) || !(known->kernel = kernel_of(index)))
        return -1;
    const Kernel *kernel = known->kernel;
    int parameters = kernel->parameter_count, options = kernel->option_count, found = 0;
    known->places = PyMem_Calloc((size_t)parameters + 1, sizeof *known->places);
    known->options = PyMem_Calloc((size_t)options + 1, sizeof *known->options);
    known->results = PyMem_Calloc((size_t)kernel->row_count + 1, sizeof *known->results);
    if (!known->places || !known->options || !known->results) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < parameters; i++) {
        long place = i < PyTuple_Size(places) ? PyLong_AsLong(PyTuple_GetItem(places, i)) : -1;
        int may_miss = kernel->parameters[i].is_extent || kernel->parameters[i].grid_only;
        if (PyErr_Occurred() || place >= value_count || (place < 0 && !may_miss)) {
            PyErr_Format(PyExc_ValueError, "%s() is missing the argument %R", kernel->name, kernel->names[i]);
            return -1;
        }
        known->places[i] = (int)place;
    }
    uint64_t room[room_of(kernel)];
    Call call;
    begin_call(kernel, &call, room, 0);
    for (int i = 0; i < options; i++) {
        PyObject *value = PyDict_GetItemWithError(keywords, kernel->names[parameters + i]);
        found += value != NULL;
        value = value == Py_None && !kernel->options[i].required ? NULL : value;
        if (PyErr_Occurred() || (!value && kernel->options[i].required) || read_option(kernel, i, value, &call) < 0) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "%s() is missing the keyword argument %R", kernel->name, kernel->names[parameters + i]);
            return -1;
        }
    }
    memcpy(known->options, call.facts + DEVICE_FACTS + parameters, (size_t)options * sizeof *known->options);
    if (found == PyDict_Size(keywords))
        return 0;
    PyErr_Format(PyExc_ValueError, "%s() has not all of the arguments %R", kernel->name, keywords);
    return -1;
}

static void forget_form(Form *form)
{
    for (int i = 0; form->launches && i < form->launch_count; i++) {
        KnownLaunch *known = &form->launches[i];
        for (int row = 0; known->results && row < known->kernel->row_count; row++)
            Py_XDECREF(known->results[row]);
        PyMem_Free(known->places);
        PyMem_Free(known->options);
        PyMem_Free(known->results);
    }
    Py_XDECREF(form->names);
    Py_XDECREF(form->constants);
    Py_XDECREF(form->bound);
    Py_XDECREF(form->resolve);
    PyMem_Free(form->launches);
    PyMem_Free(form->kinds);
    PyMem_Free(form);
}

/* Fills a form; -1 with an exception. */
static int read_form(Form *form, PyObject *arguments)
{
    PyObject *names, *kinds, *constants, *bound, *launches, *resolve;
    if (!PyArg_ParseTuple(arguments, "O!O!O!O!O!O", &PyTuple_Type, &names, &PyTuple_Type, &kinds, &PyTuple_Type, &constants, &PyTuple_Type, &bound,
                          &PyTuple_Type, &launches, &resolve))
        return -1;
    form->names = Py_NewRef(names);
    form->constants = Py_NewRef(constants);
    form->bound = Py_NewRef(bound);
    form->resolve = Py_NewRef(resolve);
    form->given_count = (int)PyTuple_Size(kinds);
    form->place_count = form->given_count - (int)PyTuple_Size(names);
    form->value_count = (int)PyTuple_Size(constants);
    int launch_count = (int)PyTuple_Size(launches);
    form->kinds = PyMem_Calloc((size_t)form->given_count + 1, sizeof *form->kinds);
    form->launches = PyMem_Calloc((size_t)launch_count + 1, sizeof *form->launches);
    if (!form->kinds || !form->launches) {
        PyErr_NoMemory();
        return -1;
    }
    int is_right = form->place_count >= 0 && form->given_count <= form->value_count && form->value_count <= MAX_SLOTS;
    for (int i = 0; is_right && i < form->given_count; i++) {
        long kind = PyLong_AsLong(PyTuple_GetItem(kinds, i));
        is_right = kind >= 0 && kind < VALUE_KINDS;
        form->kinds[i] = (uint8_t)kind;
    }
    for (Py_ssize_t i = 0; is_right && i < PyTuple_Size(bound); i++) {
        PyObject *name;
        int place;
        PyObject *pair = PyTuple_GetItem(bound, i);
        is_right = PyTuple_Check(pair) && PyArg_ParseTuple(pair, "Oi", &name, &place) && place >= 0 && place < form->value_count;
    }
    if (!is_right) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "no form of a call");
        return -1;
    }
    for (int i = 0; i < launch_count; i++) {
        PyObject *launch = PyTuple_GetItem(launches, i);
        form->launch_count = i;
        int status = know_launch(&form->launches[i], launch, form->value_count);
        form->launch_count += form->launches[i].kernel != NULL;
        if (status < 0)
            return -1;
    }
    return 0;
}

/* add(names, kinds, values, bound, launches, resolve): whether there is room for more forms than this one. */
static PyObject *answers_add(PyObject *self, PyObject *arguments)
{
    Answers *answers = (Answers *)self;
    Form *form = PyMem_Calloc(1, sizeof *form);
    if (!form)
        return PyErr_NoMemory();
    if (read_form(form, arguments) < 0) {
        forget_form(form);
        return NULL;
    }
    if (answers->form_count == MAX_FORMS) {
        forget_form(form);
        Py_RETURN_FALSE;
    }
    answers->forms[answers->form_count++] = form;
    return PyBool_FromLong(answers->form_count < MAX_FORMS);
}

/* holds(): whether all guards hold. */
static PyObject *answers_hold(PyObject *self, PyObject *unused)
{
    (void)unused;
    int holds = guards_hold((Answers *)self);
    leave();
    return PyErr_Occurred() ? NULL : PyBool_FromLong(holds);
}

/* _Answers(kernel, guards): none yet, for as long as the guards hold. */
static PyObject *make_answers(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *kernel, *guards;
    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "OO!", &kernel, &PyTuple_Type, &guards))
        return NULL;
    int count = (int)PyTuple_Size(guards);
    for (int i = 0; i < count; i++)
        if (!is_guard(PyTuple_GetItem(guards, i)))
            return PyErr_Format(PyExc_TypeError, "a guard is (holder, name) or (holder, name, expected)");
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Answers *self = (Answers *)allocate(type, 0);
    if (!self)
        return NULL;
    self->kernel = Py_NewRef(kernel);
    self->guards = PyMem_Calloc((size_t)count + 1, sizeof *self->guards);
    if (!self->guards) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (int i = 0; i < count; i++) {
        Guard *guard = &self->guards[i];
        *guard = guard_of(PyTuple_GetItem(guards, i));
        Py_INCREF(guard->holder);
        Py_INCREF(guard->name);
        Py_XINCREF(guard->expected);
        self->guard_count = i + 1;
    }
    return (PyObject *)self;
}

static int visit_answers(PyObject *object, visitproc visit, void *arg)
{
    Answers *self = (Answers *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->kernel);
    for (int i = 0; i < self->guard_count; i++) {
        Py_VISIT(self->guards[i].holder);
        Py_VISIT(self->guards[i].name);
        Py_VISIT(self->guards[i].expected);
    }
    for (int i = 0; i < self->form_count; i++) {
        Form *form = self->forms[i];
        Py_VISIT(form->names);
        Py_VISIT(form->constants);
        Py_VISIT(form->bound);
        Py_VISIT(form->resolve);
        for (int j = 0; j < form->launch_count; j++)
            for (int row = 0; row < form->launches[j].kernel->row_count; row++)
                Py_VISIT(form->launches[j].results[row]);
    }
    return 0;
}

static int clear_answers(PyObject *object)
{
    Answers *self = (Answers *)object;
    Py_CLEAR(self->kernel);
    while (self->form_count)
        forget_form(self->forms[--self->form_count]);
    while (self->guard_count) {
        Guard guard = self->guards[--self->guard_count];
        Py_DECREF(guard.holder);
        Py_DECREF(guard.name);
        Py_XDECREF(guard.expected);
    }
    return 0;
}

static void free_answers(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject_GC_UnTrack(object);
    clear_answers(object);
    PyMem_Free(((Answers *)object)->guards);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef answers_methods[] = {
    { "launch", (PyCFunction)(void (*)(void))answers_launch, METH_FASTCALL | METH_KEYWORDS, NULL },
    { "at", (PyCFunction)(void (*)(void))answers_at, METH_FASTCALL, NULL },
    { "add", answers_add, METH_VARARGS, NULL },
    { "holds", answers_hold, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL }
};

static PyType_Slot answers_slots[] = {
    { Py_tp_new, make_answers },
    { Py_tp_traverse, visit_answers },
    { Py_tp_clear, clear_answers },
    { Py_tp_dealloc, free_answers },
    { Py_tp_methods, answers_methods },
    { 0, NULL }
};

static PyType_Spec answers_spec = { "_launcher._Answers", sizeof(Answers), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, answers_slots };

/* Adds the class to the module. */
static int add_answers(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&answers_spec);
    int status = type ? PyModule_AddObjectRef(module, "_Answers", type) : -1;
    Py_XDECREF(type);
    return status;
}
