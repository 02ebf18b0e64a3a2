/* The exchange of tensors in C that DLPack 1.3 has: https://dmlc.github.io/dlpack/latest/c_api.html
 *
 * A class says by __dlpack_c_exchange_api__ where its functions are; each call then costs some ten nanoseconds instead of some
 * hundred for attributes of Python. */

typedef struct ExchangeHeader { struct { uint32_t major, minor; } version; struct ExchangeHeader *previous; } ExchangeHeader;

typedef struct ExchangeApi {
    ExchangeHeader header;
    void *allocate, *from_object, *to_object;
    int (*borrow)(void *object, DLTensor *tensor);  /* a view for as long as the object is; may be NULL */
    int (*current_stream)(int device_type, int32_t device, void **stream);
} ExchangeApi;

/* The functions of a class; NULL, without an exception, where it has none. */
static const ExchangeApi *exchange_of(PyTypeObject *type)
{
    PyObject *capsule = PyObject_GetAttrString((PyObject *)type, "__dlpack_c_exchange_api__");
    const ExchangeApi *api = NULL;
    if (capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api"))
        api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    PyErr_Clear();
    Py_XDECREF(capsule);  /* The functions are as static as the class. */
    return api && api->header.version.major == 1 && api->borrow && api->current_stream ? api : NULL;
}
