/* What the launcher and the tables of a package have in common. */

#include <stdint.h>

typedef struct _object PyObject; /* Python's, of which only Python's half of the launcher knows more */

/* The largest amounts that a call may have room for on the stack; manifests that need more are refused. */
enum {
    MAX_PARAMETERS = 256,
    MAX_PASSED = 288,
    MAX_MAPS = 32,    /* of one row */
    MAX_SLOTS = 384,  /* parameters, options, stream and grid */
    MAX_FACTS = 1024,
    CACHE_SLOTS = 32,
    FACT_TARGET = 0,
    FACT_SHARED = 1,
    DEVICE_FACTS = 2,  /* facts before those of the parameters, which are followed by options and conditions */
    NO_ROW = -1,
    AMBIGUOUS = -2,
    COST_FAULT = -3
};

/* Bits of the facts of arguments, as in _selection.py. */
#define TYPE_I1 (UINT64_C(1) << 0)
#define TYPE_I8 (UINT64_C(1) << 1)
#define TYPE_I16 (UINT64_C(1) << 2)
#define TYPE_I32 (UINT64_C(1) << 3)
#define TYPE_I64 (UINT64_C(1) << 4)
#define TYPE_U8 (UINT64_C(1) << 5)
#define TYPE_U16 (UINT64_C(1) << 6)
#define TYPE_U32 (UINT64_C(1) << 7)
#define TYPE_U64 (UINT64_C(1) << 8)
#define TYPE_FP16 (UINT64_C(1) << 9)
#define TYPE_BF16 (UINT64_C(1) << 10)
#define TYPE_FP32 (UINT64_C(1) << 11)
#define TYPE_FP64 (UINT64_C(1) << 12)
#define TYPE_FP8E4NV (UINT64_C(1) << 13)
#define TYPE_FP8E5 (UINT64_C(1) << 14)
#define TYPE_FP8E4B8 (UINT64_C(1) << 15)
#define TYPE_FP8E4B15 (UINT64_C(1) << 16)
#define TYPE_FP8E5B16 (UINT64_C(1) << 17)
#define TYPE_MASK UINT64_C(0xFFFFFFFF)
#define HINT_16 (UINT64_C(1) << 62)
#define HINT_1 (UINT64_C(1) << 61)
#define HINT_8 (UINT64_C(1) << 60)
#define HINT_4 (UINT64_C(1) << 59)

typedef enum { KIND_POINTER, KIND_INTEGER, KIND_FLOAT } Kind;

/* The first and the last compute capability, 10 * major + minor, of the devices that run a target's code. */
typedef struct { int first, last; } Target;

typedef struct {
    const char *name;
    Kind kind;
    int grid_only;  /* may be left out where the grid is given */
    uint64_t mask;  /* the bits that any row asks for */
    /* What is not given, but read off a tensor; such parameters come last. */
    int is_extent, tensor, axis, rank;
    int stride_bytes;  /* of an element, for a stride; 0 for a size */
    int in_grid;       /* whether the grid names it */
} LaunchParameter;

typedef struct { const char *text; int64_t integer; double number; int is_float; uint64_t type; } OptionValue;

typedef struct { const char *name; int required, count, standard /* value where none is given; -1: none */; const OptionValue *values; } Option;

/* An argument passed to the kernel; floats are encoded with so many bits of exponent and mantissa (0: 64 bits as they are). */
typedef struct { int16_t parameter; /* -1: a null pointer */ uint8_t exponent, mantissa; int map; /* -1: none */ } Passed;

/* What TMA has to know of a tensor, and from which parameters it follows: how the blocks of a cubin are copied.
   Axes are innermost first; -1 - p stands for parameter p. */
enum { MAX_MAP_RANK = 5 };

typedef struct {
    int16_t base, rank;
    int64_t sizes[MAX_MAP_RANK];
    int64_t strides[MAX_MAP_RANK];  /* in elements, of all axes but the first */
    uint32_t box[MAX_MAP_RANK];
    uint8_t type, element_bytes, swizzle, fill;
} MapPlan;

/* An archive of cubins: its name and the sha256 of its index. */
typedef struct { const char *name, *sha256; } Archive;

/* Where code is among the blobs of its archive; a zlib stream where it is shorter than its size. */
typedef struct { int64_t offset, stored, size; uint32_t crc; } Place;

typedef struct {
    const uint64_t *required;  /* for each fact, the bits that have to be there */
    const int64_t *constants;  /* those that the grid names */
    const Passed *passed;
    int archive;
    const char *key, *sha256;  /* its name in the archive, and its digest; empty where that of the index covers it */
    Place place;
    const char *entry;         /* symbol in the cubin */
    int passed_count, map_count, shared;
    int opts_in;               /* whether its shared memory takes the function's attribute, static shared memory included */
    unsigned block[3];         /* threads along each axis */
    int cluster_size;          /* of which the grid's first size has to be a multiple; the cubin itself says that there are clusters */
    int cost;                  /* number of the expression that says what a call costs with it; -1: none */
    int rival;                 /* the next row of its kernel that it is compared with by cost; -1: none */
    int launch_pdl;            /* whether it may begin before the launch before it has ended, for which it waits by itself */
} VariantEntry;

typedef struct { int last; int32_t rows[CACHE_SLOTS]; /* 1 + row; 0: empty */ uint64_t *facts; } Cache;

typedef union { int64_t integer; uint64_t address; double number; } Value;

typedef struct {
    const char *name, *doc;
    int parameter_count, option_count, condition_count, cost_count, fact_count, level_count, first_row, row_count, has_grid;
    const LaunchParameter *parameters;
    const Option *options;
    const int *levels;         /* bytes of shared memory, one bit of FACT_SHARED each */
    PyObject **names;          /* Python's, interned: parameters, options, stream, grid */
    Cache *cache;
    void (*conditions)(const Value *arguments, int64_t num_sms, uint64_t *facts, int *fault);
    int64_t (*cost)(const Value *arguments, int64_t num_sms, int number, int *fault);
    void (*grid)(const Value *arguments, const int64_t *constants, int64_t num_sms, int64_t *grid, int *fault);
    const struct Operator *of; /* whose arguments these are, where there is no kernel; else NULL */
} Kernel;

typedef struct { const char *name; uint64_t bit; } TypeName;

/* Of launcher_tables.c. */
#pragma GCC visibility push(hidden)
extern const char package_name[], package_symbol[], package_doc[], build_id[];
extern const int kernel_count, row_count, target_count, type_name_count;
extern const Target targets[];
extern const Archive archives[];
extern const MapPlan map_plans[];
extern const Kernel kernels[];
extern const VariantEntry rows[];
extern const TypeName type_names[];
#pragma GCC visibility pop

#include "operator_types.h"
