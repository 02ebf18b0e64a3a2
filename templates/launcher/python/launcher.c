/* The launcher of every package that kbuild makes; the kernels of a package come from its own launcher_tables.c.
 *
 * A function of the package binds its arguments, reduces them to facts (bits such as "q holds fp16", "N is divisible by
 * 16", "N <= 1024 holds"), takes the first row of its kernel whose required bits are all there, and launches that row's
 * cubin.  The facts of a few calls are remembered with their rows, so that a repeated call does not search the table. */

#define _GNU_SOURCE /* dladdr */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "types.h"

#include "functions.h"

#include "core/report.h"
#include "core/folder.h"
#include "core/driver.h"
#include "core/facts.h"
#include "core/select.h"
#include "core/maps.h"
#include "core/grid.h"
#include "core/shapes.h"
#include "core/memory.h"
#include "core/bind.h"

#include "driver.h"
#include "arguments.h"

static int slot_of_keyword(const Kernel *kernel, PyObject *keyword, int count, int likely)
{
    if (likely < count && kernel->names[likely] == keyword)
        return likely;
    for (int i = 0; i < count; i++)
        if (kernel->names[i] == keyword)
            return i;
    for (int i = 0; i < count; i++)
        if (PyUnicode_Compare(kernel->names[i], keyword) == 0)
            return i;
    return -1;
}

/* Sorts positional and keyword arguments into slots: parameters, options, stream, grid; NULL where not given. */
static int bind_arguments(const Kernel *kernel, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords, PyObject **slots)
{
    int slot_count = kernel->parameter_count + kernel->option_count + 2, given = kernel->parameter_count;
    while (given && kernel->parameters[given - 1].is_extent)
        given--;
    if (count > given) {
        PyErr_Format(PyExc_TypeError, "%s() takes %d positional arguments, not %zd", kernel->name, given, count);
        return -1;
    }
    for (int i = 0; i < slot_count; i++)
        slots[i] = i < count ? arguments[i] : NULL;
    Py_ssize_t keyword_count = keywords ? PyTuple_Size(keywords) : 0;
    int slot = (int)count - 1;
    for (Py_ssize_t i = 0; i < keyword_count; i++) {
        PyObject *keyword = PyTuple_GetItem(keywords, i);
        slot = slot_of_keyword(kernel, keyword, slot_count, slot + 1);
        if (slot >= given && slot < kernel->parameter_count)
            slot = -1;
        if (slot < 0 || slots[slot]) {
            PyErr_Format(PyExc_TypeError, slot < 0 ? "%s() has no argument %R" : "%s() got %R twice", kernel->name, keyword);
            return -1;
        }
        slots[slot] = arguments[count + i];
    }
    PyObject *grid = slots[slot_count - 1];
    for (int i = 0; i < given; i++)
        if (!slots[i] || (kernel->parameters[i].grid_only && slots[i] == Py_None)) {
            slots[i] = NULL;
            if (kernel->parameters[i].grid_only && grid && grid != Py_None)
                continue;
            PyErr_Format(PyExc_TypeError, "%s() is missing the argument %R", kernel->name, kernel->names[i]);
            return -1;
        }
    for (int i = 0; i < kernel->option_count; i++) {
        PyObject **option = &slots[kernel->parameter_count + i];
        *option = *option == Py_None && !kernel->options[i].required ? NULL : *option;
        if (!*option && kernel->options[i].required) {
            PyErr_Format(PyExc_TypeError, "%s() is missing the keyword argument %R", kernel->name, kernel->names[kernel->parameter_count + i]);
            return -1;
        }
    }
    return 0;
}

static int read_parameters(const Kernel *kernel, Call *call)
{
    for (int i = 0; i < kernel->parameter_count; i++)
        if (read_parameter(kernel, i, call->slots[kernel->parameters[i].is_extent ? kernel->parameters[i].tensor : i], call) < 0)
            return -1;
    return 0;
}

/* Everything about the call that does not depend on its device. */
static int read_arguments(const Kernel *kernel, Call *call)
{
    PyObject **slots = call->slots;
    if (read_stream(slots[kernel->parameter_count + kernel->option_count], call) < 0 || read_parameters(kernel, call) < 0)
        return -1;
    for (int i = 0; i < kernel->option_count; i++)
        if (read_option(kernel, i, slots[kernel->parameter_count + i], call) < 0)
            return -1;
    return 0;
}

/* What is released may run Python code, which must not meet the exception of the call. */
static void release_arguments(Call *call)
{
    PyObject *type, *value, *traceback;
    if (!call->held_count)
        return;
    PyErr_Fetch(&type, &value, &traceback);
    while (call->held_count)
        Py_DECREF(call->held[--call->held_count].object);
    PyErr_Restore(type, value, traceback);
}

/* The call's device, where no argument has one: that of the current context, else the first. */
static int default_device(void)
{
    CUdevice device = 0;
    if (need_driver() < 0)
        return -1;
    if (driver.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        device = 0;
    for (int i = 0; i < MAX_DEVICES; i++)
        if (devices[i] && devices[i]->device == device)
            return i;
    return device;
}

/* _default_device(): its ordinal */
static PyObject *ask_default_device(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    int ordinal = default_device();
    return ordinal < 0 ? NULL : PyLong_FromLong(ordinal);
}

static int torch_is_initialized(void)
{
    PyObject *module = PyImport_GetModule(names.torch_cuda);
    PyObject *answer = module ? PyObject_CallMethod(module, "is_initialized", NULL) : NULL;
    int known = answer && PyObject_IsTrue(answer) == 1;
    PyErr_Clear();
    Py_XDECREF(answer);
    Py_XDECREF(module);
    return known;
}

/* The caller's stream: torch's current one where torch is in use, the first array's, else the legacy stream. */
static int choose_stream(Call *call)
{
    if (call->has_stream)
        return 0;
    if (!call->has_torch_tensor && !torch.tensor)
        find_torch();
    void *current = NULL;
    if (call->exchange && call->exchange->current_stream(DLPACK_CUDA, call->device, &current) == 0) {
        call->stream = (uint64_t)(uintptr_t)current;
        return 0;
    }
    PyErr_Clear();
    if (torch.current_stream && (call->has_torch_tensor || torch_is_initialized())) {
        PyObject *ordinal = PyLong_FromLong(call->device);
        int status = take_unsigned(ordinal ? PyObject_CallFunctionObjArgs(torch.current_stream, ordinal, NULL) : NULL, &call->stream);
        Py_XDECREF(ordinal);
        return status;
    }
    call->stream = call->producer_count && call->producers[0] != DEFAULT_STREAM ? call->producers[0] : 0;
    return 0;
}

#include "launch.h"
