/* Errors as text: of the last call of each thread. */

enum { INVALID_ARGUMENT = -1, LAUNCH_FAILED = -2, ERROR_TEXT = 2048 };

static _Thread_local struct { int code; ReportKind kind; char text[ERROR_TEXT]; } failure;

static int report(ReportKind kind, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure.text, sizeof failure.text, format, arguments);
    va_end(arguments);
    failure.kind = kind;
    failure.code = kind == WRONG_LAUNCH ? LAUNCH_FAILED : INVALID_ARGUMENT;
    return -1;
}

static int report_driver(const char *call, int code, const char *log, intptr_t row)
{
    const char *name = NULL, *text = NULL, *key = row < 0 ? "" : rows[row].key;
    if (driver.cuGetErrorName)
        driver.cuGetErrorName(code, &name);
    if (driver.cuGetErrorString)
        driver.cuGetErrorString(code, &text);
    report(WRONG_LAUNCH, "%s%s%s failed with %s (%d): %s [driver for CUDA %d.%d]", key, *key ? ": " : "", call, name ? name : "unknown error",
           code, log && *log ? log : text ? text : "", driver.version / 1000, driver.version % 1000 / 10);
    failure.code = code > 0 ? code : LAUNCH_FAILED;
    return -1;
}

/* What a public function returns: 0, an error of the driver's, INVALID_ARGUMENT or LAUNCH_FAILED. */
static int result_of(int status)
{
    if (status == 0)
        failure.code = 0, failure.text[0] = '\0';
    return failure.code;
}

const char *last_error(void)
{
    return failure.text;
}
