/* One step of a build, as in client.py, but without Python's start, which costs as much as finding a variant in the cache:
 * hands the job on standard input to the build's server and waits for the exit code.
 *
 *     client PYTHON < job          (in the build directory) */

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static char job[1 << 20];

/* The exit code from the server; -1 if there is none, or it has died. */
static int served(size_t size)
{
    struct sockaddr_un address = { AF_UNIX, ".kbuild/serve" };
    union { struct cmsghdr header; char space[CMSG_SPACE(2 * sizeof(int))]; } control;
    struct iovec text = { job, size };
    struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof control.space };
    int outputs[2] = { 1, 2 };
    unsigned char code;
    memset(&control, 0, sizeof control);
    control.header = (struct cmsghdr){ CMSG_LEN(sizeof outputs), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(&control.header), outputs, sizeof outputs);
    int connection = socket(AF_UNIX, SOCK_STREAM, 0);
    if (connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address) < 0)
        return -1;
    if (sendmsg(connection, &message, MSG_NOSIGNAL) < 0 || recv(connection, &code, 1, 0) != 1)
        return -1;
    return code;
}

int main(int count, char **arguments)
{
    ssize_t size = read(0, job, sizeof job);
    int code = count == 2 && size > 0 ? served((size_t)size) : -1;
    if (code >= 0)
        return code;
    lseek(0, 0, SEEK_SET);
    execl(arguments[1], arguments[1], "-m", "kbuild", "@step", (char *)0);
    return 127;
}
