/* Arrays of JAX, which XLA's custom calls read, not this launcher: it gives calls with them away, and has the handlers. */

static struct {
    PyObject *array;  /* jax.Array, also of what stands for an array while JAX traces; NULL until jax is found in sys.modules */
    void *library;    /* the library for C, which has the handlers */
} jax;

/* Whether an object is an array of JAX's; never imports JAX, and never raises. */
static int is_jax_array(PyObject *value)
{
    if (!jax.array) {
        PyObject *module = PyImport_GetModule(names.jax);
        jax.array = attribute_of(module, "Array");
        Py_XDECREF(module);
    }
    int is_array = jax.array ? PyObject_IsInstance(value, jax.array) == 1 : 0;
    PyErr_Clear();
    return is_array;
}

/* Whether JAX has to see a call: an input is an array of JAX's, and no output is given. */
static int is_for_jax(const Operator *op, PyObject *const *arguments)
{
    int found = 0;
    for (int i = 0; i < op->input_count && !found; i++)
        found = arguments[i] != Py_None && !is_known_tensor(arguments[i]) && is_jax_array(arguments[i]);
    for (int i = 0; i < op->output_count && found; i++)
        found = arguments[op->input_count + op->scalar_count + i] == Py_None;
    return found;
}

/* Opens the library for C, which lies beside this one. */
static int open_library(void)
{
    static char path[PATH_LENGTH]; /* not on the stack, of which a call that opens nothing would take as much */
    if (path_beside("lib", package_symbol, ".so", path) < 0)
        return -1;
    jax.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return jax.library ? 0 : report(WRONG_LAUNCH, "%s: %s; install it again", package_name, dlerror());
}

/* _xla_handler(operator): a capsule with its handler for XLA. */
static PyObject *xla_handler(PyObject *module, PyObject *argument)
{
    (void)module;
    long number = PyLong_AsLong(argument);
    if (PyErr_Occurred() || number < 0 || number >= operator_count)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_IndexError, "no such operator");
    char symbol[512];
    snprintf(symbol, sizeof symbol, "%s_%s_xla", package_symbol, operators[number].name);
    if (!jax.library && open_library() < 0)
        return NULL;
    void *handler = dlsym(jax.library, symbol);
    if (!handler)
        return PyErr_Format(hooks.launch_error, "%s: its library for C has no function %s; install it again", package_name, symbol);
    return PyCapsule_New(handler, "xla._CUSTOM_CALL_TARGET", NULL);
}
