/* Cubins from cubins/<archive>.kbz beside this library.
 *
 * An archive begins with "KBZ1", the length of its index (4 bytes, little endian) and the index's sha256; blobs follow the index.  The
 * tables say where each blob is, so that the index itself is not read: its digest says that it is the archive of these tables. */

enum { ARCHIVE_HEADER = 40 };

/* zlib, which is there wherever Python or a package manager is; it is opened when the first cubin is read. */
static struct {
    int (*uncompress)(unsigned char *to, unsigned long *to_size, const unsigned char *from, unsigned long from_size);
    unsigned long (*crc32)(unsigned long start, const unsigned char *data, unsigned int size);
} zlib;

static int open_zlib(void)
{
    if (zlib.uncompress)
        return 0;
    void *library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
    void *uncompress = library ? dlsym(library, "uncompress") : NULL, *crc32 = library ? dlsym(library, "crc32") : NULL;
    if (!uncompress || !crc32)
        return report(WRONG_LAUNCH, "%s: libz.so.1, which unpacks its cubins, cannot be loaded (%s)", package_name, dlerror());
    memcpy(&zlib.crc32, &crc32, sizeof crc32);
    memcpy(&zlib.uncompress, &uncompress, sizeof uncompress);
    return 0;
}

static int bad_archive(const char *path, const char *what)
{
    return report(WRONG_LAUNCH, "%s: %s; install %s again", path, what, package_name);
}

/* Whether a file is the archive of these tables; the place of its first blob, or -1 with a report. */
static long check_archive(FILE *file, const char *path, const char *digest)
{
    unsigned char header[ARCHIVE_HEADER];
    char found[65];
    if (fread(header, 1, sizeof header, file) != sizeof header || memcmp(header, "KBZ1", 4) != 0)
        return bad_archive(path, "it does not begin as an archive does");
    for (int i = 0; i < 32; i++)
        snprintf(found + 2 * i, 3, "%02x", header[8 + i]);
    if (strcmp(found, digest) != 0)
        return bad_archive(path, "its index is not that of this package");
    return ARCHIVE_HEADER + (long)(header[4] | header[5] << 8 | header[6] << 16 | (uint32_t)header[7] << 24);
}

/* The bytes of a row's code, from `file`; NULL with a report. */
static char *read_code(FILE *file, const char *path, const VariantEntry *row)
{
    const Place *place = &row->place;
    long start = check_archive(file, path, archives[row->archive].sha256);
    if (start < 0)
        return NULL;
    unsigned char *stored = malloc((size_t)place->stored), *code = malloc((size_t)place->size + 1);
    int is_read = stored && code && fseek(file, start + (long)place->offset, SEEK_SET) == 0 &&
                  fread(stored, 1, (size_t)place->stored, file) == (size_t)place->stored;
    unsigned long size = (unsigned long)place->size;
    if (is_read && place->stored < place->size)
        is_read = zlib.uncompress(code, &size, stored, (unsigned long)place->stored) == 0 && size == (unsigned long)place->size;
    else if (is_read)
        memcpy(code, stored, (size_t)place->size);
    is_read = is_read && zlib.crc32(0, code, (unsigned int)size) == place->crc;
    free(stored);
    if (!is_read) {
        free(code);
        bad_archive(path, "it is damaged");
        return NULL;
    }
    code[place->size] = '\0'; /* for PTX */
    return (char *)code;
}

/* The same, from the row's archive. */
static char *read_image(const VariantEntry *row)
{
    char path[PATH_LENGTH];
    if (open_zlib() < 0 || path_beside("cubins/", archives[row->archive].name, ".kbz", path) < 0)
        return NULL;
    FILE *file = fopen(path, "rb");
    if (!file) {
        bad_archive(path, "it cannot be opened");
        return NULL;
    }
    char *code = read_code(file, path, row);
    fclose(file);
    return code;
}
