/* What jaxlib asks an executable.  Plain getters answer from C; the four that are computed
 * on demand (costs, text, memory, bytes) call a hook once, outside of any destroy. */
#include <string.h>

#include "bridge.h"

PJRT_Error *vk_Executable_Name(PJRT_Executable_Name_Args *args)
{
    args->executable_name = args->executable->program->name;
    args->executable_name_size = args->executable->program->name_size;
    return NULL;
}

PJRT_Error *vk_Executable_NumReplicas(PJRT_Executable_NumReplicas_Args *args)
{
    args->num_replicas = 1;
    return NULL;
}

PJRT_Error *vk_Executable_NumPartitions(PJRT_Executable_NumPartitions_Args *args)
{
    args->num_partitions = 1;
    return NULL;
}

PJRT_Error *vk_Executable_NumOutputs(PJRT_Executable_NumOutputs_Args *args)
{
    args->num_outputs = args->executable->program->results.count;
    return NULL;
}

PJRT_Error *vk_Executable_SizeOfGeneratedCodeInBytes(
    PJRT_Executable_SizeOfGeneratedCodeInBytes_Args *args)
{
    args->size_in_bytes = (int64_t)args->executable->program->code_bytes;
    return NULL;
}

PJRT_Error *vk_Executable_OutputMemoryKinds(PJRT_Executable_OutputMemoryKinds_Args *args)
{
    vk_signature *results = &args->executable->program->results;
    args->num_outputs = results->count;
    args->memory_kinds = results->kinds;
    args->memory_kind_sizes = results->kind_sizes;
    return NULL;
}

PJRT_Error *vk_Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args *args)
{
    args->output_types = args->executable->program->result_types;
    args->num_output_types = args->executable->program->results.count;
    return NULL;
}

PJRT_Error *vk_Executable_OutputDimensions(PJRT_Executable_OutputDimensions_Args *args)
{
    args->num_outputs = args->executable->program->results.count;
    args->dims = args->executable->program->result_dims;
    args->dim_sizes = args->executable->program->result_ranks;
    return NULL;
}

PJRT_Error *vk_Executable_Fingerprint(PJRT_Executable_Fingerprint_Args *args)
{
    args->executable_fingerprint = args->executable->program->fingerprint;
    args->executable_fingerprint_size = args->executable->program->fingerprint_size;
    return NULL;
}

PJRT_Error *vk_LoadedExecutable_Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args *args)
{
    args->executable_fingerprint = args->executable->program->fingerprint;
    args->executable_fingerprint_size = args->executable->program->fingerprint_size;
    return NULL;
}

PJRT_Error *vk_LoadedExecutable_AddressableDevices(
    PJRT_LoadedExecutable_AddressableDevices_Args *args)
{
    args->addressable_devices = &args->executable->program->device;
    args->num_addressable_devices = 1;
    return NULL;
}

PJRT_Error *vk_LoadedExecutable_AddressableDeviceLogicalIds(
    PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args *args)
{
    args->addressable_device_logical_ids = &args->executable->logical;
    args->num_addressable_device_logical_ids = 1;
    return NULL;
}

static void program_unref(void *holder)
{
    vk_program_unref(holder);
}

PJRT_Error *vk_LoadedExecutable_GetDeviceAssignment(
    PJRT_LoadedExecutable_GetDeviceAssignment_Args *args)
{
    vk_program *program = vk_program_ref(args->executable->program);
    args->serialized_bytes = program->assignment;
    args->serialized_bytes_size = program->assignment_size;
    args->serialized_device_assignment = program;
    args->serialized_device_assignment_deleter = program_unref;
    return NULL;
}

PJRT_Error *vk_Executable_GetCompileOptions(PJRT_Executable_GetCompileOptions_Args *args)
{
    vk_program *program = vk_program_ref(args->executable->program);
    args->serialized_bytes = program->options;
    args->serialized_bytes_size = program->options_size;
    args->serialized_compile_options = program;
    args->serialized_compile_options_deleter = program_unref;
    return NULL;
}

PJRT_Error *vk_Executable_Serialize(PJRT_Executable_Serialize_Args *args)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PJRT_Error *error = NULL;
    PyObject *bytes = vk_call_hook("serialize", "(O)", args->executable->program->program);
    char *copy = NULL;
    if (bytes != NULL && PyBytes_Check(bytes)) {
        args->serialized_bytes_size = (size_t)PyBytes_GET_SIZE(bytes);
        copy = malloc(args->serialized_bytes_size + 1);
        if (copy != NULL)
            memcpy(copy, PyBytes_AS_STRING(bytes), args->serialized_bytes_size);
    }
    if (copy == NULL)
        error = PyErr_Occurred() ? vk_error_from_python() : VK_OOM();
    Py_XDECREF(bytes);
    PyGILState_Release(gil);
    args->serialized_bytes = copy;
    args->serialized_executable = copy;
    args->serialized_executable_deleter = free;
    return error;
}

/* Fills program->text once.  The hook runs without the mutex: two threads may both ask,
 * the second answer is dropped. */
static PJRT_Error *ensure_text(vk_program *program)
{
    pthread_mutex_lock(&program->lazy);
    bool known = program->text != NULL;
    pthread_mutex_unlock(&program->lazy);
    if (known)
        return NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    PJRT_Error *error = NULL;
    PyObject *bytes = vk_call_hook("optimized_program", "(O)", program->program);
    if (bytes == NULL || !PyBytes_Check(bytes)) {
        error = PyErr_Occurred() ? vk_error_from_python()
                                 : vk_error(VK_INTERNAL, "no program text");
    } else {
        size_t size = (size_t)PyBytes_GET_SIZE(bytes);
        char *copy = malloc(size + 1);
        if (copy == NULL)
            error = VK_OOM();
        else
            memcpy(copy, PyBytes_AS_STRING(bytes), size);
        pthread_mutex_lock(&program->lazy);
        if (program->text == NULL) {
            program->text = copy;
            program->text_size = size;
        } else {
            free(copy);
        }
        pthread_mutex_unlock(&program->lazy);
    }
    Py_XDECREF(bytes);
    PyGILState_Release(gil);
    return error;
}

/* Called twice: first without memory to learn the size, then to get the bytes. */
PJRT_Error *vk_Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args *args)
{
    static const char format[] = "mlir";
    vk_program *program = args->executable->program;
    PJRT_Error *error = ensure_text(program);
    if (error != NULL)
        return error;
    args->program->format = format;
    args->program->format_size = sizeof format - 1;
    if (args->program->code == NULL) {
        args->program->code_size = program->text_size;
        return NULL;
    }
    if (args->program->code_size < program->text_size)
        return vk_error(VK_INVALID_ARGUMENT, "the program text needs %zu bytes",
                        program->text_size);
    memcpy(args->program->code, program->text, program->text_size);
    args->program->code_size = program->text_size;
    return NULL;
}

static PJRT_NamedValue *read_costs(PyObject *dict, size_t *count)
{
    PyObject *key, *value;
    Py_ssize_t position = 0;
    PJRT_NamedValue *costs = calloc((size_t)PyDict_Size(dict) + 1, sizeof *costs);
    *count = 0;
    while (costs != NULL && PyDict_Next(dict, &position, &key, &value)) {
        PJRT_NamedValue *out = &costs[*count];
        const char *name = PyUnicode_AsUTF8(key);
        if (name == NULL || (out->name = strdup(name)) == NULL)
            break;
        out->struct_size = sizeof *out;
        out->name_size = strlen(name);
        out->type = VK_VALUE_FLOAT;
        out->float_value = (float)PyFloat_AsDouble(value);
        out->value_size = 1;
        ++*count;
    }
    return costs;
}

PJRT_Error *vk_Executable_GetCostAnalysis(PJRT_Executable_GetCostAnalysis_Args *args)
{
    vk_program *program = args->executable->program;
    PJRT_Error *error = NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    if (program->costs == NULL) { /* the GIL is held again when the hook returns */
        PyObject *dict = vk_call_hook("cost_analysis", "(O)", program->program);
        size_t count = 0;
        PJRT_NamedValue *costs = dict && PyDict_Check(dict) ? read_costs(dict, &count) : NULL;
        if (costs == NULL || PyErr_Occurred()) {
            error = PyErr_Occurred() ? vk_error_from_python() : VK_OOM();
            free(costs);
        } else if (program->costs == NULL) {
            program->costs = costs;
            program->num_costs = count;
        } else {
            free(costs);
        }
        Py_XDECREF(dict);
    }
    PyGILState_Release(gil);
    args->num_properties = program->num_costs;
    args->properties = program->costs;
    return error;
}

PJRT_Error *vk_Executable_GetCompiledMemoryStats(
    PJRT_Executable_GetCompiledMemoryStats_Args *args)
{
    vk_program *program = args->executable->program;
    PJRT_Executable_GetCompiledMemoryStats_Args stats = {0};
    stats.struct_size = args->struct_size;
    stats.extension_start = args->extension_start;
    stats.executable = args->executable;
    stats.generated_code_size_in_bytes = (int64_t)program->code_bytes;
    for (size_t i = 0; i < program->params.count; i++) {
        int64_t bytes = (int64_t)program->params.specs[i].bytes;
        if (program->params.specs[i].memory_kind == 0)
            stats.argument_size_in_bytes += bytes;
        else
            stats.host_argument_size_in_bytes += bytes;
    }
    for (size_t i = 0; i < program->results.count; i++) {
        int64_t bytes = (int64_t)program->results.specs[i].bytes;
        if (program->results.specs[i].memory_kind == 0)
            stats.output_size_in_bytes += bytes;
        else
            stats.host_output_size_in_bytes += bytes;
    }
    stats.temp_size_in_bytes = (int64_t)program->temp_bytes;
    stats.peak_memory_in_bytes = stats.argument_size_in_bytes +
                                 stats.output_size_in_bytes + stats.temp_size_in_bytes;
    stats.total_size_in_bytes = stats.total_allocation_bytes = stats.peak_memory_in_bytes;
    size_t size = sizeof stats < args->struct_size ? sizeof stats : args->struct_size;
    memcpy(args, &stats, size);
    return NULL;
}
