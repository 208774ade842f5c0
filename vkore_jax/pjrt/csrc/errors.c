/* Errors and events. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bridge.h"

PJRT_Event vk_ready = {NULL};

static PJRT_Error out_of_memory = {VK_RESOURCE_EXHAUSTED, 1, 0, {0}};

static PJRT_Error *error_from_text(int32_t code, const char *text, size_t size)
{
    PJRT_Error *error = malloc(sizeof *error + size + 1);
    if (error == NULL)
        return vk_error_ref(&out_of_memory);
    error->code = code;
    atomic_init(&error->refs, 1);
    error->size = size;
    memcpy(error->message, text, size);
    error->message[size] = 0;
    return error;
}

PJRT_Error *vk_error(int32_t code, const char *format, ...)
{
    char text[4096];
    va_list list;
    va_start(list, format);
    int size = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (size >= (int)sizeof text)
        size = sizeof text - 1;
    return error_from_text(code, text, size < 0 ? 0 : (size_t)size);
}

PJRT_Error *vk_error_ref(PJRT_Error *error)
{
    if (error != NULL)
        atomic_fetch_add(&error->refs, 1);
    return error;
}

void vk_error_unref(PJRT_Error *error)
{
    if (error != NULL && atomic_fetch_sub(&error->refs, 1) == 1)
        free(error);
}

/* Turns the pending Python exception into an error and clears it.  GIL held. */
PJRT_Error *vk_error_from_python(void)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace != NULL)
        PyException_SetTraceback(value, trace);
    PJRT_Error *error = NULL;
    PyObject *pair = NULL;
    if (value != NULL && vk_hooks != NULL)
        pair = PyObject_CallMethod(vk_hooks, "describe_error", "O", value);
    if (pair != NULL) {
        int code;
        const char *text;
        Py_ssize_t size;
        if (PyArg_ParseTuple(pair, "is#", &code, &text, &size))
            error = error_from_text(code, text, (size_t)size);
        Py_DECREF(pair);
    }
    if (error == NULL) {
        PyErr_Clear();
        error = vk_error(VK_INTERNAL, "%s (and it could not be described)",
                         value ? Py_TYPE(value)->tp_name : "unknown exception");
    }
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return error;
}

PJRT_Error *vk_Error_Destroy(PJRT_Error_Destroy_Args *args)
{
    vk_error_unref(args->error);
    return NULL;
}

PJRT_Error *vk_Error_Message(PJRT_Error_Message_Args *args)
{
    args->message = args->error->message;
    args->message_size = args->error->size;
    return NULL;
}

PJRT_Error *vk_Error_GetCode(PJRT_Error_GetCode_Args *args)
{
    args->code = args->error->code;
    return NULL;
}

/* Returns a ready event; one that carries its own reference to `error` if there is one. */
PJRT_Event *vk_event(PJRT_Error *error)
{
    if (error == NULL)
        return &vk_ready;
    PJRT_Event *event = VK_NEW(PJRT_Event);
    if (event == NULL)
        return &vk_ready;
    event->error = vk_error_ref(error);
    return event;
}

PJRT_Error *vk_Event_Destroy(PJRT_Event_Destroy_Args *args)
{
    if (args->event != &vk_ready) {
        vk_error_unref(args->event->error);
        free(args->event);
    }
    return NULL;
}

PJRT_Error *vk_Event_IsReady(PJRT_Event_IsReady_Args *args)
{
    args->is_ready = true;
    return NULL;
}

PJRT_Error *vk_Event_Error(PJRT_Event_Error_Args *args)
{
    return vk_error_ref(args->event->error);
}

PJRT_Error *vk_Event_Await(PJRT_Event_Await_Args *args)
{
    return vk_error_ref(args->event->error);
}

PJRT_Error *vk_Event_OnReady(PJRT_Event_OnReady_Args *args)
{
    args->callback(vk_error_ref(args->event->error), args->user_arg);
    return NULL;
}
