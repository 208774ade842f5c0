/* Clients, topologies, devices and memories. */
#include <stdio.h>
#include <string.h>

#include "bridge.h"

static const char platform_name[] = "vkore";

const char *const vk_memory_kinds[VK_NUM_KINDS] = {
    "device", "pinned_host", "unpinned_host"};

int vk_kind_index(const char *kind)
{
    for (int i = 0; i < VK_NUM_KINDS; i++)
        if (strcmp(kind, vk_memory_kinds[i]) == 0)
            return i;
    return -1;
}

/* ---- building ---------------------------------------------------------------- */

static char *text_attribute(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    const char *text = value ? PyUnicode_AsUTF8(value) : NULL;
    char *copy = text ? strdup(text) : NULL;
    Py_XDECREF(value);
    return copy;
}

static long long int_attribute(PyObject *object, const char *name)
{
    PyObject *value = PyObject_GetAttrString(object, name);
    long long number = value ? PyLong_AsLongLong(value) : -1;
    Py_XDECREF(value);
    return number;
}

/* Reads config.attributes, a tuple of (name, str | int), into named values. */
static int read_attributes(PyObject *config, PJRT_TopologyDescription *topology)
{
    PyObject *pairs = PyObject_GetAttrString(config, "attributes");
    if (pairs == NULL)
        return -1;
    Py_ssize_t count = PyTuple_Check(pairs) ? PyTuple_GET_SIZE(pairs) : 0;
    topology->attributes = calloc((size_t)count + 1, sizeof *topology->attributes);
    for (Py_ssize_t i = 0; topology->attributes != NULL && i < count; i++) {
        PJRT_NamedValue *out = &topology->attributes[i];
        const char *name;
        PyObject *value;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, i), "sO", &name, &value))
            break;
        out->struct_size = sizeof *out;
        out->name = strdup(name);
        out->name_size = strlen(name);
        if (PyUnicode_Check(value)) {
            out->type = VK_VALUE_STRING;
            out->string_value = strdup(PyUnicode_AsUTF8(value));
            out->value_size = strlen(out->string_value);
        } else {
            out->type = VK_VALUE_INT64;
            out->int64_value = PyLong_AsLongLong(value);
            out->value_size = 1;
        }
        topology->num_attributes++;
    }
    Py_DECREF(pairs);
    return PyErr_Occurred() ? -1 : 0;
}

static PJRT_TopologyDescription *make_topology(PyObject *config, const char *version)
{
    PJRT_TopologyDescription *topology = VK_NEW(PJRT_TopologyDescription);
    long long count = int_attribute(config, "num_devices");
    if (topology == NULL || count < 1)
        return NULL;
    topology->num_devices = (size_t)count;
    topology->platform_version = text_attribute(config, version);
    topology->device_kind = text_attribute(config, "device_kind");
    topology->serialized = text_attribute(config, "serialized");
    if (read_attributes(config, topology) != 0 || topology->platform_version == NULL ||
        topology->device_kind == NULL || topology->serialized == NULL)
        return NULL;
    topology->descriptions = calloc((size_t)count, sizeof *topology->descriptions);
    for (long long i = 0; topology->descriptions != NULL && i < count; i++) {
        PJRT_DeviceDescription *one = VK_NEW(PJRT_DeviceDescription);
        if (one == NULL)
            return NULL;
        one->id = (int32_t)i;
        one->topology = topology;
        one->name_size = (size_t)snprintf(one->name, sizeof one->name,
                                          "VkoreDevice(id=%lld)", i);
        topology->descriptions[i] = one;
    }
    return topology->descriptions ? topology : NULL;
}

static PJRT_Device *make_device(PJRT_Client *client, int32_t id, int64_t limit)
{
    PJRT_Device *device = VK_NEW(PJRT_Device);
    if (device == NULL)
        return NULL;
    device->client = client;
    device->description = client->topology->descriptions[id];
    device->limit = limit;
    for (int kind = 0; kind < VK_NUM_KINDS; kind++) {
        PJRT_Memory *memory = &device->memory[kind];
        memory->id = id * VK_NUM_KINDS + kind;
        memory->kind = kind;
        memory->device = device;
        memory->name_size =
            (size_t)snprintf(memory->name, sizeof memory->name,
                             "VkoreMemory(device=%d, kind=%s)", id, vk_memory_kinds[kind]);
        device->memories[kind] = memory;
    }
    return device;
}

static PJRT_Client *make_client(PyObject *config)
{
    PJRT_Client *client = VK_NEW(PJRT_Client);
    if (client == NULL || (client->topology = make_topology(config, "platform_version")) == NULL)
        return NULL;
    size_t count = client->topology->num_devices;
    long long limit = int_attribute(config, "dram_bytes");
    client->devices = calloc(count, sizeof *client->devices);
    client->memories = calloc(count * VK_NUM_KINDS, sizeof *client->memories);
    if (limit < 0 || client->devices == NULL || client->memories == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        PJRT_Device *device = make_device(client, (int32_t)i, limit);
        if (device == NULL)
            return NULL;
        client->devices[i] = device;
        for (int kind = 0; kind < VK_NUM_KINDS; kind++)
            client->memories[i * VK_NUM_KINDS + (size_t)kind] = &device->memory[kind];
    }
    Py_INCREF(config);
    client->config = config;
    return client;
}

/* Gives client options to the configure hook as a dict of strings and ints. */
static PyObject *configure(const PJRT_NamedValue *options, size_t count)
{
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < count; i++) {
        const PJRT_NamedValue *option = &options[i];
        PyObject *name = PyUnicode_FromStringAndSize(option->name,
                                                     (Py_ssize_t)option->name_size);
        PyObject *value = NULL;
        if (option->type == VK_VALUE_STRING)
            value = PyUnicode_FromStringAndSize(option->string_value,
                                                (Py_ssize_t)option->value_size);
        else if (option->type == VK_VALUE_INT64)
            value = PyLong_FromLongLong(option->int64_value);
        else if (option->type == VK_VALUE_FLOAT)
            value = PyFloat_FromDouble((double)option->float_value);
        else if (option->type == VK_VALUE_BOOL)
            value = PyBool_FromLong(option->bool_value);
        else
            value = Py_NewRef(Py_None);
        if (name != NULL && value != NULL)
            PyDict_SetItem(dict, name, value);
        Py_XDECREF(name);
        Py_XDECREF(value);
    }
    return dict == NULL || PyErr_Occurred() ? NULL
                                            : vk_call_hook("configure", "(N)", dict);
}

static PJRT_Error *python_or_memory(void)
{
    return PyErr_Occurred() ? vk_error_from_python() : VK_OOM();
}

PJRT_Error *vk_Client_Create(PJRT_Client_Create_Args *args)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *config = configure(args->create_options, args->num_options);
    args->client = config ? make_client(config) : NULL;
    PJRT_Error *error = args->client ? NULL : python_or_memory();
    Py_XDECREF(config);
    PyGILState_Release(gil);
    return error;
}

/* Clients are few and small, and late handles may still point into them: keep them. */
PJRT_Error *vk_Client_Destroy(PJRT_Client_Destroy_Args *args)
{
    (void)args;
    return NULL;
}

/* Its version differs from the client's: where they are equal, JAX compiles for the
 * topology through the live client, and jaxlib holds the GIL while it waits for the
 * compiling thread, which needs it (PyClient::Compile in jaxlib 0.10 to 0.12). */
PJRT_Error *vk_TopologyDescription_Create(PJRT_TopologyDescription_Create_Args *args)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *config = configure(args->create_options, args->num_options);
    args->topology = config ? make_topology(config, "topology_version") : NULL;
    PJRT_Error *error = args->topology ? NULL : python_or_memory();
    Py_XDECREF(config);
    PyGILState_Release(gil);
    return error;
}

PJRT_Error *vk_TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args *args)
{
    (void)args;
    return NULL;
}

/* ---- getters ----------------------------------------------------------------- */

#define GIVE_TEXT(FIELD, SIZE_FIELD, TEXT) \
    do {                                   \
        args->FIELD = (TEXT);              \
        args->SIZE_FIELD = strlen(TEXT);   \
        return NULL;                       \
    } while (0)

PJRT_Error *vk_Client_PlatformName(PJRT_Client_PlatformName_Args *args)
{
    GIVE_TEXT(platform_name, platform_name_size, platform_name);
}

PJRT_Error *vk_Client_PlatformVersion(PJRT_Client_PlatformVersion_Args *args)
{
    GIVE_TEXT(platform_version, platform_version_size,
              args->client->topology->platform_version);
}

PJRT_Error *vk_Client_ProcessIndex(PJRT_Client_ProcessIndex_Args *args)
{
    args->process_index = 0;
    return NULL;
}

PJRT_Error *vk_Client_Devices(PJRT_Client_Devices_Args *args)
{
    args->devices = args->client->devices;
    args->num_devices = args->client->topology->num_devices;
    return NULL;
}

PJRT_Error *vk_Client_AddressableDevices(PJRT_Client_AddressableDevices_Args *args)
{
    args->addressable_devices = args->client->devices;
    args->num_addressable_devices = args->client->topology->num_devices;
    return NULL;
}

static PJRT_Error *lookup(PJRT_Client *client, int32_t id, PJRT_Device **out)
{
    size_t count = client->topology->num_devices;
    if (id < 0 || (size_t)id >= count)
        return vk_error(VK_INVALID_ARGUMENT,
                        "there is no device %d; vkore has devices 0 to %zu "
                        "(VKORE_NUM_DEVICES sets their number)",
                        id, count - 1);
    *out = client->devices[id];
    return NULL;
}

PJRT_Error *vk_Client_LookupDevice(PJRT_Client_LookupDevice_Args *args)
{
    return lookup(args->client, args->id, &args->device);
}

PJRT_Error *vk_Client_LookupAddressableDevice(
    PJRT_Client_LookupAddressableDevice_Args *args)
{
    return lookup(args->client, args->local_hardware_id, &args->addressable_device);
}

PJRT_Error *vk_Client_AddressableMemories(PJRT_Client_AddressableMemories_Args *args)
{
    args->addressable_memories = args->client->memories;
    args->num_addressable_memories = args->client->topology->num_devices * VK_NUM_KINDS;
    return NULL;
}

/* Replica r, partition p runs on device r * num_partitions + p. */
PJRT_Error *vk_Client_DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args *args)
{
    size_t wanted = (size_t)args->num_replicas * (size_t)args->num_partitions;
    if (wanted > args->default_assignment_size)
        return vk_error(VK_INVALID_ARGUMENT, "assignment needs %zu places, has %zu", wanted,
                        args->default_assignment_size);
    for (size_t i = 0; i < wanted; i++)
        args->default_assignment[i] = (int32_t)i;
    return NULL;
}

/* News of other processes (JAX's coordination service): no program here waits for one.
 * jaxlib ends the process when this fails. */
PJRT_Error *vk_Client_UpdateGlobalProcessInfo(PJRT_Client_UpdateGlobalProcessInfo_Args *args)
{
    (void)args;
    return NULL;
}

PJRT_Error *vk_Client_TopologyDescription(PJRT_Client_TopologyDescription_Args *args)
{
    args->topology = args->client->topology;
    return NULL;
}

PJRT_Error *vk_TopologyDescription_PlatformName(
    PJRT_TopologyDescription_PlatformName_Args *args)
{
    GIVE_TEXT(platform_name, platform_name_size, platform_name);
}

PJRT_Error *vk_TopologyDescription_PlatformVersion(
    PJRT_TopologyDescription_PlatformVersion_Args *args)
{
    GIVE_TEXT(platform_version, platform_version_size, args->topology->platform_version);
}

PJRT_Error *vk_TopologyDescription_GetDeviceDescriptions(
    PJRT_TopologyDescription_GetDeviceDescriptions_Args *args)
{
    args->descriptions = args->topology->descriptions;
    args->num_descriptions = args->topology->num_devices;
    return NULL;
}

static void nothing_to_delete(void *holder)
{
    (void)holder;
}

PJRT_Error *vk_TopologyDescription_Serialize(PJRT_TopologyDescription_Serialize_Args *args)
{
    args->serialized_topology = args->topology;
    args->serialized_topology_deleter = nothing_to_delete;
    GIVE_TEXT(serialized_bytes, serialized_bytes_size, args->topology->serialized);
}

PJRT_Error *vk_TopologyDescription_Attributes(PJRT_TopologyDescription_Attributes_Args *args)
{
    args->attributes = args->topology->attributes;
    args->num_attributes = args->topology->num_attributes;
    return NULL;
}

PJRT_Error *vk_DeviceDescription_Id(PJRT_DeviceDescription_Id_Args *args)
{
    args->id = args->device_description->id;
    return NULL;
}

PJRT_Error *vk_DeviceDescription_ProcessIndex(PJRT_DeviceDescription_ProcessIndex_Args *args)
{
    args->process_index = 0;
    return NULL;
}

PJRT_Error *vk_DeviceDescription_Attributes(PJRT_DeviceDescription_Attributes_Args *args)
{
    args->attributes = args->device_description->topology->attributes;
    args->num_attributes = args->device_description->topology->num_attributes;
    return NULL;
}

PJRT_Error *vk_DeviceDescription_Kind(PJRT_DeviceDescription_Kind_Args *args)
{
    GIVE_TEXT(device_kind, device_kind_size,
              args->device_description->topology->device_kind);
}

PJRT_Error *vk_DeviceDescription_DebugString(PJRT_DeviceDescription_DebugString_Args *args)
{
    args->debug_string = args->device_description->name;
    args->debug_string_size = args->device_description->name_size;
    return NULL;
}

PJRT_Error *vk_DeviceDescription_ToString(PJRT_DeviceDescription_ToString_Args *args)
{
    args->to_string = args->device_description->name;
    args->to_string_size = args->device_description->name_size;
    return NULL;
}

PJRT_Error *vk_Device_GetDescription(PJRT_Device_GetDescription_Args *args)
{
    args->device_description = args->device->description;
    return NULL;
}

PJRT_Error *vk_Device_IsAddressable(PJRT_Device_IsAddressable_Args *args)
{
    args->is_addressable = true;
    return NULL;
}

PJRT_Error *vk_Device_LocalHardwareId(PJRT_Device_LocalHardwareId_Args *args)
{
    args->local_hardware_id = args->device->description->id;
    return NULL;
}

PJRT_Error *vk_Device_GetAttributes(PJRT_Device_GetAttributes_Args *args)
{
    args->attributes = args->device->description->topology->attributes;
    args->num_attributes = args->device->description->topology->num_attributes;
    args->device_attributes = args->device;
    args->attributes_deleter = nothing_to_delete;
    return NULL;
}

PJRT_Error *vk_Device_AddressableMemories(PJRT_Device_AddressableMemories_Args *args)
{
    args->memories = args->device->memories;
    args->num_memories = VK_NUM_KINDS;
    return NULL;
}

PJRT_Error *vk_Device_DefaultMemory(PJRT_Device_DefaultMemory_Args *args)
{
    args->memory = &args->device->memory[0];
    return NULL;
}

PJRT_Error *vk_Memory_Id(PJRT_Memory_Id_Args *args)
{
    args->id = args->memory->id;
    return NULL;
}

PJRT_Error *vk_Memory_Kind(PJRT_Memory_Kind_Args *args)
{
    GIVE_TEXT(kind, kind_size, vk_memory_kinds[args->memory->kind]);
}

PJRT_Error *vk_Memory_Kind_Id(PJRT_Memory_Kind_Id_Args *args)
{
    args->kind_id = args->memory->kind;
    return NULL;
}

PJRT_Error *vk_Memory_DebugString(PJRT_Memory_DebugString_Args *args)
{
    args->debug_string = args->memory->name;
    args->debug_string_size = args->memory->name_size;
    return NULL;
}

PJRT_Error *vk_Memory_ToString(PJRT_Memory_ToString_Args *args)
{
    args->to_string = args->memory->name;
    args->to_string_size = args->memory->name_size;
    return NULL;
}

PJRT_Error *vk_Memory_AddressableByDevices(PJRT_Memory_AddressableByDevices_Args *args)
{
    args->devices = &args->memory->device;
    args->num_devices = 1;
    return NULL;
}
