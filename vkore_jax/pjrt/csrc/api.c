/* The function table, and the Python module that hands it to jaxlib. */
#include <string.h>

#include "bridge.h"

/* Slots that are not implemented say so by name. */
#define VK_UNIMPLEMENTED_SLOT(NAME)                                                   \
    static PJRT_Error *missing_##NAME(void *args)                                     \
    {                                                                                 \
        (void)args;                                                                   \
        return vk_error(VK_UNIMPLEMENTED, "vkore does not implement PJRT_" #NAME);    \
    }
VK_SLOTS(VK_NOTHING, VK_UNIMPLEMENTED_SLOT)

#define VK_ENTRY(NAME) .NAME = (vk_slot *)(void *)vk_##NAME,
#define VK_MISSING_ENTRY(NAME) .NAME = missing_##NAME,

static PJRT_Error *unknown_slot(void *args)
{
    (void)args;
    return vk_error(VK_UNIMPLEMENTED,
                    "vkore implements PJRT %d.%d, which does not have this function",
                    VK_API_MAJOR, VK_API_MINOR);
}

/* The table ends where `struct_size` says.  A caller that looks further finds functions
 * all the same, not whatever lies behind. */
enum { BEYOND = 64 };
static struct {
    PJRT_Api api;
    vk_slot *beyond[BEYOND];
} table = {
    .api = {.struct_size = sizeof(PJRT_Api),
            .extension_start = &vk_extensions,
            .version = {sizeof(PJRT_Api_Version), NULL, VK_API_MAJOR, VK_API_MINOR},
            VK_SLOTS(VK_ENTRY, VK_MISSING_ENTRY)},
    .beyond = {[0 ... BEYOND - 1] = unknown_slot}};
PJRT_Api *const vk_api = &table.api;

static int64_t stablehlo_version[3];
static PJRT_NamedValue attributes[2];

PJRT_Error *vk_Plugin_Initialize(PJRT_Plugin_Initialize_Args *args)
{
    (void)args;
    return NULL;
}

PJRT_Error *vk_Plugin_Attributes(PJRT_Plugin_Attributes_Args *args)
{
    args->attributes = attributes;
    args->num_attributes = 2;
    return NULL;
}

static void set_attributes(void)
{
    attributes[0] = (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                                      .name = "xla_version",
                                      .name_size = strlen("xla_version"),
                                      .type = VK_VALUE_INT64,
                                      .int64_value = 2,
                                      .value_size = 1};
    attributes[1] = (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                                      .name = "stablehlo_current_version",
                                      .name_size = strlen("stablehlo_current_version"),
                                      .type = VK_VALUE_INT64_LIST,
                                      .int64_array_value = stablehlo_version,
                                      .value_size = 3};
}

PyDoc_STRVAR(install_doc, "install(hooks, stablehlo_version, /)\n--\n\n"
                          "Set the object whose methods the bridge calls, and return the "
                          "PJRT_Api capsule.");
static PyObject *install(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *hooks;
    long long major, minor, patch;
    if (!PyArg_ParseTuple(args, "O(LLL)", &hooks, &major, &minor, &patch))
        return NULL;
    stablehlo_version[0] = major;
    stablehlo_version[1] = minor;
    stablehlo_version[2] = patch;
    set_attributes();
    Py_INCREF(hooks);
    Py_XSETREF(vk_hooks, hooks);
    return PyCapsule_New(vk_api, "pjrt_c_api", NULL);
}

static PJRT_Error *ignore(void *args)
{
    (void)args;
    return NULL;
}

PyDoc_STRVAR(shut_down_doc,
             "shut_down()\n--\n\n"
             "Make every destroy a no-op: after this the interpreter may be gone when\n"
             "jaxlib destroys its last handles.  The process is about to end, so nothing\n"
             "needs to be freed.  jaxlib reads the slots at each call.");
static PyObject *shut_down(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    vk_api->Buffer_Destroy = ignore;
    vk_api->Buffer_Delete = ignore;
    vk_api->Buffer_DecreaseExternalReferenceCount = ignore;
    vk_api->Executable_Destroy = ignore;
    vk_api->LoadedExecutable_Destroy = ignore;
    vk_api->LoadedExecutable_Delete = ignore;
    vk_api->Client_Destroy = ignore;
    vk_api->TopologyDescription_Destroy = ignore;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(drain_doc, "drain()\n--\n\nRelease what destroyed buffers still hold.");
static PyObject *drain(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    vk_drain();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(functions_doc, "functions()\n--\n\n"
             "Return the functions that programs of the inner client call, by name.");
static PyObject *functions(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return vk_table_functions();
}

PyDoc_STRVAR(abi_doc, "abi()\n--\n\nReturn (major, minor, number of slots).");
static PyObject *abi(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return Py_BuildValue("iii", VK_API_MAJOR, VK_API_MINOR,
                         (int)((sizeof *vk_api - offsetof(PJRT_Api, Error_Destroy)) /
                               sizeof(vk_slot *)));
}

PyDoc_STRVAR(export_buffers_doc,
             "export_buffers(type, reader, /)\n--\n\n"
             "Let arrays of a type export what reader(array) exports; where that is None,\n"
             "what they exported before.");

static PyMethodDef methods[] = {
    {"install", install, METH_VARARGS, install_doc},
    {"shut_down", shut_down, METH_NOARGS, shut_down_doc},
    {"drain", drain, METH_NOARGS, drain_doc},
    {"abi", abi, METH_NOARGS, abi_doc},
    {"export_buffers", vk_export_buffers, METH_VARARGS, export_buffers_doc},
    {"functions", functions, METH_NOARGS, functions_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "vkore_jax.pjrt._bridge",
    .m_doc = "The PJRT C API of the vkore plugin; see csrc/bridge.h.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__bridge(void)
{
    if (PyType_Ready(&vk_block_type) < 0)
        return NULL;
    PyObject *module = PyModule_Create(&module_def);
    if (module != NULL && PyModule_AddObjectRef(module, "Block",
                                                (PyObject *)&vk_block_type) < 0)
        Py_CLEAR(module);
    return module;
}
