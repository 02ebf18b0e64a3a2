/* What library_functions.c, which a build makes, has of library.c and the other way round. */

enum { MAX_WORD = 64 }; /* bytes of a word, with its end */

/* A scalar of a call: not given, a number, or a word. */
typedef struct { int is_given; Value value; const char *text; } Scalar;

typedef struct XlaCallFrame XlaCallFrame;
typedef struct XlaError XlaError;
typedef struct TvmAny TvmAny;

#pragma GCC visibility push(hidden)
int call_operator(const Operator *op, const struct DLTensor *const *tensors, const Scalar *scalars, void *stream);
int call_kernel(const Kernel *kernel, const struct DLTensor *const *tensors, const Value *values, const Scalar *options, void *stream);
int preload_device(int ordinal);
const char *last_error(void);
XlaError *call_by_xla(const Operator *op, XlaCallFrame *frame);
int call_by_tvm(const Operator *op, const TvmAny *arguments, int32_t count, TvmAny *result);
#pragma GCC visibility pop
