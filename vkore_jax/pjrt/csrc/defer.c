/* Deferred release of Python references, and host memory blocks.
 *
 * jaxlib destroys buffers at any moment: with or without the GIL, inside a deallocation
 * with an exception pending, on foreign threads.  So a destroy only pushes the reference
 * on a list; the next call that holds the GIL for good reason empties it.  When much
 * memory waits there, the interpreter is asked to empty it at its next safe point.
 */
#include <string.h>

#include "bridge.h"

enum { URGENT_BYTES = 1 << 20 };

typedef struct deferred {
    struct deferred *next;
    PyObject *object;
} deferred;

pthread_mutex_t vk_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic(deferred *) pending;
static atomic_size_t pending_bytes;
static atomic_bool scheduled;

static int drain_later(void *unused)
{
    (void)unused;
    atomic_store(&scheduled, false);
    vk_drain();
    return 0;
}

/* Gives up a reference that the caller owns.  Any thread, any state, no GIL needed. */
void vk_defer_decref(PyObject *object, size_t bytes)
{
    if (object == NULL)
        return;
    deferred *node = malloc(sizeof *node);
    if (node == NULL)
        return; /* leaking one reference is the only safe thing left */
    node->object = object;
    node->next = atomic_load(&pending);
    while (!atomic_compare_exchange_weak(&pending, &node->next, node))
        ;
    vk_urge(bytes);
}

/* Notes that bytes wait to be released, and asks for it when they are many. */
void vk_urge(size_t bytes)
{
    if (atomic_fetch_add(&pending_bytes, bytes) + bytes > URGENT_BYTES &&
        !atomic_exchange(&scheduled, true) && Py_AddPendingCall(drain_later, NULL) != 0)
        atomic_store(&scheduled, false);
}

/* Releases everything on the list.  GIL held; a pending exception is preserved. */
void vk_drain(void)
{
    if (atomic_load(&pending) == NULL && !vk_results_waiting())
        return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    atomic_store(&pending_bytes, 0);
    vk_results_sweep();
    deferred *node = atomic_exchange(&pending, NULL);
    while (node != NULL) {
        deferred *next = node->next;
        Py_DECREF(node->object);
        free(node);
        node = next;
    }
    PyErr_Restore(type, value, trace);
}

vk_block *vk_block_new(size_t bytes)
{
    vk_block *block = VK_NEW(vk_block);
    if (block == NULL)
        return NULL;
    block->data = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (block->data == NULL) {
        free(block);
        return NULL;
    }
    block->bytes = bytes;
    atomic_init(&block->refs, 1);
    return block;
}

void vk_block_unref(vk_block *block)
{
    if (block != NULL && atomic_fetch_sub(&block->refs, 1) == 1) {
        free(block->data);
        free(block);
    }
}

/* A Python object that exports a block's bytes, read-only, and keeps it alive. */
typedef struct {
    PyObject_HEAD
    vk_block *block;
} exporter;

static void exporter_dealloc(PyObject *self)
{
    vk_block_unref(((exporter *)self)->block);
    Py_TYPE(self)->tp_free(self);
}

static int exporter_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    vk_block *block = ((exporter *)self)->block;
    return PyBuffer_FillInfo(view, self, block->data, (Py_ssize_t)block->bytes, 1, flags);
}

static PyBufferProcs exporter_buffer = {exporter_getbuffer, NULL};

PyTypeObject vk_block_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "vkore_jax.pjrt._bridge.Block",
    .tp_doc = "Host memory of a device buffer; exports its bytes.",
    .tp_basicsize = sizeof(exporter),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = exporter_dealloc,
    .tp_as_buffer = &exporter_buffer,
};

PyObject *vk_block_exporter(vk_block *block)
{
    exporter *self = (exporter *)vk_block_type.tp_alloc(&vk_block_type, 0);
    if (self == NULL)
        return NULL;
    atomic_fetch_add(&block->refs, 1);
    self->block = block;
    return (PyObject *)self;
}
