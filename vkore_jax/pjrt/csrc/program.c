/* Compiled programs: building them from what the Python hooks return, and loading. */
#include <fenv.h>
#include <string.h>

#include "bridge.h"

PyObject *vk_hooks = NULL;

/* Calls a method of the hooks object with a Py_BuildValue format that makes a tuple.
 * jaxlib calls from threads of a pool that flushes subnormals; the compiler handles
 * constants of the user's program, which must stay as they are: the processor gets its
 * default environment for the time of the call. */
PyObject *vk_call_hook(const char *name, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    PyObject *arguments = Py_VaBuildValue(format, list);
    va_end(list);
    PyObject *method = arguments ? PyObject_GetAttrString(vk_hooks, name) : NULL;
    fenv_t environment;
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);
    PyObject *result = method ? PyObject_Call(method, arguments, NULL) : NULL;
    fesetenv(&environment);
    Py_XDECREF(method);
    Py_XDECREF(arguments);
    return result;
}

vk_program *vk_program_ref(vk_program *program)
{
    atomic_fetch_add(&program->refs, 1);
    return program;
}

static void free_signature(vk_signature *signature)
{
    for (size_t i = 0; i < signature->count; i++) {
        free(signature->specs[i].dims);
        free(signature->specs[i].layout);
        free(signature->specs[i].sharding);
        if (signature->layouts != NULL)
            free(signature->layouts[i]);
    }
    free(signature->specs);
    free(signature->kinds);
    free(signature->shardings);
    free(signature->kind_sizes);
    free(signature->sharding_sizes);
    free(signature->layouts);
}

/* Any thread, no GIL: the Python references go to the deferred list. */
void vk_program_unref(vk_program *program)
{
    if (program == NULL || atomic_fetch_sub(&program->refs, 1) != 1)
        return;
    vk_defer_decref(program->program, 0);
    vk_defer_decref(program->execute, 0);
    vk_defer_decref(program->launch, 0);
    vk_defer_decref(program->handlers, 0);
    vk_defer_decref(program->token, 0);
    vk_tables_free(program);
    free_signature(&program->params);
    free_signature(&program->results);
    for (size_t i = 0; i < program->num_costs; i++)
        free((char *)program->costs[i].name);
    free(program->costs);
    free(program->donated);
    free(program->consumed);
    free(program->small_params);
    free(program->small_results);
    free(program->loads);
    free(program->stores);
    free(program->result_types);
    free(program->result_dims);
    free(program->result_ranks);
    free(program->name);
    free(program->fingerprint);
    free(program->options);
    free(program->assignment);
    free(program->text);
    pthread_mutex_destroy(&program->lazy);
    free(program);
}

static char *copy_bytes(const char *bytes, Py_ssize_t size)
{
    char *copy = malloc((size_t)size + 1);
    if (copy != NULL) {
        memcpy(copy, bytes, (size_t)size);
        copy[size] = 0;
    }
    return copy;
}

static int read_text(PyObject *object, const char *name, char **text, size_t *size)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    if (value == NULL)
        return -1;
    Py_ssize_t length = 0;
    const char *bytes = NULL;
    if (PyUnicode_Check(value))
        bytes = PyUnicode_AsUTF8AndSize(value, &length);
    else if (PyBytes_Check(value))
        bytes = PyBytes_AS_STRING(value), length = PyBytes_GET_SIZE(value);
    else
        PyErr_Format(PyExc_TypeError, "%s must be str or bytes", name);
    if (bytes != NULL && (*text = copy_bytes(bytes, length)) == NULL)
        PyErr_NoMemory();
    *size = (size_t)length;
    Py_DECREF(value);
    return *text != NULL ? 0 : -1;
}

static int read_size(PyObject *object, const char *name, size_t *out)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    if (value == NULL)
        return -1;
    *out = PyLong_AsSize_t(value);
    Py_DECREF(value);
    return PyErr_Occurred() ? -1 : 0;
}

static int read_flag(PyObject *object, const char *name, bool *out)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    int found = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    *out = found > 0;
    return found < 0 ? -1 : 0;
}

/* One row: (type, memory kind index, dims, layout text, serialized OpSharding). */
static int read_spec(PyObject *row, vk_spec *spec)
{
    PyObject *dims;
    const char *layout, *sharding;
    Py_ssize_t layout_size, sharding_size;
    if (!PyArg_ParseTuple(row, "iiO!s#y#", &spec->type, &spec->memory_kind, &PyTuple_Type,
                          &dims, &layout, &layout_size, &sharding, &sharding_size))
        return -1;
    if (vk_item_size(spec->type) == 0 || spec->memory_kind < 0 ||
        spec->memory_kind >= VK_NUM_KINDS || PyTuple_GET_SIZE(dims) > VK_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "a program has a tensor of type %d, rank %zd",
                     spec->type, PyTuple_GET_SIZE(dims));
        return -1;
    }
    spec->num_dims = (size_t)PyTuple_GET_SIZE(dims);
    spec->dims = calloc(spec->num_dims + 1, sizeof *spec->dims);
    spec->layout = copy_bytes(layout, layout_size);
    spec->layout_size = (size_t)layout_size;
    spec->sharding = copy_bytes(sharding, sharding_size);
    spec->sharding_size = (size_t)sharding_size;
    if (spec->dims == NULL || spec->layout == NULL || spec->sharding == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    spec->bytes = vk_item_size(spec->type);
    for (size_t i = 0; i < spec->num_dims; i++) {
        spec->dims[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(dims, (Py_ssize_t)i));
        if (__builtin_mul_overflow(spec->bytes, (size_t)spec->dims[i], &spec->bytes)) {
            PyErr_SetString(PyExc_OverflowError, "a tensor has more than 2**63 bytes");
            return -1;
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int read_signature(PyObject *object, const char *name, vk_signature *signature)
{
    PyObject *rows = PyObject_GetAttrString(object, name);
    if (rows == NULL)
        return -1;
    if (!PyTuple_Check(rows)) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple", name);
        Py_DECREF(rows);
        return -1;
    }
    size_t count = (size_t)PyTuple_GET_SIZE(rows);
    signature->specs = calloc(count + 1, sizeof *signature->specs);
    signature->kinds = calloc(count + 1, sizeof *signature->kinds);
    signature->shardings = calloc(count + 1, sizeof *signature->shardings);
    signature->kind_sizes = calloc(count + 1, sizeof *signature->kind_sizes);
    signature->sharding_sizes = calloc(count + 1, sizeof *signature->sharding_sizes);
    signature->layouts = calloc(count + 1, sizeof *signature->layouts);
    if (!signature->specs || !signature->kinds || !signature->shardings ||
        !signature->kind_sizes || !signature->sharding_sizes || !signature->layouts)
        PyErr_NoMemory();
    for (size_t i = 0; i < count && !PyErr_Occurred(); i++) {
        vk_spec *spec = &signature->specs[i];
        signature->count++;
        if (read_spec(PyTuple_GET_ITEM(rows, (Py_ssize_t)i), spec) != 0)
            break;
        signature->kinds[i] = vk_memory_kinds[spec->memory_kind];
        signature->kind_sizes[i] = strlen(signature->kinds[i]);
        signature->shardings[i] = spec->sharding;
        signature->sharding_sizes[i] = spec->sharding_size;
        PJRT_Layouts_MemoryLayout *layout = VK_NEW(PJRT_Layouts_MemoryLayout);
        if (layout == NULL) {
            PyErr_NoMemory();
            break;
        }
        layout->text = spec->layout;
        layout->size = spec->layout_size;
        signature->layouts[i] = layout;
    }
    Py_DECREF(rows);
    return PyErr_Occurred() ? -1 : 0;
}

/* Reads a tuple of parameter numbers into one flag per parameter. */
static int read_flags(PyObject *object, const char *name, size_t count, bool **out)
{
    PyObject *numbers = PyObject_GetAttrString(object, name);
    *out = calloc(count + 1, sizeof **out);
    if (numbers == NULL || *out == NULL || !PyTuple_Check(numbers)) {
        Py_XDECREF(numbers);
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%s must be a tuple", name);
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(numbers); i++) {
        size_t number = PyLong_AsSize_t(PyTuple_GET_ITEM(numbers, i));
        if (number < count)
            (*out)[number] = true;
    }
    Py_DECREF(numbers);
    return PyErr_Occurred() ? -1 : 0;
}

/* Lists the parameters or results that are small, and where their values lie one after
 * the other. */
static int list_small(const vk_signature *signature, const bool *small, vk_small **list,
                      size_t *count, size_t *bytes)
{
    enum { ALIGNMENT = 16 };
    *list = calloc(signature->count + 1, sizeof **list);
    if (*list == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *bytes = 0;
    for (size_t i = 0; i < signature->count; i++) {
        if (!small[i])
            continue;
        size_t size = signature->specs[i].bytes;
        (*list)[(*count)++] = (vk_small){.number = i, .bytes = size, .offset = *bytes};
        *bytes += (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return 0;
}

static int read_small(PyObject *loaded, vk_program *program)
{
    size_t unused;
    if (read_flags(loaded, "small_params", program->params.count,
                   &program->small_params) != 0 ||
        read_flags(loaded, "small_results", program->results.count,
                   &program->small_results) != 0 ||
        list_small(&program->params, program->small_params, &program->loads,
                   &program->num_loads, &program->load_bytes) != 0)
        return -1;
    return list_small(&program->results, program->small_results, &program->stores,
                      &program->num_stores, &unused);
}

static int summarize_results(vk_program *program)
{
    vk_signature *results = &program->results;
    size_t dims = 0;
    for (size_t i = 0; i < results->count; i++)
        dims += results->specs[i].num_dims;
    program->result_types = calloc(results->count + 1, sizeof *program->result_types);
    program->result_ranks = calloc(results->count + 1, sizeof *program->result_ranks);
    program->result_dims = calloc(dims + 1, sizeof *program->result_dims);
    if (!program->result_types || !program->result_ranks || !program->result_dims) {
        PyErr_NoMemory();
        return -1;
    }
    dims = 0;
    for (size_t i = 0; i < results->count; i++) {
        vk_spec *spec = &results->specs[i];
        program->result_types[i] = spec->type;
        program->result_ranks[i] = spec->num_dims;
        memcpy(program->result_dims + dims, spec->dims, spec->num_dims * sizeof(int64_t));
        dims += spec->num_dims;
        if (spec->memory_kind == 0)
            program->result_bytes += spec->bytes;
    }
    return 0;
}

/* Builds a program from what a hook returned (see executable.py, Loaded).  GIL held. */
static vk_program *read_program(PyObject *loaded, PJRT_Client *client)
{
    vk_program *program = VK_NEW(vk_program);
    if (program == NULL)
        return (vk_program *)PyErr_NoMemory();
    atomic_init(&program->refs, 1);
    pthread_mutex_init(&program->lazy, NULL);
    size_t device = 0;
    if (read_text(loaded, "name", &program->name, &program->name_size) == 0 &&
        read_text(loaded, "fingerprint", &program->fingerprint,
                  &program->fingerprint_size) == 0 &&
        read_text(loaded, "options", &program->options, &program->options_size) == 0 &&
        read_text(loaded, "assignment", &program->assignment,
                  &program->assignment_size) == 0 &&
        read_size(loaded, "device_id", &device) == 0 &&
        read_flag(loaded, "calls_host", &program->calls_host) == 0 &&
        read_size(loaded, "temp_bytes", &program->temp_bytes) == 0 &&
        read_size(loaded, "code_bytes", &program->code_bytes) == 0 &&
        read_signature(loaded, "params", &program->params) == 0 &&
        read_signature(loaded, "results", &program->results) == 0 &&
        read_flags(loaded, "donated", program->params.count, &program->donated) == 0 &&
        read_flags(loaded, "consumed", program->params.count, &program->consumed) == 0 &&
        read_small(loaded, program) == 0 && summarize_results(program) == 0 &&
        (program->token = PyObject_GetAttrString(loaded, "token")) != NULL &&
        (program->launch = PyObject_GetAttrString(loaded, "launch")) != NULL &&
        (program->handlers = PyObject_GetAttrString(loaded, "handlers")) != NULL)
        program->execute = PyObject_GetAttrString(loaded, "execute");
    program->program = Py_NewRef(loaded);
    if (program->execute != NULL && client != NULL) {
        if (device < client->topology->num_devices)
            program->device = client->devices[device];
        else
            PyErr_Format(PyExc_ValueError, "the program is for device %zu of %zu", device,
                         client->topology->num_devices);
    }
    if (!PyErr_Occurred())
        return program;
    vk_program_unref(program);
    return NULL;
}

static PJRT_Error *load(vk_program *program, PJRT_LoadedExecutable **out)
{
    PJRT_LoadedExecutable *executable = VK_NEW(PJRT_LoadedExecutable);
    if (executable == NULL)
        return VK_OOM();
    executable->program = program;
    *out = executable;
    return NULL;
}

static PJRT_Error *finish(PyObject *loaded, PJRT_Client *client, vk_program **out)
{
    *out = loaded ? read_program(loaded, client) : NULL;
    PJRT_Error *error = *out ? NULL : vk_error_from_python();
    Py_XDECREF(loaded);
    return error;
}

static PyObject *compile(PyObject *config, const PJRT_Program *source, const char *options,
                         size_t options_size)
{
    return vk_call_hook("compile", "(Oy#s#y#)", config, source->code,
                        (Py_ssize_t)source->code_size, source->format,
                        (Py_ssize_t)source->format_size, options ? options : "",
                        (Py_ssize_t)(options ? options_size : 0));
}

PJRT_Error *vk_Client_Compile(PJRT_Client_Compile_Args *args)
{
    vk_program *program;
    args->executable = NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    vk_drain();
    PyObject *loaded = compile(args->client->config, args->program, args->compile_options,
                               args->compile_options_size);
    PJRT_Error *error = finish(loaded, args->client, &program);
    PyGILState_Release(gil);
    return error ? error : load(program, &args->executable);
}

/* Ahead-of-time compilation: no device is touched. */
PJRT_Error *vk_Compile(PJRT_Compile_Args *args)
{
    vk_program *program;
    args->executable = NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *loaded = compile(args->client ? args->client->config : Py_None, args->program,
                               args->compile_options, args->compile_options_size);
    PJRT_Error *error = finish(loaded, NULL, &program);
    PyGILState_Release(gil);
    if (error != NULL)
        return error;
    args->executable = VK_NEW(PJRT_Executable);
    if (args->executable == NULL)
        return VK_OOM();
    args->executable->program = program;
    return NULL;
}

PJRT_Error *vk_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args *args)
{
    vk_program *program;
    args->loaded_executable = NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    vk_drain();
    bool overridden = args->overridden_serialized_compile_options != NULL;
    PyObject *loaded = vk_call_hook(
        "deserialize", "(Oy#y#)", args->client->config, args->serialized_executable,
        (Py_ssize_t)args->serialized_executable_size,
        overridden ? args->overridden_serialized_compile_options : "",
        (Py_ssize_t)(overridden ? args->overridden_serialized_compile_options_size : 0));
    PJRT_Error *error = finish(loaded, args->client, &program);
    PyGILState_Release(gil);
    return error ? error : load(program, &args->loaded_executable);
}

/* Loads an ahead-of-time executable: through its serialized form, as another process
 * would do it. */
PJRT_Error *vk_Client_Load(PJRT_Client_Load_Args *args)
{
    PJRT_Executable_Serialize_Args bytes = {.executable = args->executable};
    PJRT_Error *error = vk_Executable_Serialize(&bytes);
    if (error != NULL)
        return error;
    PJRT_Executable_DeserializeAndLoad_Args again = {
        .client = args->client,
        .serialized_executable = bytes.serialized_bytes,
        .serialized_executable_size = bytes.serialized_bytes_size,
        .overridden_serialized_compile_options = args->compile_options,
        .overridden_serialized_compile_options_size = args->compile_options_size};
    error = vk_Executable_DeserializeAndLoad(&again);
    bytes.serialized_executable_deleter(bytes.serialized_executable);
    args->loaded_executable = again.loaded_executable;
    return error;
}

PJRT_Error *vk_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args *args)
{
    args->executable = VK_NEW(PJRT_Executable);
    if (args->executable == NULL)
        return VK_OOM();
    args->executable->program = vk_program_ref(args->loaded_executable->program);
    return NULL;
}

PJRT_Error *vk_Executable_Destroy(PJRT_Executable_Destroy_Args *args)
{
    vk_program_unref(args->executable->program);
    free(args->executable);
    return NULL;
}

PJRT_Error *vk_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args *args)
{
    vk_program_unref(args->executable->program);
    free(args->executable);
    return NULL;
}

PJRT_Error *vk_LoadedExecutable_Delete(PJRT_LoadedExecutable_Delete_Args *args)
{
    args->executable->deleted = true;
    return NULL;
}

PJRT_Error *vk_LoadedExecutable_IsDeleted(PJRT_LoadedExecutable_IsDeleted_Args *args)
{
    args->is_deleted = args->executable->deleted;
    return NULL;
}
