/* What every host of the launcher's core has: Python's extension, and the library for C.
 *
 * The core knows neither Python nor a way to print.  It says what is wrong with a call through these functions, whose format is that
 * of printf as far as PyErr_Format has it. */

typedef enum { WRONG_VALUE, WRONG_TYPE, WRONG_LAUNCH } ReportKind;

/* Says what is wrong with a call; returns -1. */
static int report(ReportKind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same of a call of the driver; `log` is what it wrote, or NULL, and `row` the variant concerned, or -1. */
static int report_driver(const char *call, int code, const char *log, intptr_t row);
