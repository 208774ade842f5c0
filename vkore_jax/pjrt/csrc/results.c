/* Results of an execution that nobody has asked for yet.
 *
 * An inner array costs about as much as its share of a small execution.  Results are often
 * dropped or replaced unseen, so what the inner executable returns is kept as it is and
 * taken apart when the first array is needed: all of it, since that is the only way.
 * When some members are destroyed and others live on, it is taken apart at the next drain,
 * because the memory of a destroyed member must not wait for the others. */
#include <sched.h>

#include "bridge.h"

/* CPython 3.11 may collect garbage whenever an object is allocated, later versions only
 * between two bytecodes.  To set the collector's mark "is running" has no effect but that
 * none starts: unlike with gc.disable(), nobody's setting changes, and `gc.isenabled()`
 * keeps its answer.  The GIL guards the mark and the count of those who set it. */
#if PY_VERSION_HEX < 0x030C0000
#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED /* the inner header has one of its own */
#include "internal/pycore_interp.h"
#undef Py_BUILD_CORE

static int holders;
static bool marked;

static void hold_garbage(void)
{
    int *running = &PyInterpreterState_Get()->gc.collecting;
    if (holders++ == 0 && (marked = *running == 0))
        *running = 1;
}

static void release_garbage(void)
{
    if (--holders == 0 && marked)
        PyInterpreterState_Get()->gc.collecting = 0;
}
#else
static void hold_garbage(void)
{
}

static void release_garbage(void)
{
}
#endif

static vk_results *partial; /* queued; under vk_lock */

/* Shares an outcome between the buffers of its results; takes a reference of its own. */
PJRT_Error *vk_results_new(PyObject *outcome, PyObject *handlers, size_t count,
                           PJRT_Buffer **buffers)
{
    if (count == 0)
        return NULL;
    vk_results *results = malloc(sizeof *results + count * sizeof *results->members);
    if (results == NULL)
        return VK_OOM();
    *results = (vk_results){.outcome = Py_NewRef(outcome),
                            .handlers = Py_NewRef(handlers),
                            .count = count,
                            .live = count};
    for (size_t i = 0; i < count; i++) {
        results->members[i] = buffers[i];
        buffers[i]->results = results;
        buffers[i]->index = i;
    }
    return NULL;
}

/* Lock held. */
static void free_if_idle(vk_results *results)
{
    if (results->live != 0 || results->pins != 0)
        return;
    vk_defer_decref(results->outcome, 0);
    vk_defer_decref(results->handlers, 0);
    free(results);
}

/* Takes a buffer whose bytes are given up out of its results.  Lock held, no GIL. */
void vk_results_leave(PJRT_Buffer *buffer)
{
    vk_results *results = buffer->results;
    results->members[buffer->index] = NULL;
    results->live--;
    buffer->results = NULL;
    vk_urge(buffer->bytes);
    if (results->live != 0 && results->outcome != NULL && !results->queued) {
        results->queued = true;
        results->pins++;
        results->next = partial;
        partial = results;
    }
    free_if_idle(results);
}

/* Makes arrays of the outcome and gives them to the members that live.  GIL held, lock
 * held on entry and exit, not in between; the caller has a pin.  The arrays are objects
 * that count for the garbage collector: it must not run here, because a finalizer that
 * reads another member needs what this very call is making. */
static void take_apart(vk_results *results)
{
    PyObject *outcome = results->outcome;
    results->outcome = NULL;
    results->maker = pthread_self();
    pthread_mutex_unlock(&vk_lock);
    hold_garbage();
    PyObject *list =
        PyObject_CallMethod(outcome, "consume_with_handlers", "O", results->handlers);
    release_garbage();
    Py_DECREF(outcome);
    PJRT_Error *error = NULL;
    if (list == NULL)
        error = vk_error_from_python();
    else if (!PyList_CheckExact(list) || (size_t)PyList_GET_SIZE(list) != results->count)
        error = vk_error(VK_INTERNAL, "the engine did not return %zu arrays", results->count);
    pthread_mutex_lock(&vk_lock);
    for (size_t i = 0; i < results->count; i++) {
        PJRT_Buffer *buffer = results->members[i];
        if (buffer == NULL)
            continue;
        if (error == NULL)
            buffer->array = Py_NewRef(PyList_GET_ITEM(list, (Py_ssize_t)i));
        else
            buffer->error = vk_error_ref(error);
        buffer->results = NULL;
        results->members[i] = NULL;
        results->live--;
    }
    pthread_mutex_unlock(&vk_lock);
    Py_XDECREF(list); /* arrays of dead members go with it */
    vk_error_unref(error);
    pthread_mutex_lock(&vk_lock);
}

/* Makes sure that a buffer does not hide in results.  GIL held, lock not held. */
void vk_results_unpack(PJRT_Buffer *buffer)
{
    pthread_mutex_lock(&vk_lock);
    vk_results *results = buffer->results;
    if (results != NULL) {
        results->pins++;
        if (results->outcome != NULL)
            take_apart(results);
        /* Another thread is at it; or this one, and what it makes runs a finalizer. */
        while (buffer->results == results && !pthread_equal(results->maker, pthread_self())) {
            pthread_mutex_unlock(&vk_lock);
            Py_BEGIN_ALLOW_THREADS
            sched_yield();
            Py_END_ALLOW_THREADS
            pthread_mutex_lock(&vk_lock);
        }
        results->pins--;
        free_if_idle(results);
    }
    pthread_mutex_unlock(&vk_lock);
}

bool vk_results_waiting(void)
{
    pthread_mutex_lock(&vk_lock);
    bool waiting = partial != NULL;
    pthread_mutex_unlock(&vk_lock);
    return waiting;
}

/* Takes apart what has lost members, so that their memory is free.  GIL held. */
void vk_results_sweep(void)
{
    pthread_mutex_lock(&vk_lock);
    vk_results *results;
    while ((results = partial) != NULL) {
        partial = results->next;
        if (results->live != 0 && results->outcome != NULL)
            take_apart(results);
        results->pins--;
        results->queued = false;
        free_if_idle(results);
    }
    pthread_mutex_unlock(&vk_lock);
}
