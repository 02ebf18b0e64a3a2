/* Calls of libraries' kernels that a package has answered before: answered here again, in one pass over the arguments.
 *
 * _serving binds a call, asks each launch of the package whether it takes that, and adds the form of the call here: how many values
 * it gives by place and which by name, which of them are compile-time values, and these.  A call of a form that is known differs
 * from the first in arrays and numbers alone.  Its facts are read and its row is selected as for any other call, so that nothing is
 * remembered of them; what a row says to the compile-time values and options of the form is asked once.  Whatever else there is,
 * or is wrong, _serving decides. */

/* What has to be as it was: the item of a dictionary, the attribute of another object, or the items of a list.  Without `expected`
   there has to be nothing: no such item, None, or an empty list. */
typedef struct { PyObject *holder, *name, *expected; } Guard;

/* What a value of a call has to be: a compile-time value, or an argument of a kind that Triton tells from others. */
typedef enum { VALUE_CONSTANT, VALUE_ARRAY, VALUE_INTEGER, VALUE_FLOAT, VALUE_FLAG, VALUE_KINDS } ValueKind;

/* A launch that may take calls of a form. */
typedef struct {
    const Kernel *kernel;
    int *places;          /* of its parameters among the values of the form; -1: not given */
    uint64_t *options;    /* facts of its options */
    PyObject **results;   /* what _serving said of its rows, NULL where it was not asked; see known_result */
} KnownLaunch;

/* Calls that have all but arrays and numbers in common. */
typedef struct {
    int place_count, given_count, value_count, launch_count; /* values by place, by place or name, and with defaults */
    uint8_t *kinds;       /* ValueKind of each value that is given */
    PyObject *names;      /* of those that are given by name */
    PyObject *constants;  /* the compile-time values among them, None for others, and after them the defaults */
    PyObject *bound;      /* ((name, number of the value), …): what a grid's function gets beside the row's own values */
    PyObject *resolve;    /* (launch, row): what _serving says of a row */
    KnownLaunch *launches;
} Form;

enum { MAX_FORMS = 32 };

typedef struct {
    PyObject_HEAD
    PyObject *kernel; /* whose calls they are; a copy of it may have the same answers among its attributes */
    int guard_count, form_count, last;
    Guard *guards;
    Form *forms[MAX_FORMS];
} Answers;

/* Borrows from a tuple (holder, name) or (holder, name, expected). */
static Guard guard_of(PyObject *tuple)
{
    return (Guard){ PyTuple_GetItem(tuple, 0), PyTuple_GetItem(tuple, 1), PyTuple_Size(tuple) > 2 ? PyTuple_GetItem(tuple, 2) : NULL };
}

static int is_guard(PyObject *tuple)
{
    return PyTuple_Check(tuple) && (PyTuple_Size(tuple) == 2 || PyTuple_Size(tuple) == 3);
}

static int has_items(PyObject *list, PyObject *items)
{
    Py_ssize_t count = PyTuple_Size(items);
    int is_same = PyList_Size(list) == count;
    for (Py_ssize_t i = 0; is_same && i < count; i++)
        is_same = PyList_GetItem(list, i) == PyTuple_GetItem(items, i);
    return is_same;
}

/* Whether it holds; 0, too, with an exception. */
static int guard_holds(const Guard *guard)
{
    PyObject *found;
    if (PyList_Check(guard->holder))
        return has_items(guard->holder, guard->name);
    if (PyDict_Check(guard->holder)) {
        found = Py_XNewRef(PyDict_GetItemWithError(guard->holder, guard->name));
    } else {
        found = PyObject_GetAttr(guard->holder, guard->name);
        if (!found && PyErr_ExceptionMatches(PyExc_AttributeError))
            PyErr_Clear();
    }
    int holds = guard->expected ? found == guard->expected
                                : !found || found == Py_None || (PyList_Check(found) && PyList_Size(found) == 0);
    Py_XDECREF(found);
    return holds && !PyErr_Occurred();
}

/* Whether two compile-time values are the same to a kernel, of whatever `_serving` takes for one that cannot change. */
static int is_same_constant(PyObject *known, PyObject *value)
{
    if (known == value)
        return 1;
    if (Py_TYPE(known) != Py_TYPE(value))
        return 0;
    if (PyTuple_CheckExact(known)) {
        Py_ssize_t count = PyTuple_Size(known);
        int is_same = PyTuple_Size(value) == count;
        for (Py_ssize_t i = 0; is_same && i < count; i++)
            is_same = is_same_constant(PyTuple_GetItem(known, i), PyTuple_GetItem(value, i));
        return is_same;
    }
    int is_plain = PyLong_CheckExact(known) || PyUnicode_CheckExact(known) || PyFloat_CheckExact(known);
    return is_plain && PyObject_RichCompareBool(known, value, Py_EQ) == 1;
}

/* Whether Triton would take a value for a pointer that is no tensor of a known class. */
static int is_other_array(PyObject *value)
{
    return !PyLong_Check(value) && !PyFloat_Check(value) &&
           (PyObject_HasAttr(value, names.data_ptr) || PyObject_HasAttr(value, names.array_interface) || PyObject_HasAttr(value, names.dlpack));
}

static int is_of_kind(ValueKind kind, PyObject *known, PyObject *value)
{
    switch (kind) {
    case VALUE_CONSTANT: return is_same_constant(known, value);
    case VALUE_INTEGER: return PyLong_CheckExact(value);
    case VALUE_FLOAT: return PyFloat_CheckExact(value);
    case VALUE_FLAG: return PyBool_Check(value);
    default: return is_known_tensor(value) || is_other_array(value);
    }
}

static int has_names(PyObject *known, PyObject *keywords, Py_ssize_t count)
{
    if (known == keywords)
        return 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *one = PyTuple_GetItem(known, i), *other = PyTuple_GetItem(keywords, i);
        if (one != other && PyUnicode_Compare(one, other) != 0)
            return 0;
    }
    return 1;
}

/* The form that a call has; NULL where none is known. */
static Form *form_of(Answers *self, PyObject *const *values, Py_ssize_t count, PyObject *keywords)
{
    Py_ssize_t name_count = keywords ? PyTuple_Size(keywords) : 0;
    for (int tried = 0; tried < self->form_count; tried++) {
        int number = (self->last + tried) % self->form_count, i = 0;
        Form *form = self->forms[number];
        if (form->place_count != count || form->given_count - count != name_count || !has_names(form->names, keywords, name_count))
            continue;
        while (i < form->given_count && is_of_kind(form->kinds[i], PyTuple_GetItem(form->constants, i), values[i]))
            i++;
        if (i == form->given_count) {
            self->last = number;
            return form;
        }
    }
    return NULL;
}

/* Reads a call that a known launch may take, and selects its row, as its function does: the row, NO_ROW or AMBIGUOUS, or UNREADABLE
   with an exception. */
static int read_known(const KnownLaunch *known, PyObject *const *values, Call *call, uint64_t *room, const Device **device)
{
    const Kernel *kernel = known->kernel;
    begin_call(kernel, call, room, 0);
    for (int i = 0; i < slots_of(kernel); i++)
        call->slots[i] = i < kernel->parameter_count && known->places[i] >= 0 ? values[known->places[i]] : NULL;
    if (read_parameters(kernel, call) < 0)
        return UNREADABLE;
    memcpy(call->facts + DEVICE_FACTS + kernel->parameter_count, known->options, (size_t)kernel->option_count * sizeof *known->options);
    return select_of_call(kernel, call, device);
}

/* Whether what went wrong is left to _serving, which does all of it again; what is no Exception, such as an interruption, is not. */
static PyObject *leave(void)
{
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
    return NULL;
}

/* What _serving says of a row, borrowed: None where the launch does not take the call; (object that the launch gives, values of
   the row by name), and for a tuner (…, guard, (object, attribute, value) to be set); anything else leaves the call to it.
   NULL with an exception. */
static PyObject *known_result(const Form *form, int launch, int row)
{
    KnownLaunch *known = &form->launches[launch];
    PyObject **place = &known->results[row - known->kernel->first_row];
    if (!*place) {
        PyObject *result = PyObject_CallFunction(form->resolve, "ii", launch, row - known->kernel->first_row);
        if (!result)
            return NULL;
        if (*place) /* The question was asked again meanwhile. */
            Py_DECREF(result);
        else
            *place = result;
    }
    return *place;
}

/* The sizes of a grid as a tuple, of which Triton takes three. */
static PyObject *sizes_of(PyObject *grid)
{
    if (PyTuple_Check(grid) && PyTuple_Size(grid) <= 3)
        return Py_NewRef(grid);
    if (PyTuple_Check(grid))
        return PyTuple_GetSlice(grid, 0, 3);
    PyObject *all = PyList_Check(grid) ? PyList_AsTuple(grid) : PyTuple_Pack(1, grid);
    PyObject *sizes = all ? PyTuple_GetSlice(all, 0, 3) : NULL;
    Py_XDECREF(all);
    return sizes;
}

/* What the function of a grid makes of the values of a call, and of those of its row. */
static PyObject *evaluated_grid(PyObject *function, const Form *form, PyObject *const *values, PyObject *of_row)
{
    PyObject *all = PyDict_Copy(of_row), *grid = NULL;
    int status = all ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_Size(form->bound); i++) {
        PyObject *pair = PyTuple_GetItem(form->bound, i);
        status = PyDict_SetItem(all, PyTuple_GetItem(pair, 0), values[PyLong_AsLong(PyTuple_GetItem(pair, 1))]);
    }
    if (status == 0)
        grid = PyObject_CallFunctionObjArgs(function, all, NULL);
    Py_XDECREF(all);
    return grid;
}

/* What setting a tuner's choice takes; 0 where the choice is not what it was, or -1 with an exception. */
static int choose(PyObject *result)
{
    if (PyTuple_Size(result) < 4)
        return 1;
    Guard guard = guard_of(PyTuple_GetItem(result, 2));
    if (!guard_holds(&guard))
        return PyErr_Occurred() ? -1 : 0;
    PyObject *choice = PyTuple_GetItem(result, 3);
    return PyObject_SetAttr(PyTuple_GetItem(choice, 0), PyTuple_GetItem(choice, 1), PyTuple_GetItem(choice, 2)) < 0 ? -1 : 1;
}

/* Launches a call of a form by one of its launches: what the launch gives; None where that does not take the call, and NULL without
   an exception where _serving has to decide. */
static PyObject *launch_known(const Form *form, int number, PyObject *const *values, PyObject *grid)
{
    const KnownLaunch *known = &form->launches[number];
    const Device *device;
    uint64_t room[room_of(known->kernel)];
    Call call;
    PyObject *result = NULL, *sizes = NULL, *launched = NULL;
    int row = read_known(known, values, &call, room, &device);
    if (row >= 0)
        result = known_result(form, number, row);
    if (row == NO_ROW || row == AMBIGUOUS || result == Py_None) {
        release_arguments(&call);
        return Py_NewRef(Py_None);
    }
    if (!result || !PyTuple_Check(result)) {
        release_arguments(&call);
        return leave();
    }
    int chosen = choose(result);
    if (chosen > 0 && PyCallable_Check(grid)) {
        /* It is code of the library's, after which nothing is taken for what it was. */
        release_arguments(&call);
        PyObject *made = evaluated_grid(grid, form, values, PyTuple_GetItem(result, 1));
        sizes = made ? sizes_of(made) : NULL;
        Py_XDECREF(made);
        if (!sizes)
            return NULL;
        int again = read_known(known, values, &call, room, &device);
        if (again != row) {
            release_arguments(&call);
            Py_DECREF(sizes);
            return leave();
        }
    } else if (chosen > 0) {
        sizes = sizes_of(grid);
    }
    if (sizes) {
        call.slots[slots_of(known->kernel) - 1] = sizes;
        launched = launch_selected(known->kernel, device, row, &call);
        Py_DECREF(sizes);
    }
    release_arguments(&call);
    Py_XDECREF(launched);
    return launched ? Py_NewRef(PyTuple_GetItem(result, 0)) : NULL;
}

/* Whether all guards hold; 0, too, with an exception. */
static int guards_hold(const Answers *self)
{
    for (int i = 0; i < self->guard_count; i++)
        if (!guard_holds(&self->guards[i]))
            return 0;
    return 1;
}

/* Launches a call that is known: what the launch gives, or NULL without an exception where it is not. */
static PyObject *answer(Answers *self, PyObject *kernel, PyObject *grid, PyObject *const *given, Py_ssize_t count, PyObject *keywords)
{
    const Form *form = kernel == self->kernel && guards_hold(self) ? form_of(self, given, count, keywords) : NULL;
    if (!form)
        return leave();
    PyObject *values[form->value_count + 1];
    for (int i = 0; i < form->value_count; i++)
        values[i] = i < form->given_count ? given[i] : PyTuple_GetItem(form->constants, i);
    for (int i = 0; i < form->launch_count; i++) {
        PyObject *made = launch_known(form, i, values, grid);
        if (made != Py_None)
            return made;
        Py_DECREF(made);
    }
    return NULL;
}

/* launch(kernel, grid, *arguments, **keywords): what the launch gives; None where the call is not known. */
static PyObject *answers_launch(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    if (count < 2)
        return PyErr_Format(PyExc_TypeError, "a kernel, a grid, and the values of a call");
    PyObject *made = answer((Answers *)self, arguments[0], arguments[1], arguments + 2, count - 2, keywords);
    return made || PyErr_Occurred() ? made : Py_NewRef(Py_None);
}

/* kernel.run(*arguments, grid=grid, warmup=False, **keywords), as Triton's own kernel[grid] calls it. */
static PyObject *run_kernel(PyObject *kernel, PyObject *grid, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    PyObject *run = PyObject_GetAttrString(kernel, "run"), *places = PyTuple_New(count), *named = PyDict_New(), *result = NULL;
    int status = run && places && named ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < count; i++)
        status = PyTuple_SetItem(places, i, Py_NewRef(arguments[i]));
    if (status == 0 && (PyDict_SetItemString(named, "grid", grid) < 0 || PyDict_SetItemString(named, "warmup", Py_False) < 0))
        status = -1;
    for (Py_ssize_t i = 0; status == 0 && keywords && i < PyTuple_Size(keywords); i++) {
        PyObject *name = PyTuple_GetItem(keywords, i);
        if (PyDict_GetItemWithError(named, name))
            PyErr_Format(PyExc_TypeError, "run() got multiple values for keyword argument %R", name);
        status = PyErr_Occurred() ? -1 : PyDict_SetItem(named, name, arguments[count + i]);
    }
    if (status == 0)
        result = PyObject_Call(run, places, named);
    Py_XDECREF(run);
    Py_XDECREF(places);
    Py_XDECREF(named);
    return result;
}

/* What kernel[grid] is; `self` is (answers, kernel, grid). */
static PyObject *launch_at(PyObject *self, PyObject *const *arguments, Py_ssize_t count, PyObject *keywords)
{
    PyObject *kernel = PyTuple_GetItem(self, 1), *grid = PyTuple_GetItem(self, 2);
    PyObject *made = answer((Answers *)PyTuple_GetItem(self, 0), kernel, grid, arguments, count, keywords);
    return made || PyErr_Occurred() ? made : run_kernel(kernel, grid, arguments, count, keywords);
}

static PyMethodDef launch_at_definition = { "launch", (PyCFunction)(void (*)(void))launch_at, METH_FASTCALL | METH_KEYWORDS, NULL };

/* at(kernel, grid): what launches a call on a grid, by the kernel's `run` where it is not known. */
static PyObject *answers_at(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "a kernel, and a grid");
    PyObject *own = PyTuple_Pack(3, self, arguments[0], arguments[1]);
    PyObject *launch = own ? PyCFunction_NewEx(&launch_at_definition, own, NULL) : NULL;
    Py_XDECREF(own);
    return launch;
}

#include "forms.h"
