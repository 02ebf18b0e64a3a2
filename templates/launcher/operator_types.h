/* Operators: functions on tensors, and the launches that they are made of. */

enum { MAX_RANK = 16, MAX_OP_TENSORS = 48, MEMORY_SLOTS = 16 };

typedef enum { SCALAR_INT, SCALAR_FLOAT, SCALAR_BOOL, SCALAR_STR } ScalarKind;

/* A tensor: inputs come first, then outputs, then workspaces. */
typedef struct {
    const char *name, *shape;   /* the shape as the manifest has it */
    int rank, pack;             /* words of the shape; the place of the one that stands for any number of dimensions, -1: none */
    const int16_t *dims;        /* the number of each word's dimension */
    int first_stride;           /* of its strides in OpFrame */
    uint32_t free;              /* one bit for each place whose stride may be any */
    uint64_t types;             /* that the kernels take */
    int group;                  /* tensors of one group hold one type; -1: none */
    uint8_t is_optional, is_written, is_zeroed, may_alias;
} OpTensor;

typedef struct {
    const char *name;
    ScalarKind kind;
    int is_required, is_computed; /* whether a call has to give it; whether its default is an expression, for which None stands */
    Value standard;
    const char *text;
    const char *const *words;   /* that may be given, and whose number is the scalar's value; NULL where axes of kernels say which */
} OpScalar;

/* What the expressions of an operator name. */
typedef struct {
    int64_t *sizes;             /* of dimensions; -1 while unknown */
    int64_t *strides;           /* of all places of all tensors, in elements */
    Value *scalars;
    const char **texts;         /* of scalars that are words */
    uint8_t *given;             /* whether each scalar was given, then whether each tensor was */
    uint8_t *aligned;           /* whether the address of each tensor is a multiple of 16; known once it is read */
    int64_t num_sms;
} OpFrame;

typedef struct OpLaunch {
    int kernel;
    const int16_t *tensors;     /* of each parameter of the kernel, -1: it is a number */
    const int16_t *words;       /* of each option: the scalar whose word it is; -1: a number; -2: nothing is said of it */
    const uint8_t *is_number;   /* of each option: whether it is a double */
    void (*bind)(const OpFrame *frame, Value *values, Value *options, int *fault);
    int64_t (*when)(const OpFrame *frame, int *fault); /* NULL: always */
} OpLaunch;

typedef struct Operator {
    const char *name;
    int input_count, output_count, workspace_count, scalar_count, dim_count, stride_count, launch_count, return_count;
    int needs_autocast;         /* whether torch's autocast concerns it */
    const OpTensor *tensors;
    const OpScalar *scalars;
    const char *const *dims;    /* names of dimensions */
    const int64_t *fixed;       /* their sizes, -1 where they are not fixed */
    const int16_t *returned;    /* tensors that it returns */
    const char *const *messages;/* of requirements, then of what has to agree */
    const OpLaunch *launches;
    Kernel arguments;           /* its tensors and scalars as parameters, for reading and for messages */
    void (*defaults)(OpFrame *frame, int *fault);
    int (*require)(const OpFrame *frame, int *fault); /* the number of the message of what does not hold, or -1 */
    void (*shapes)(OpFrame *frame, int *fault);       /* sizes of outputs and workspaces */
    int64_t *(*memory)(void);   /* of this thread, for what choices came to: MEMORY_SLOTS entries; NULL without choices */
    int (*agree)(const OpFrame *frame, int *fault);
} Operator;

#pragma GCC visibility push(hidden)
extern const int operator_count;
extern const Operator operators[];
#pragma GCC visibility pop
