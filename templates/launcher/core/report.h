/* What every host of the launcher's core has: Python's extension, and the library for C.
 *
 * The core knows neither Python nor a way to print.  It says what is wrong with a call through these functions, whose format is that
 * of printf as far as PyErr_Format has it. */

typedef enum { WRONG_VALUE, WRONG_TYPE, WRONG_LAUNCH } ReportKind;

/* Says what is wrong with a call; returns -1. */
static int report(ReportKind kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same of a call of the driver; `log` is what it wrote, or NULL, and `row` the variant concerned, or -1. */
static int report_driver(const char *call, int code, const char *log, intptr_t row);

/* Words that are put together piece by piece.  They are not on the stack, of which a call that is right takes as much as one that is
 * wrong. */
typedef struct { size_t length; char text[4096]; } Message;

/* An empty message; NULL, which the functions below take, where there is no memory. */
static Message *begin_message(void)
{
    return calloc(1, sizeof(Message));
}

/* Adds to a message, whose end is lost where it is too long. */
__attribute__((format(printf, 2, 0))) static void add_words(Message *message, const char *format, va_list arguments)
{
    if (!message)
        return;
    size_t room = sizeof message->text - message->length;
    int added = vsnprintf(message->text + message->length, room, format, arguments);
    message->length += added < 0 ? 0 : (size_t)added < room ? (size_t)added : room - 1;
}

__attribute__((format(printf, 2, 3))) static void add_text(Message *message, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_words(message, format, arguments);
    va_end(arguments);
}

/* Reports a message, and frees it; returns -1. */
static int report_message(ReportKind kind, Message *message)
{
    report(kind, "%s", message ? message->text : "the call is wrong, and there is no memory to say how");
    free(message);
    return -1;
}
