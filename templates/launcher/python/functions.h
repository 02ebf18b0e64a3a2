/* The functions of a package's modules, one for each kernel and operator: launcher_functions.c has them, since Python gives a function
 * no word of which one it is. */

typedef PyObject *Function(PyObject *module, PyObject *const *arguments, intptr_t count, PyObject *keywords);

#pragma GCC visibility push(hidden)
/* Of launcher_functions.c, by the number of the kernel or operator. */
extern Function *const kernel_functions[], *const operator_calls[], *const operator_runs[];

/* Of launcher.c. */
PyObject *launch_kernel(const Kernel *kernel, PyObject *const *arguments, intptr_t count, PyObject *keywords);
PyObject *call_operator(const Operator *op, PyObject *const *arguments, intptr_t count, PyObject *keywords);
PyObject *run_operator(const Operator *op, PyObject *const *arguments, intptr_t count, PyObject *keywords);
#pragma GCC visibility pop
