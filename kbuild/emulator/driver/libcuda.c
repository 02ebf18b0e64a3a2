/* A library in the place of libcuda.so.1: it hands every call over to Python, in the process that has loaded it.
 *
 * The functions are in entries.h, which is made from the table of the module kbuild.emulator.driver.  The handler is given by
 * kbuild_stand_in_connect.  Where that was not done before the first call, and Python runs in this process, the library asks the
 * module to do it, with its own path: beside the library lies the description of the devices it stands for. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

enum { DEINITIALIZED = 4, INIT_FAILED = 303 };

typedef int (*Handler)(const char *name, const int64_t *words);

static Handler volatile handler;
static volatile int is_closed;

/* The handler of all calls from now on; NULL for none any more. */
EXPORT void kbuild_stand_in_connect(Handler given)
{
    is_closed = given == NULL;
    handler = given;
}

/* Python's functions, which the process has if Python runs in it: the library is not linked against any Python. */
typedef struct {
    int (*is_initialized)(void);
    int (*ensure)(void);
    void (*release)(int);
    void *(*import)(const char *);
    void *(*call_method)(void *, const char *, const char *, ...);
    void (*print)(void);
} Python;

static int find(const char *name, void *function)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    *(void **)function = found;
    return found != NULL;
}

static void connect_python(void)
{
    Python python;
    Dl_info self;
    if (!find("Py_IsInitialized", &python.is_initialized) || !find("PyGILState_Ensure", &python.ensure) ||
        !find("PyGILState_Release", &python.release) || !find("PyImport_ImportModule", &python.import) ||
        !find("PyObject_CallMethod", &python.call_method) || !find("PyErr_Print", &python.print) ||
        !python.is_initialized() || !dladdr((void *)(uintptr_t)connect_python, &self)) {
        fputs("libcuda.so.1 of kbuild: it stands in for the driver in processes of Python alone, and this is none\n", stderr);
        return;
    }
    int state = python.ensure();
    void *module = python.import("kbuild.emulator.driver");
    if (!module || !python.call_method(module, "connect", "s", self.dli_fname))
        python.print();
    python.release(state);
}

static int call(const char *name, const int64_t *words)
{
    if (!handler && !is_closed)
        connect_python();
    Handler current = handler;
    return current ? current(name, words) : is_closed ? DEINITIALIZED : INIT_FAILED;
}

#include "entries.h"
