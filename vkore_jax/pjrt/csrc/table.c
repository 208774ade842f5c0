/* Small arrays of a call (sim/fast/small.py).
 *
 * An inner array costs a microsecond per argument or result, however small it is.  So the
 * values of small arguments are copied into a table; the inner executable gets the
 * table's address, reads the values by calling `vkore_load` first, and calls
 * `vkore_store` at the end, which copies the small results into blocks of their own. */
#include <string.h>

#include "bridge.h"
#include "ffi.h"

struct vk_table {
    vk_table *next; /* in the program's list of idle ones */
    const vk_program *program;
    PyObject *address;     /* inner scalar: where this struct lies */
    bool stored;           /* the program has come to its end */
    bool refused;          /* it is another program's code: nothing was copied */
    vk_block **blocks;     /* of the small results, during a call */
    unsigned char *values; /* of the small arguments, as `loads` says */
};

/* XLA asks a function once for the version that it was made for.  The fields used here
 * are in the same place in all versions so far, whichever runs. */
static bool answer(XLA_FFI_CallFrame *frame)
{
    XLA_FFI_Metadata_Extension *extension = frame->extension_start;
    if (extension == NULL || extension->type != XLA_FFI_METADATA)
        return false;
    XLA_FFI_Api_Version *version = &extension->metadata->api_version;
    version->major_version = frame->api->api_version.major_version;
    version->minor_version = frame->api->api_version.minor_version;
    extension->metadata->traits = 0;
    return true;
}

static vk_table *table_of(const XLA_FFI_CallFrame *frame)
{
    return *(vk_table **)frame->args.buffers[0]->data;
}

/* Bytes of an element by XLA's number of its type; 0 for what is not passed here. */
static const unsigned char ffi_sizes[] = {
    [1] = 1,  [2] = 1,  [3] = 2,  [4] = 4,  [5] = 8,  [6] = 1,  [7] = 2,  [8] = 4,
    [9] = 8,  [10] = 2, [11] = 4, [12] = 8, [15] = 8, [16] = 2, [18] = 16, [19] = 1,
    [20] = 1, [23] = 1, [24] = 1, [25] = 1, [28] = 1, [29] = 1, [33] = 1,
};

static size_t buffer_bytes(const XLA_FFI_Buffer *buffer)
{
    size_t known = sizeof ffi_sizes / sizeof *ffi_sizes;
    size_t bytes = (size_t)buffer->dtype < known ? ffi_sizes[buffer->dtype] : 0;
    for (int64_t i = 0; i < buffer->rank; i++)
        bytes *= (size_t)buffer->dims[i];
    return bytes;
}

/* Compares what the code passes with what its program has; `buffers` comes after `skip`
 * others.  Code of another program must not reach beyond a table. */
static bool fits(const XLA_FFI_Buffers *buffers, size_t skip, const vk_small *list,
                 size_t count)
{
    if ((size_t)buffers->size != count + skip)
        return false;
    for (size_t i = 0; i < count; i++)
        if (buffer_bytes(buffers->buffers[i + skip]) != list[i].bytes)
            return false;
    return true;
}

static XLA_FFI_Error *refuse(XLA_FFI_CallFrame *frame, vk_table *table)
{
    XLA_FFI_Error_Create_Args args = {
        .struct_size = sizeof args,
        .message = "the code does not belong to this program: its small arrays differ "
                   "in number or size",
        .code = VK_INTERNAL};
    table->refused = true;
    return frame->api->Error_Create(&args);
}

static XLA_FFI_Error *load(XLA_FFI_CallFrame *frame)
{
    if (answer(frame))
        return NULL;
    vk_table *table = table_of(frame);
    const vk_program *program = table->program;
    if (!fits(&frame->rets, 0, program->loads, program->num_loads))
        return refuse(frame, table);
    for (size_t i = 0; i < program->num_loads; i++) {
        const vk_small *small = &program->loads[i];
        memcpy(frame->rets.buffers[i]->data, table->values + small->offset, small->bytes);
    }
    return NULL;
}

static XLA_FFI_Error *store(XLA_FFI_CallFrame *frame)
{
    if (answer(frame))
        return NULL;
    vk_table *table = table_of(frame);
    const vk_program *program = table->program;
    if (!fits(&frame->args, 1, program->stores, program->num_stores))
        return refuse(frame, table);
    for (size_t i = 0; i < program->num_stores; i++)
        memcpy(table->blocks[i]->data, frame->args.buffers[i + 1]->data,
               program->stores[i].bytes);
    table->stored = true;
    return NULL;
}

/* Returns {name: capsule} of the functions that the inner client has to know. */
PyObject *vk_table_functions(void)
{
    XLA_FFI_Handler *const functions[] = {load, store};
    static const char *const names[] = {"vkore_load", "vkore_store"};
    PyObject *found = PyDict_New();
    for (size_t i = 0; found != NULL && i < 2; i++) {
        PyObject *capsule = PyCapsule_New((void *)functions[i], NULL, NULL);
        if (capsule == NULL || PyDict_SetItemString(found, names[i], capsule) != 0)
            Py_CLEAR(found);
        Py_XDECREF(capsule);
    }
    return found;
}

/* Makes the inner scalar that holds a table's address.  GIL held. */
static PyObject *address_of(const vk_table *table)
{
    enum { S64 = 5 };
    vk_block *cell = vk_block_new(sizeof table);
    PyObject *source = cell ? vk_block_exporter(cell) : PyErr_NoMemory();
    if (cell != NULL)
        memcpy(cell->data, &table, sizeof table);
    vk_block_unref(cell);
    if (source == NULL)
        return NULL;
    PyObject *scalar =
        PyObject_CallMethod(vk_hooks, "adopt", "Oi()iO", source, S64,
                            (int)table->program->device->description->id, Py_False);
    Py_DECREF(source);
    return scalar;
}

static vk_table *table_new(const vk_program *program)
{
    size_t pointers = program->num_stores * sizeof(vk_block *);
    vk_table *table = calloc(1, sizeof *table + pointers + program->load_bytes);
    if (table == NULL)
        return (vk_table *)PyErr_NoMemory();
    table->program = program;
    table->blocks = (vk_block **)(table + 1);
    table->values = (unsigned char *)(table->blocks + program->num_stores);
    table->address = address_of(table);
    if (table->address == NULL) {
        free(table);
        return NULL;
    }
    return table;
}

/* Any thread, no GIL. */
void vk_tables_free(vk_program *program)
{
    vk_table *table;
    while ((table = program->tables) != NULL) {
        program->tables = table->next;
        vk_defer_decref(table->address, 0);
        free(table);
    }
}

/* Copies the value of a small argument.  GIL held. */
static PJRT_Error *copy_in(PJRT_Buffer *buffer, int32_t type, unsigned char *to,
                           size_t bytes)
{
    if (type == VK_TYPE_TOKEN) {
        memset(to, 0, bytes); /* JAX passes pred[0]: no value in it */
        return NULL;
    }
    if (buffer->bytes != bytes)
        return vk_error(VK_INVALID_ARGUMENT, "an argument has %zu bytes instead of %zu",
                        buffer->bytes, bytes);
    /* The common case: what is not deleted stays while the lock is held. */
    pthread_mutex_lock(&vk_lock);
    const void *data = NULL;
    if (!buffer->deleted && buffer->block != NULL)
        data = buffer->block->data;
    else if (!buffer->deleted && buffer->array != NULL)
        data = buffer->data;
    if (data != NULL)
        memcpy(to, data, bytes);
    pthread_mutex_unlock(&vk_lock);
    if (data != NULL)
        return NULL;
    void *found;
    PyObject *keep;
    PJRT_Error *error = vk_buffer_data(buffer, &found, &keep);
    if (error == NULL)
        memcpy(to, found, bytes);
    Py_XDECREF(keep);
    return error;
}

/* Takes a table with the values of these arguments and room for the results.  GIL held,
 * lock not held. */
PJRT_Error *vk_table_take(vk_program *program, PJRT_Buffer *const *inputs, vk_table **out)
{
    vk_table *table = program->tables;
    if (table != NULL)
        program->tables = table->next;
    else if ((table = table_new(program)) == NULL)
        return vk_error_from_python();
    table->stored = table->refused = false;
    PJRT_Error *error = NULL;
    for (size_t i = 0; i < program->num_loads && error == NULL; i++) {
        const vk_small *small = &program->loads[i];
        error = copy_in(inputs[small->number], program->params.specs[small->number].type,
                        table->values + small->offset, small->bytes);
    }
    for (size_t i = 0; i < program->num_stores && error == NULL; i++)
        if ((table->blocks[i] = vk_block_new(program->stores[i].bytes)) == NULL)
            error = VK_OOM();
    if (error != NULL)
        vk_table_give(program, table);
    else
        *out = table;
    return error;
}

/* Gives a table back, and the results that nobody took.  GIL held. */
void vk_table_give(vk_program *program, vk_table *table)
{
    for (size_t i = 0; i < program->num_stores; i++) {
        vk_block_unref(table->blocks[i]);
        table->blocks[i] = NULL;
    }
    table->next = program->tables;
    program->tables = table;
}

PyObject *vk_table_address(const vk_table *table)
{
    return table->address;
}

/* The program did not come to its end: what it returned knows why. */
static PJRT_Error *reason(const vk_table *table, PyObject *outcome)
{
    PyObject *list = PyObject_CallMethod(outcome, "consume_with_handlers", "O",
                                         table->program->handlers);
    if (list == NULL)
        return vk_error_from_python();
    Py_DECREF(list);
    return vk_error(VK_INTERNAL, "the engine did not store its small results");
}

/* Hands the small results over to their buffers.  GIL held. */
PJRT_Error *vk_table_deliver(vk_table *table, PyObject *outcome, PJRT_Buffer **outputs)
{
    if (table->refused || (!table->stored && table->program->num_stores != 0))
        return reason(table, outcome);
    for (size_t i = 0; i < table->program->num_stores; i++) {
        PJRT_Buffer *buffer = outputs[table->program->stores[i].number];
        buffer->block = table->blocks[i];
        buffer->data = table->blocks[i]->data;
        table->blocks[i] = NULL;
    }
    return NULL;
}
