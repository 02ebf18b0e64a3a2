/* Tensors as DLPack has them in C. */

/* Type, address and device of a tensor; `arguments` has its name.  -1 with a report. */
static int read_view(const Kernel *arguments, int index, const DLTensor *view, uint64_t *type, uint64_t *address, int *device)
{
    const char *name = arguments->parameters[index].name;
    if (view->device.device_type != DLPACK_CUDA && view->device.device_type != DLPACK_CUDA_MANAGED)
        return report(WRONG_VALUE, "%s(): %s is not on a CUDA device: its device_type is %d", arguments->name, name, view->device.device_type);
    if (*device >= 0 && *device != view->device.device_id)
        return report(WRONG_VALUE, "%s(): %s is on device %d, and an argument before it is on device %d", arguments->name, name,
                      view->device.device_id, *device);
    if (view->ndim < 0 || (view->ndim && !view->shape))
        return report(WRONG_VALUE, "%s(): %s has no shape, or %d dimensions", arguments->name, name, view->ndim);
    int is_empty = 0;
    for (int i = 0; i < view->ndim; i++)
        is_empty = is_empty || !view->shape[i];
    if (!view->data && !is_empty)
        return report(WRONG_VALUE, "%s(): %s has elements, but no memory (its address is 0)", arguments->name, name);
    *device = view->device.device_id;
    *type = type_of_dlpack(view);
    *address = view->data ? (uint64_t)(uintptr_t)view->data + view->byte_offset : 0;
    return 0;
}
