/* Running a program: the hot path.  Everything here is C except one call of the prepared
 * Python callable, which takes a list of inner arrays and returns inner arrays; small
 * arrays go through a table (table.c).
 *
 * An execution that fails does not make Execute fail (jaxlib's fast path would turn that
 * into a plain ValueError): the outputs become error buffers, whose ready events carry the
 * error, and whatever consumes them inherits it.  Only programs that call the user's
 * functions fail at once, as on the CPU: what a function raises is told where it was
 * called, and JAX keeps no token that would tell it again. */
#include <stdio.h>
#include <string.h>

#include "bridge.h"

static bool may_donate(const PJRT_ExecuteOptions *options, int64_t index)
{
    if (options == NULL)
        return true;
    for (size_t i = 0; i < options->num_non_donatable_input_indices; i++)
        if (options->non_donatable_input_indices[i] == index)
            return false;
    return true;
}

static bool has_type(const PJRT_Buffer *buffer, const vk_spec *spec)
{
    return (buffer->type == spec->type && buffer->num_dims == spec->num_dims &&
            memcmp(buffer->dims, spec->dims, spec->num_dims * sizeof *spec->dims) == 0) ||
           spec->type == VK_TYPE_TOKEN; /* JAX passes pred[0]: no value in it */
}

static void write_type(char *text, size_t room, int32_t type, size_t num_dims,
                       const int64_t *dims)
{
    size_t size = (size_t)snprintf(text, room, "%s[", vk_type_names[type]);
    for (size_t i = 0; i < num_dims && size < room; i++)
        size += (size_t)snprintf(text + size, room - size, i ? ",%lld" : "%lld",
                                 (long long)dims[i]);
    if (size < room)
        snprintf(text + size, room - size, "]");
}

static PJRT_Error *wrong_type(const vk_program *program, size_t number,
                              const PJRT_Buffer *buffer)
{
    const vk_spec *spec = &program->params.specs[number];
    char found[256], wanted[256];
    write_type(found, sizeof found, buffer->type, buffer->num_dims, buffer->dims);
    write_type(wanted, sizeof wanted, spec->type, spec->num_dims, spec->dims);
    return vk_error(VK_INVALID_ARGUMENT,
                    "argument %zu of %s is %s, the program takes %s: it was compiled, or "
                    "stored, for other arguments",
                    number, program->name, found, wanted);
}

/* Finds the first reason why these arguments cannot be used.  Lock held. */
static PJRT_Error *check_arguments(const vk_program *program, PJRT_Buffer *const *inputs)
{
    for (size_t i = 0; i < program->params.count; i++) {
        if (inputs[i]->error != NULL)
            return vk_error_ref(inputs[i]->error);
        if (inputs[i]->deleted)
            return vk_error(VK_INVALID_ARGUMENT,
                            "argument %zu has been deleted or donated", i);
        if (!has_type(inputs[i], &program->params.specs[i]))
            return wrong_type(program, i, inputs[i]);
    }
    return NULL;
}

static PJRT_Error *check_donations(const bool *donate, PJRT_Buffer *const *inputs,
                                   size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!donate[i])
            continue;
        for (size_t j = 0; j < count; j++)
            if (j != i && inputs[j] == inputs[i])
                return vk_error(VK_INVALID_ARGUMENT,
                                "argument %zu is donated, but the same buffer is also "
                                "argument %zu of this call",
                                i, j);
    }
    return NULL;
}

/* Makes the list of inner arrays, the table's address first if there is one; NULL with a
 * Python exception on failure.  GIL held. */
static PyObject *gather(const vk_program *program, PJRT_Buffer *const *inputs,
                        const bool *donate, const vk_table *table)
{
    size_t count = program->params.count;
    PyObject *list =
        PyList_New((Py_ssize_t)(count - program->num_loads + (table != NULL)));
    Py_ssize_t next = 0;
    if (list != NULL && table != NULL)
        PyList_SET_ITEM(list, next++, Py_NewRef(vk_table_address(table)));
    for (size_t i = 0; list != NULL && i < count; i++) {
        if (program->small_params[i])
            continue;
        PJRT_Buffer *buffer = inputs[i];
        /* The inner executable destroys what it consumes: give it a copy unless the
         * caller donates and no view of the bytes exists. */
        bool fresh = program->consumed[i] && !(donate && donate[i] && !buffer->external);
        PyObject *array = buffer->array;
        if (program->params.specs[i].type == VK_TYPE_TOKEN)
            array = Py_NewRef(program->token); /* JAX passes pred[0]: no value in it */
        else if (array != NULL && !fresh)
            Py_INCREF(array); /* the GIL and the caller keep it where it is */
        else
            array = vk_buffer_array(buffer, fresh);
        if (array == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, next++, array);
    }
    return list;
}

static PJRT_Buffer *make_output(const vk_program *program, const vk_spec *spec)
{
    PJRT_Memory *memory = &program->device->memory[spec->memory_kind];
    return vk_buffer_new(memory, spec->type, spec->num_dims, spec->dims);
}

/* Gives the large results of a packed outcome to their buffers. */
static PJRT_Error *deliver_packed(const vk_program *program, PyObject *outcome,
                                  PJRT_Buffer **outputs)
{
    size_t count = program->results.count, large = 0;
    if (program->num_stores == 0)
        return vk_results_new(outcome, program->handlers, count, outputs);
    PJRT_Buffer **members = malloc((count + 1) * sizeof *members);
    if (members == NULL)
        return VK_OOM();
    for (size_t i = 0; i < count; i++)
        if (!program->small_results[i])
            members[large++] = outputs[i];
    PJRT_Error *error = vk_results_new(outcome, program->handlers, large, members);
    free(members);
    return error;
}

/* Turns the callable's result into buffers.  GIL held. */
static PJRT_Error *deliver(const vk_program *program, PyObject *list, vk_table *table,
                           PJRT_Buffer **outputs)
{
    size_t count = program->results.count;
    bool packed = program->launch != Py_None;
    if (!packed && (!PyList_CheckExact(list) || (size_t)PyList_GET_SIZE(list) != count))
        return vk_error(VK_INTERNAL, "the engine did not return a list of %zu arrays",
                        count);
    for (size_t i = 0; i < count; i++) {
        PJRT_Buffer *buffer = make_output(program, &program->results.specs[i]);
        if (buffer == NULL)
            return VK_OOM();
        if (!packed)
            buffer->array = Py_NewRef(PyList_GET_ITEM(list, (Py_ssize_t)i));
        outputs[i] = buffer;
    }
    PJRT_Error *error = table != NULL ? vk_table_deliver(table, list, outputs) : NULL;
    if (error == NULL && packed)
        error = deliver_packed(program, list, outputs);
    for (size_t i = 0; error == NULL && i < count; i++)
        vk_account(outputs[i]);
    return error;
}

/* Takes the donated arguments away from everybody else, if all arguments are still there:
 * while the engine runs, other threads may call, and it may overwrite what it consumes. */
static PJRT_Error *claim(const vk_program *program, PJRT_Buffer *const *inputs,
                         const bool *donate)
{
    pthread_mutex_lock(&vk_lock);
    PJRT_Error *error = check_arguments(program, inputs);
    for (size_t i = 0; error == NULL && donate != NULL && i < program->params.count; i++)
        if (donate[i])
            inputs[i]->deleted = true;
    pthread_mutex_unlock(&vk_lock);
    return error;
}

/* Runs it; `started` says whether the engine may have consumed arguments.  GIL held. */
static PJRT_Error *run(vk_program *program, PJRT_Buffer *const *inputs,
                       const bool *donate, size_t freed, PJRT_Buffer **outputs,
                       bool *started)
{
    size_t needed = program->result_bytes + program->temp_bytes;
    needed = needed > freed ? needed - freed : 0;
    size_t lasting = program->result_bytes > freed ? program->result_bytes - freed : 0;
    PJRT_Error *error = vk_check_room(program->device, needed, lasting, program->name);
    if (error != NULL)
        return error;
    vk_table *table = NULL;
    if (program->num_loads + program->num_stores != 0)
        error = vk_table_take(program, inputs, &table);
    PyObject *arguments = error == NULL ? gather(program, inputs, donate, table) : NULL;
    if (arguments == NULL) {
        if (error == NULL)
            error = vk_error_from_python();
        if (table != NULL)
            vk_table_give(program, table);
        /* A result that could not be taken apart, or was deleted meanwhile, says so. */
        pthread_mutex_lock(&vk_lock);
        PJRT_Error *cause = check_arguments(program, inputs);
        pthread_mutex_unlock(&vk_lock);
        if (cause != NULL) {
            vk_error_unref(error);
            error = cause;
        }
        return error;
    }
    bool packed = program->launch != Py_None;
    PyObject *results = NULL;
    error = claim(program, inputs, donate);
    *started = error == NULL;
    if (*started)
        results = PyObject_CallOneArg(packed ? program->launch : program->execute, arguments);
    Py_DECREF(arguments);
    if (*started)
        error = results != NULL ? deliver(program, results, table, outputs)
                                : vk_error_from_python();
    Py_XDECREF(results);
    if (table != NULL)
        vk_table_give(program, table);
    return error;
}

/* Replaces every output that does not exist yet by an error buffer. */
static PJRT_Error *poison(const vk_program *program, PJRT_Error *error,
                          PJRT_Buffer **outputs)
{
    for (size_t i = 0; i < program->results.count; i++) {
        if (outputs[i] == NULL)
            outputs[i] = make_output(program, &program->results.specs[i]);
        if (outputs[i] == NULL)
            return VK_OOM();
        if (outputs[i]->error == NULL)
            outputs[i]->error = vk_error_ref(error);
    }
    return NULL;
}

/* Gives up the outputs that exist and hands the error over. */
static PJRT_Error *fail(const vk_program *program, PJRT_Error *error,
                        PJRT_Buffer **outputs)
{
    for (size_t i = 0; i < program->results.count; i++) {
        if (outputs[i] == NULL)
            continue;
        PJRT_Buffer_Destroy_Args destroy = {.buffer = outputs[i]};
        vk_Buffer_Destroy(&destroy);
        outputs[i] = NULL;
    }
    return error;
}

PJRT_Error *vk_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args)
{
    vk_program *program = args->executable->program;
    if (args->num_devices != 1)
        return vk_error(VK_UNIMPLEMENTED,
                        "this program runs on one device, not on %zu; partitioned "
                        "programs are not supported yet",
                        args->num_devices);
    if (args->num_args != program->params.count)
        return vk_error(VK_INVALID_ARGUMENT, "%s takes %zu arguments, got %zu",
                        program->name, program->params.count, args->num_args);
    if (args->executable->deleted)
        return vk_error(VK_FAILED_PRECONDITION, "%s has been deleted", program->name);
    PJRT_Buffer *const *inputs = args->argument_lists[0];
    PJRT_Buffer **outputs = args->output_lists[0];
    memset(outputs, 0, program->results.count * sizeof *outputs);

    bool *donate = NULL, small[64] = {false};
    size_t freed = 0;
    for (size_t i = 0; i < args->num_args; i++) {
        if (!program->donated[i] || !may_donate(args->options, (int64_t)i))
            continue;
        if (donate == NULL)
            donate = args->num_args <= sizeof small ? small
                                                    : calloc(args->num_args, sizeof *donate);
        if (donate == NULL)
            return VK_OOM();
        donate[i] = true;
        freed += inputs[i]->accounted ? inputs[i]->bytes : 0;
    }
    pthread_mutex_lock(&vk_lock);
    PJRT_Error *error = check_arguments(program, inputs);
    pthread_mutex_unlock(&vk_lock);
    if (error == NULL && donate != NULL)
        error = check_donations(donate, inputs, args->num_args);

    PyGILState_STATE gil = PyGILState_Ensure();
    vk_drain();
    bool started = false;
    if (error == NULL)
        error = run(program, inputs, donate, freed, outputs, &started);
    PyGILState_Release(gil);

    if (donate != NULL) {
        pthread_mutex_lock(&vk_lock);
        for (size_t i = 0; i < args->num_args; i++)
            if (donate[i] && started) /* a call that is refused takes nothing away */
                vk_buffer_release(inputs[i]);
        pthread_mutex_unlock(&vk_lock);
        if (donate != small)
            free(donate);
    }
    if (error != NULL && program->calls_host)
        return fail(program, error, outputs);
    PJRT_Error *fatal = error ? poison(program, error, outputs) : NULL;
    if (args->device_complete_events != NULL)
        args->device_complete_events[0] = vk_event(error);
    vk_error_unref(error);
    return fatal;
}
