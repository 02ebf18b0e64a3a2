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
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { DEINITIALIZED = 4, INIT_FAILED = 303 };

typedef int (*Handler)(const char *name, const int64_t *words);

static Handler volatile handler;
static volatile int is_closed, has_ended;

/* The handler of all calls from now on; NULL for none any more. */
EXPORT void kbuild_stand_in_connect(Handler given)
{
    is_closed = given == NULL;
    handler = given;
}

/* Python ends: what a program has left is gone.  Objects that it destroys after this, as those of modules, are no mistake. */
EXPORT void kbuild_stand_in_end(void)
{
    kbuild_stand_in_connect(NULL);
    has_ended = 1;
}

/* Python's functions, which the process has if Python runs in it: the library is not linked against any Python. */
typedef struct {
    int (*is_initialized)(void);
    int (*ensure)(void);
    void (*release)(int);
    void *(*import)(const char *);
    void *(*call_method)(void *, const char *, const char *, ...);
    void (*print)(void);
    void (*fetch)(void **, void **, void **);
    void (*restore)(void *, void *, void *);
} Python;

static int find(const char *name, void *function)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    *(void **)function = found;
    return found != NULL;
}

/* Python's functions; NULL where it does not run in this process. */
static const Python *find_python(void)
{
    static Python known;
    static volatile int is_known;
    Python *python = &known;
    if (!is_known)
        is_known = find("Py_IsInitialized", &python->is_initialized) && find("PyGILState_Ensure", &python->ensure) &&
           find("PyGILState_Release", &python->release) && find("PyImport_ImportModule", &python->import) &&
           find("PyObject_CallMethod", &python->call_method) && find("PyErr_Print", &python->print) &&
           find("PyErr_Fetch", &python->fetch) && find("PyErr_Restore", &python->restore);
    return is_known && python->is_initialized() ? python : NULL;
}

static void connect_python(const Python *python)
{
    Dl_info self;
    void *module = dladdr((void *)(uintptr_t)connect_python, &self) ? python->import("kbuild.emulator.driver") : NULL;
    if (!module || !python->call_method(module, "connect", "s", self.dli_fname))
        python->print();
}

static int call(const char *name, const int64_t *words)
{
    if (is_closed)
        return DEINITIALIZED;
    const Python *python = find_python();
    if (!python) {
        fputs("libcuda.so.1 of kbuild: it stands in for the driver in processes of Python alone, and this is none\n", stderr);
        return INIT_FAILED;
    }
    /* Objects that are destroyed while an exception is on its way call the driver, too: the exception stays. */
    void *type, *value, *trace;
    int state = python->ensure();
    python->fetch(&type, &value, &trace);
    if (!handler)
        connect_python(python);
    Handler current = handler;
    int result = current ? current(name, words) : is_closed ? DEINITIALIZED : INIT_FAILED;
    python->restore(type, value, trace);
    python->release(state);
    return result;
}

/* A call of those with which programs free and destroy things. */
static int give_back(const char *name, const int64_t *words)
{
    if (!has_ended)
        return call(name, words);
    if (!strcmp(name, "cuCtxGetCurrent"))
        *(void **)(uintptr_t)words[0] = NULL;
    return 0;
}

#include "entries.h"
