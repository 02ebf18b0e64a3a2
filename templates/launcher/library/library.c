/* The operators and launches of a package for C, C++, XLA and TVM, without Python.
 *
 * Everything but how tensors come, errors go and cubins are read is the core's, which Python's extension shares.  Functions may be
 * called from any thread: one lock guards devices, caches and the loading of cubins, and launches are outside of it. */

#define _GNU_SOURCE /* dladdr */

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "types.h"

#include "core/report.h"
#include "core/folder.h"
#include "core/driver.h"
#include "core/facts.h"
#include "core/select.h"
#include "core/maps.h"
#include "core/grid.h"
#include "core/shapes.h"
#include "core/memory.h"
#include "core/bind.h"

#include "library.h"

#include "errors.h"
#include "archive.h"
#include "devices.h"
#include "tensors.h"
#include "launches.h"
#include "operators.h"
#include "xla.h"
#include "tvm_ffi.h"
