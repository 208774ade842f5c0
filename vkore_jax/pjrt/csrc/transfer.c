/* Copies: host to device, device to host, device to device.  Always copies, so that what
 * the host does to its array afterwards never shows through. */
#include <string.h>

#include "bridge.h"

/* Copies an n-dimensional array between two strided places; strides are in bytes. */
static void copy_strided(unsigned char *dst, const int64_t *dst_strides,
                         const unsigned char *src, const int64_t *src_strides,
                         const int64_t *dims, size_t rank, size_t item)
{
    if (rank == 0) {
        memcpy(dst, src, item);
        return;
    }
    bool dense = rank == 1 && dst_strides[0] == (int64_t)item &&
                 src_strides[0] == (int64_t)item;
    if (dense) {
        memcpy(dst, src, item * (size_t)dims[0]);
        return;
    }
    for (int64_t i = 0; i < dims[0]; i++)
        copy_strided(dst + i * dst_strides[0], dst_strides + 1, src + i * src_strides[0],
                     src_strides + 1, dims + 1, rank - 1, item);
}

static void row_major(const PJRT_Buffer *buffer, int64_t *strides)
{
    int64_t step = (int64_t)vk_item_size(buffer->type);
    for (size_t i = buffer->num_dims; i-- > 0;) {
        strides[i] = step;
        step *= buffer->dims[i];
    }
}

/* Reads a host layout into byte strides; false when it is not a plain permutation. */
static bool layout_strides(const PJRT_Buffer *buffer, const PJRT_Buffer_MemoryLayout *layout,
                           int64_t *strides)
{
    size_t rank = buffer->num_dims;
    if (layout->type == VK_LAYOUT_STRIDES) {
        if (layout->strides.num_byte_strides != rank)
            return false;
        memcpy(strides, layout->strides.byte_strides, rank * sizeof *strides);
        return true;
    }
    if (layout->tiled.num_tiles != 0 || layout->tiled.minor_to_major_size != rank)
        return false;
    int64_t step = (int64_t)vk_item_size(buffer->type);
    for (size_t i = 0; i < rank; i++) {
        int64_t axis = layout->tiled.minor_to_major[i];
        if (axis < 0 || (size_t)axis >= rank)
            return false;
        strides[axis] = step;
        step *= buffer->dims[axis];
    }
    return true;
}

static bool same_strides(const PJRT_Buffer *buffer, const int64_t *a, const int64_t *b)
{
    for (size_t i = 0; i < buffer->num_dims; i++)
        if (buffer->dims[i] != 1 && a[i] != b[i])
            return false;
    return true;
}

static void copy_array(PJRT_Buffer *shape, void *dst, const int64_t *dst_strides,
                       const void *src, const int64_t *src_strides)
{
    if (shape->bytes == 0)
        return;
    if (same_strides(shape, dst_strides, src_strides)) {
        int64_t dense[VK_MAX_RANK];
        row_major(shape, dense);
        if (same_strides(shape, dense, src_strides)) {
            memcpy(dst, src, shape->bytes);
            return;
        }
    }
    copy_strided(dst, dst_strides, src, src_strides, shape->dims, shape->num_dims,
                 vk_item_size(shape->type));
}

/* Makes an empty buffer with a block of its own. */
static PJRT_Error *new_filled(PJRT_Memory *memory, int32_t type, size_t rank,
                              const int64_t *dims, const char *what, PJRT_Buffer **out)
{
    if (vk_item_size(type) == 0)
        return vk_error(VK_UNIMPLEMENTED, "vkore has no element type with PJRT number %d",
                        type);
    if (rank > VK_MAX_RANK)
        return vk_error(VK_UNIMPLEMENTED, "rank %zu is above %d", rank, VK_MAX_RANK);
    PJRT_Buffer *buffer = vk_buffer_new(memory, type, rank, dims);
    if (buffer == NULL)
        return VK_OOM();
    PJRT_Error *error = NULL;
    if (memory->kind == 0)
        error = vk_check_room(memory->device, buffer->bytes, buffer->bytes, what);
    if (error == NULL && (buffer->block = vk_block_new(buffer->bytes)) == NULL)
        error = VK_OOM();
    if (error != NULL) {
        vk_buffer_free(buffer);
        return error;
    }
    buffer->data = buffer->block->data;
    vk_account(buffer);
    *out = buffer;
    return NULL;
}

PJRT_Error *vk_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args)
{
    PJRT_Memory *memory = args->memory ? args->memory : &args->device->memory[0];
    PJRT_Buffer *buffer = NULL;
    args->buffer = NULL;
    PJRT_Error *error = new_filled(memory, args->type, args->num_dims, args->dims,
                                   "A copy from the host", &buffer);
    if (error != NULL)
        return error;
    int64_t dense[VK_MAX_RANK], strides[VK_MAX_RANK];
    row_major(buffer, dense);
    bool plain = args->device_layout == NULL ||
                 (layout_strides(buffer, args->device_layout, strides) &&
                  same_strides(buffer, dense, strides));
    if (!plain) {
        PJRT_Buffer_Destroy_Args destroy = {.buffer = buffer};
        vk_Buffer_Destroy(&destroy);
        return vk_error(VK_UNIMPLEMENTED, "vkore keeps arrays in row-major layout only");
    }
    copy_array(buffer, buffer->block->data, dense, args->data,
               args->num_byte_strides == args->num_dims && args->byte_strides
                   ? args->byte_strides
                   : dense);
    args->buffer = buffer;
    args->done_with_host_buffer = &vk_ready;
    return NULL;
}

PJRT_Error *vk_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args)
{
    PJRT_Buffer *buffer = args->src;
    args->event = NULL;
    if (args->dst == NULL) {
        args->dst_size = buffer->bytes;
        return NULL;
    }
    if (args->dst_size < buffer->bytes)
        return vk_error(VK_INVALID_ARGUMENT, "the destination has %zu bytes, %zu are needed",
                        args->dst_size, buffer->bytes);
    int64_t dense[VK_MAX_RANK], strides[VK_MAX_RANK];
    row_major(buffer, dense);
    if (args->host_layout == NULL)
        memcpy(strides, dense, sizeof strides);
    else if (!layout_strides(buffer, args->host_layout, strides))
        return vk_error(VK_UNIMPLEMENTED, "tiled host layouts are not supported");
    void *data = NULL;
    PyObject *keep = NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    PJRT_Error *error = vk_buffer_data(buffer, &data, &keep);
    if (error == NULL) {
        Py_BEGIN_ALLOW_THREADS
        copy_array(buffer, args->dst, strides, data, dense);
        Py_END_ALLOW_THREADS
    }
    Py_XDECREF(keep);
    PyGILState_Release(gil);
    if (error == NULL)
        args->event = &vk_ready;
    return error;
}

static PJRT_Error *copy_to(PJRT_Buffer *source, PJRT_Memory *memory, PJRT_Buffer **out)
{
    void *data = NULL;
    PyObject *keep = NULL;
    *out = NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    PJRT_Error *error = vk_buffer_data(source, &data, &keep);
    if (error == NULL)
        error = new_filled(memory, source->type, source->num_dims, source->dims,
                           "A copy between devices", out);
    if (error == NULL) {
        Py_BEGIN_ALLOW_THREADS
        memcpy((*out)->block->data, data, source->bytes);
        Py_END_ALLOW_THREADS
    }
    Py_XDECREF(keep);
    PyGILState_Release(gil);
    return error;
}

PJRT_Error *vk_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args *args)
{
    return copy_to(args->buffer, &args->dst_device->memory[0], &args->dst_buffer);
}

PJRT_Error *vk_Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args *args)
{
    return copy_to(args->buffer, args->dst_memory, &args->dst_buffer);
}
