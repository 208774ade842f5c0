/* Buffers: life, state and getters.  Nothing here runs Python except vk_buffer_data and
 * vk_buffer_array, which the transfer and execute calls use with the GIL held. */
#include <string.h>

#include "bridge.h"

/* Bytes of one element in host memory; 0 for types that this plugin has no storage for. */
static const unsigned char item_sizes[VK_TYPE_COUNT] = {
    [1] = 1,  [2] = 1,  [3] = 2,  [4] = 4,  [5] = 8,  [6] = 1,  [7] = 2,  [8] = 4,
    [9] = 8,  [10] = 2, [11] = 4, [12] = 8, [13] = 2, [14] = 8, [15] = 16, [16] = 1,
    [17] = 1, [18] = 1, [19] = 1, [20] = 1, [21] = 1, [22] = 1, [23] = 1, [24] = 1,
    [25] = 1, [26] = 1, [27] = 1, [28] = 1, [29] = 1,
};

const char *const vk_type_names[VK_TYPE_COUNT] = {
    "?",   "bool", "s8",     "s16",   "s32",   "s64",      "u8",       "u16",
    "u32", "u64",  "f16",    "f32",   "f64",   "bf16",     "c64",      "c128",
    "f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "s4", "u4",
    "token", "s2", "u2", "f8e4m3", "f8e3m4", "f8e8m0fnu", "f4e2m1fn",
};

size_t vk_item_size(int32_t type)
{
    return type > 0 && type < VK_TYPE_COUNT ? item_sizes[type] : 0;
}

/* Types that XLA packs below one byte per element, unlike NumPy. */
bool vk_is_packed(int32_t type)
{
    return type == VK_TYPE_S4 || type == VK_TYPE_U4 || type == VK_TYPE_S2 ||
           type == VK_TYPE_U2 || type == VK_TYPE_F4E2M1FN;
}

/* Structs of freed buffers.  A training step makes and frees hundreds of buffers, always
 * as many: they are taken from here and put back.  Never given back to the system. */
static PJRT_Buffer *pool;
enum { POOL_CHUNK = 64 };
static struct chunk {
    struct chunk *next;
    PJRT_Buffer buffers[POOL_CHUNK];
} *chunks;

/* Lock held. */
static bool fill_pool(void)
{
    struct chunk *chunk = calloc(1, sizeof *chunk);
    if (chunk == NULL)
        return false;
    for (size_t i = 0; i < POOL_CHUNK; i++) {
        chunk->buffers[i].next = pool;
        pool = &chunk->buffers[i];
    }
    chunk->next = chunks;
    chunks = chunk;
    return true;
}

/* Collects the largest buffers that count on a device, largest first. */
size_t vk_largest_buffers(const PJRT_Device *device, vk_resident *out, size_t room)
{
    size_t found = 0;
    pthread_mutex_lock(&vk_lock);
    for (const struct chunk *chunk = chunks; chunk != NULL; chunk = chunk->next)
        for (size_t i = 0; i < POOL_CHUNK; i++) {
            const PJRT_Buffer *buffer = &chunk->buffers[i];
            if (!buffer->accounted || buffer->device != device || buffer->bytes == 0)
                continue;
            size_t at = found;
            while (at > 0 && out[at - 1].bytes < buffer->bytes)
                at--;
            if (at == room)
                continue;
            found += found < room;
            memmove(&out[at + 1], &out[at], (found - at - 1) * sizeof *out);
            out[at] = (vk_resident){.bytes = buffer->bytes,
                                    .type = buffer->type,
                                    .num_dims = buffer->num_dims};
            size_t kept = buffer->num_dims < VK_INLINE_RANK ? buffer->num_dims
                                                            : VK_INLINE_RANK;
            memcpy(out[at].dims, buffer->dims, kept * sizeof *buffer->dims);
        }
    pthread_mutex_unlock(&vk_lock);
    return found;
}

PJRT_Buffer *vk_buffer_new(PJRT_Memory *memory, int32_t type, size_t num_dims,
                           const int64_t *dims)
{
    pthread_mutex_lock(&vk_lock);
    PJRT_Buffer *buffer = pool != NULL || fill_pool() ? pool : NULL;
    if (buffer != NULL)
        pool = buffer->next;
    pthread_mutex_unlock(&vk_lock);
    if (buffer == NULL)
        return NULL;
    *buffer = (PJRT_Buffer){.memory = memory};
    buffer->dims = num_dims <= VK_INLINE_RANK ? buffer->few : malloc(num_dims * sizeof *dims);
    if (buffer->dims == NULL) {
        vk_buffer_free(buffer);
        return NULL;
    }
    buffer->device = memory->device;
    buffer->type = type;
    buffer->num_dims = num_dims;
    buffer->bytes = vk_item_size(type);
    for (size_t i = 0; i < num_dims; i++) {
        buffer->dims[i] = dims[i];
        if (__builtin_mul_overflow(buffer->bytes, (size_t)dims[i], &buffer->bytes))
            buffer->bytes = SIZE_MAX / 2; /* no device has room for it */
    }
    return buffer;
}

/* Lets go of the bytes.  Lock held; no view may exist. */
static void drop_storage(PJRT_Buffer *buffer)
{
    vk_unaccount(buffer);
    if (buffer->results != NULL)
        vk_results_leave(buffer);
    vk_defer_decref(buffer->array, buffer->bytes);
    vk_block_unref(buffer->block);
    buffer->array = NULL;
    buffer->block = NULL;
    buffer->data = NULL;
}

/* Marks deleted; the bytes stay while a view exists.  Lock held. */
void vk_buffer_release(PJRT_Buffer *buffer)
{
    buffer->deleted = true;
    if (buffer->external == 0)
        drop_storage(buffer);
}

/* Puts a struct back that holds nothing any more.  Lock not held. */
void vk_buffer_free(PJRT_Buffer *buffer)
{
    vk_error_unref(buffer->error);
    if (buffer->dims != buffer->few)
        free(buffer->dims);
    pthread_mutex_lock(&vk_lock);
    buffer->next = pool;
    pool = buffer;
    pthread_mutex_unlock(&vk_lock);
}

PJRT_Error *vk_Buffer_Destroy(PJRT_Buffer_Destroy_Args *args)
{
    PJRT_Buffer *buffer = args->buffer;
    pthread_mutex_lock(&vk_lock);
    vk_buffer_release(buffer);
    buffer->destroyed = true;
    bool last = buffer->external == 0;
    pthread_mutex_unlock(&vk_lock);
    if (last)
        vk_buffer_free(buffer);
    return NULL;
}

PJRT_Error *vk_Buffer_Delete(PJRT_Buffer_Delete_Args *args)
{
    pthread_mutex_lock(&vk_lock);
    vk_buffer_release(args->buffer);
    pthread_mutex_unlock(&vk_lock);
    return NULL;
}

PJRT_Error *vk_Buffer_IncreaseExternalReferenceCount(
    PJRT_Buffer_IncreaseExternalReferenceCount_Args *args)
{
    pthread_mutex_lock(&vk_lock);
    args->buffer->external++;
    pthread_mutex_unlock(&vk_lock);
    return NULL;
}

PJRT_Error *vk_Buffer_DecreaseExternalReferenceCount(
    PJRT_Buffer_DecreaseExternalReferenceCount_Args *args)
{
    PJRT_Buffer *buffer = args->buffer;
    pthread_mutex_lock(&vk_lock);
    bool idle = --buffer->external == 0;
    if (idle && buffer->deleted)
        drop_storage(buffer);
    bool last = idle && buffer->destroyed;
    pthread_mutex_unlock(&vk_lock);
    if (last)
        vk_buffer_free(buffer);
    return NULL;
}

/* Finds the address of the bytes in host layout; asks the inner array at most once.
 * `keep` receives a reference that keeps them alive (may be NULL).  GIL held. */
PJRT_Error *vk_buffer_data(PJRT_Buffer *buffer, void **data, PyObject **keep)
{
    *keep = NULL;
    vk_results_unpack(buffer);
    pthread_mutex_lock(&vk_lock);
    PJRT_Error *error = vk_error_ref(buffer->error);
    if (error == NULL &&
        (buffer->deleted || (buffer->array == NULL && buffer->block == NULL)))
        error = buffer->results != NULL && !buffer->deleted
                    ? vk_error(VK_FAILED_PRECONDITION,
                               "a finalizer reads a result while this thread is making "
                               "the arrays of its execution: read it before, or later")
                    : vk_error(VK_INVALID_ARGUMENT,
                               "the buffer has been deleted or donated");
    vk_block *block = error == NULL ? buffer->block : NULL;
    PyObject *array = error == NULL && block == NULL ? buffer->array : NULL;
    *data = buffer->data;
    Py_XINCREF(array);
    if (block != NULL)
        atomic_fetch_add(&block->refs, 1);
    pthread_mutex_unlock(&vk_lock);
    if (block != NULL) {
        *data = block->data;
        *keep = vk_block_exporter(block);
        vk_block_unref(block);
        return *keep != NULL ? NULL : vk_error_from_python();
    }
    if (error != NULL)
        return error;
    if (*data != NULL && !vk_is_packed(buffer->type)) {
        *keep = array;
        return NULL;
    }
    if (vk_is_packed(buffer->type)) { /* unpacked copy, made by the hook */
        PyObject *bytes = PyObject_CallMethod(vk_hooks, "unpack", "O", array);
        Py_DECREF(array);
        if (bytes == NULL)
            return vk_error_from_python();
        if (!PyBytes_Check(bytes) || (size_t)PyBytes_GET_SIZE(bytes) != buffer->bytes) {
            Py_DECREF(bytes);
            return vk_error(VK_INTERNAL, "unpacking a buffer gave a wrong size");
        }
        *data = PyBytes_AS_STRING(bytes);
        *keep = bytes;
        return NULL;
    }
    PyObject *address = PyObject_CallMethod(array, "unsafe_buffer_pointer", NULL);
    *keep = array;
    if (address != NULL) {
        *data = PyLong_AsVoidPtr(address);
        Py_DECREF(address);
    }
    if (PyErr_Occurred())
        return vk_error_from_python();
    pthread_mutex_lock(&vk_lock);
    if (buffer->array == array)
        buffer->data = *data;
    pthread_mutex_unlock(&vk_lock);
    return NULL;
}

/* Returns the inner array (new reference), made from the block at its first use.  With
 * `fresh`, a new one that owns its memory, for an executable that will consume it.
 * GIL held, lock not held.  NULL with a Python exception on failure. */
PyObject *vk_buffer_array(PJRT_Buffer *buffer, bool fresh)
{
    vk_results_unpack(buffer);
    pthread_mutex_lock(&vk_lock);
    PyObject *array = buffer->deleted ? NULL : buffer->array;
    vk_block *block = buffer->deleted ? NULL : buffer->block;
    Py_XINCREF(array);
    if (array == NULL && block != NULL)
        atomic_fetch_add(&block->refs, 1);
    pthread_mutex_unlock(&vk_lock);
    if (array != NULL && !fresh)
        return array;
    if (array != NULL) {
        PyObject *copy = PyObject_CallMethod(vk_hooks, "copy_array", "O", array);
        Py_DECREF(array);
        return copy;
    }
    if (block == NULL) {
        PyErr_SetString(PyExc_ValueError, "Array has been deleted or donated");
        return NULL;
    }
    PyObject *source = vk_block_exporter(block);
    vk_block_unref(block);
    PyObject *dims = PyTuple_New((Py_ssize_t)buffer->num_dims);
    for (size_t i = 0; dims != NULL && i < buffer->num_dims; i++)
        PyTuple_SET_ITEM(dims, (Py_ssize_t)i, PyLong_FromLongLong(buffer->dims[i]));
    if (source != NULL && dims != NULL)
        array = PyObject_CallMethod(vk_hooks, "adopt", "OiOiO", source, buffer->type, dims,
                                    (int)buffer->device->description->id,
                                    fresh ? Py_True : Py_False);
    Py_XDECREF(source);
    Py_XDECREF(dims);
    if (array == NULL || fresh)
        return array;
    pthread_mutex_lock(&vk_lock);
    if (buffer->array == NULL && buffer->block == block) {
        Py_INCREF(array);
        buffer->array = array;
    }
    pthread_mutex_unlock(&vk_lock);
    return array;
}

PJRT_Error *vk_Buffer_ElementType(PJRT_Buffer_ElementType_Args *args)
{
    args->type = args->buffer->type;
    return NULL;
}

PJRT_Error *vk_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args *args)
{
    args->dims = args->buffer->dims;
    args->num_dims = args->buffer->num_dims;
    return NULL;
}

PJRT_Error *vk_Buffer_UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args *args)
{
    args->unpadded_dims = args->buffer->dims;
    args->num_dims = args->buffer->num_dims;
    return NULL;
}

PJRT_Error *vk_Buffer_DynamicDimensionIndices(
    PJRT_Buffer_DynamicDimensionIndices_Args *args)
{
    args->dynamic_dim_indices = NULL;
    args->num_dynamic_dims = 0;
    return NULL;
}

PJRT_Error *vk_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args *args)
{
    static int64_t minor_to_major[VK_MAX_RANK][VK_MAX_RANK];
    size_t rank = args->buffer->num_dims;
    if (rank > VK_MAX_RANK)
        return vk_error(VK_UNIMPLEMENTED, "rank %zu is above %d", rank, VK_MAX_RANK);
    memset(&args->layout, 0, sizeof args->layout);
    args->layout.struct_size = sizeof args->layout;
    args->layout.type = VK_LAYOUT_TILED;
    args->layout.tiled.struct_size = sizeof args->layout.tiled;
    for (size_t i = 0; i < rank; i++) /* idempotent: racing writers write the same */
        minor_to_major[rank - 1][i] = (int64_t)(rank - 1 - i);
    args->layout.tiled.minor_to_major = rank ? minor_to_major[rank - 1] : NULL;
    args->layout.tiled.minor_to_major_size = rank;
    return NULL;
}

PJRT_Error *vk_Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args *args)
{
    args->on_device_size_in_bytes = args->buffer->bytes;
    return NULL;
}

PJRT_Error *vk_Buffer_Device(PJRT_Buffer_Device_Args *args)
{
    args->device = args->buffer->device;
    return NULL;
}

PJRT_Error *vk_Buffer_Memory(PJRT_Buffer_Memory_Args *args)
{
    args->memory = args->buffer->memory;
    return NULL;
}

PJRT_Error *vk_Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args *args)
{
    pthread_mutex_lock(&vk_lock);
    args->is_deleted = args->buffer->deleted;
    pthread_mutex_unlock(&vk_lock);
    return NULL;
}

/* True lets jaxlib make NumPy views without a copy, which no transfer guard sees: only
 * what lies in host memory is the host's.  Packed types need unpacking. */
PJRT_Error *vk_Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args *args)
{
    const PJRT_Buffer *buffer = args->buffer;
    args->is_on_cpu = buffer->memory->kind != 0 && !vk_is_packed(buffer->type) &&
                      buffer->error == NULL;
    return NULL;
}

PJRT_Error *vk_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args)
{
    args->event = vk_event(args->buffer->error);
    return NULL;
}

static PJRT_Error *address_of(PJRT_Buffer *buffer, void **data)
{
    PyObject *keep;
    PyGILState_STATE gil = PyGILState_Ensure();
    PJRT_Error *error = vk_is_packed(buffer->type)
        ? vk_error(VK_UNIMPLEMENTED, "a packed array has no address in NumPy's layout")
        : vk_buffer_data(buffer, data, &keep);
    if (error == NULL)
        Py_XDECREF(keep);
    PyGILState_Release(gil);
    return error;
}

PJRT_Error *vk_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args *args)
{
    void *data = NULL;
    PJRT_Error *error = address_of(args->buffer, &data);
    args->buffer_pointer = (size_t)data;
    return error;
}

PJRT_Error *vk_Buffer_OpaqueDeviceMemoryDataPointer(
    PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args *args)
{
    args->device_memory_ptr = NULL;
    return address_of(args->buffer, &args->device_memory_ptr);
}
