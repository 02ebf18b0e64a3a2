"""One step of a build: passes the job on standard input to the build's server and waits for the exit code.

Run as `python -S -I client.py < job` in the build directory, a hundred times per build, so it imports nothing
that Python has not loaded already: `_socket` is the part of `socket` that is built in, and loads in a
twentieth of its time. `client.c` does the same where there is a C compiler and much to do.
"""

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket

job = os.read(0, 1 << 20)
code = b""
try:
    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.connect(".kbuild/serve")
    descriptors = b"".join(number.to_bytes(4, sys.byteorder) for number in (1, 2))
    connection.sendmsg([job], [(SOL_SOCKET, SCM_RIGHTS, descriptors)])
    code = connection.recv(1)
except OSError:
    pass
if code:
    os._exit(code[0])
# No server, or it has died: this process does the work itself.
os.lseek(0, 0, os.SEEK_SET)
os.execv(sys.executable, [sys.executable, "-m", "kbuild", "@step"])
