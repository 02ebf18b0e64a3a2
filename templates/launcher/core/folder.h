/* Files beside the library that this code is in. */

enum { PATH_LENGTH = 4096 };

/* The path of a file in the folder of this library, whose name has three parts; -1 with a report. */
static int path_beside(const char *before, const char *word, const char *after, char path[PATH_LENGTH])
{
    static const char here = 0;
    Dl_info info;
    const char *slash = dladdr(&here, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    int folder = slash ? (int)(slash - info.dli_fname) : 1;
    int length = snprintf(path, PATH_LENGTH, "%.*s/%s%s%s", folder, slash ? info.dli_fname : ".", before, word, after);
    return length < PATH_LENGTH ? 0 : report(WRONG_LAUNCH, "%s: its path has more than %d characters", package_name, (int)PATH_LENGTH);
}
