/* The buffer protocol of JAX's arrays: `memoryview(x)` and what else asks for it.
 *
 * jaxlib's arrays export their bytes when they lie on the CPU and refuse otherwise.  An
 * array of a chip is read into host memory first, as NumPy does it; the type has no other
 * place to say so than its slot. */
#include "bridge.h"

static getbufferproc original;
static PyObject *reader; /* array -> what exports its values, or None: not ours */

static int export(PyObject *self, Py_buffer *view, int flags)
{
    view->obj = NULL;
    PyObject *values = PyObject_CallOneArg(reader, self);
    if (values == NULL)
        return -1;
    int result = values == Py_None ? original(self, view, flags)
                                   : PyObject_GetBuffer(values, view, flags);
    Py_DECREF(values);
    return result;
}

PyObject *vk_export_buffers(PyObject *module, PyObject *args)
{
    (void)module;
    PyTypeObject *type;
    PyObject *function;
    if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &type, &function))
        return NULL;
    if (type->tp_as_buffer == NULL || type->tp_as_buffer->bf_getbuffer == NULL) {
        PyErr_Format(PyExc_TypeError, "%s has no buffer protocol", type->tp_name);
        return NULL;
    }
    Py_INCREF(function);
    Py_XSETREF(reader, function);
    if (type->tp_as_buffer->bf_getbuffer != export) {
        original = type->tp_as_buffer->bf_getbuffer;
        type->tp_as_buffer->bf_getbuffer = export;
    }
    Py_RETURN_NONE;
}
