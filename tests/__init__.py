"""The tests of kbuild."""

import os

# numpy is imported after this.  There are as many workers as processors, and programs that tests run have it too.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
