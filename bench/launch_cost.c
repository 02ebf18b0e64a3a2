/* For bench/launch_cost.py: a tensor with torch's interface, and the bare loop over cuLaunchKernel to compare with. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <stdint.h>
#include <time.h>

typedef struct {
    PyObject_HEAD
    unsigned long long address;
    PyObject *dtype, *device;
} Tensor;

static PyObject *data_ptr(Tensor *self, PyObject *unused) { (void)unused; return PyLong_FromUnsignedLongLong(self->address); }
static PyObject *get_device(Tensor *self, PyObject *unused) { (void)self, (void)unused; return PyLong_FromLong(0); }
static PyObject *numel(Tensor *self, PyObject *unused) { (void)self, (void)unused; return PyLong_FromLong(1024); }
static PyObject *stride(Tensor *self, PyObject *unused) { (void)self, (void)unused; return Py_BuildValue("(i)", 1); }
static PyObject *get_dtype(Tensor *self, void *unused) { (void)unused; return Py_NewRef(self->dtype); }
static PyObject *get_place(Tensor *self, void *unused) { (void)unused; return Py_NewRef(self->device); }
static PyObject *get_shape(Tensor *self, void *unused) { (void)self, (void)unused; return Py_BuildValue("(i)", 1024); }

static int initialise(Tensor *self, PyObject *arguments, PyObject *keywords)
{
    (void)keywords;
    if (!PyArg_ParseTuple(arguments, "KOO", &self->address, &self->dtype, &self->device))
        return -1;
    Py_INCREF(self->dtype);
    Py_INCREF(self->device);
    return 0;
}

static PyMethodDef tensor_methods[] = {
    { "data_ptr", (PyCFunction)data_ptr, METH_NOARGS, NULL },
    { "get_device", (PyCFunction)get_device, METH_NOARGS, NULL },
    { "numel", (PyCFunction)numel, METH_NOARGS, NULL },
    { "stride", (PyCFunction)stride, METH_NOARGS, NULL },
    { NULL, NULL, 0, NULL }
};

static PyGetSetDef tensor_attributes[] = {
    { "dtype", (getter)get_dtype, NULL, NULL, NULL },
    { "device", (getter)get_place, NULL, NULL, NULL },
    { "shape", (getter)get_shape, NULL, NULL, NULL },
    { NULL, NULL, NULL, NULL, NULL }
};

static PyTypeObject tensor_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "launch_cost.Tensor", .tp_basicsize = sizeof(Tensor), .tp_flags = Py_TPFLAGS_DEFAULT, .tp_new = PyType_GenericNew,
    .tp_init = (initproc)initialise, .tp_methods = tensor_methods, .tp_getset = tensor_attributes
};

/* bare_loop(library, image, entry, parameters, count): seconds per cuLaunchKernel of an empty grid-1 kernel. */
static PyObject *bare_loop(PyObject *module, PyObject *arguments)
{
    (void)module;
    const char *path, *image, *entry;
    Py_ssize_t size;
    int parameters, count;
    if (!PyArg_ParseTuple(arguments, "sy#sii", &path, &image, &size, &entry, &parameters, &count))
        return NULL;
    void *library = dlopen(path, RTLD_NOW), *context, *loaded, *function, *addresses[64];
    if (!library)
        return PyErr_Format(PyExc_OSError, "%s", dlerror());
    int (*init)(unsigned) = dlsym(library, "cuInit");
    int (*retain)(void **, int) = dlsym(library, "cuDevicePrimaryCtxRetain");
    int (*push)(void *) = dlsym(library, "cuCtxPushCurrent_v2"), (*pop)(void **) = dlsym(library, "cuCtxPopCurrent_v2");
    int (*load)(void **, const void *, unsigned, int *, void **) = dlsym(library, "cuModuleLoadDataEx");
    int (*get)(void **, void *, const char *) = dlsym(library, "cuModuleGetFunction");
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        dlsym(library, "cuLaunchKernel");
    uint64_t values[64] = { 0 };
    for (int i = 0; i < parameters && i < 64; i++)
        addresses[i] = &values[i];
    int code = init(0) || retain(&context, 0) || push(context) || load(&loaded, image, 0, NULL, NULL) || get(&function, loaded, entry);
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int i = 0; i < count; i++)
        code |= launch(function, 1, 1, 1, 128, 1, 1, 0, NULL, addresses, NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    pop(&context);
    if (code)
        return PyErr_Format(PyExc_RuntimeError, "the driver refused the bare loop (%d)", code);
    return PyFloat_FromDouble(((double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec)) / count);
}

static PyMethodDef methods[] = { { "bare_loop", bare_loop, METH_VARARGS, NULL }, { NULL, NULL, 0, NULL } };

static struct PyModuleDef definition = { PyModuleDef_HEAD_INIT, .m_name = "launch_cost", .m_size = -1, .m_methods = methods };

PyMODINIT_FUNC PyInit_launch_cost_native(void)
{
    PyObject *module = PyType_Ready(&tensor_type) < 0 ? NULL : PyModule_Create(&definition);
    if (module)
        PyModule_AddObject(module, "Tensor", Py_NewRef((PyObject *)&tensor_type));
    return module;
}
