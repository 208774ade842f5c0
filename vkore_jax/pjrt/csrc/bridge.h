/* Internal objects of the bridge: what stands behind every PJRT handle.
 *
 * Rules that hold in every file here:
 *  - No getter and no destroy runs Python bytecode or needs the GIL.  References to
 *    Python objects that die there go to the deferred list (defer.c).
 *  - The lock (vk_lock) guards buffer states.  It is a leaf: never call Python, never take
 *    the GIL while holding it.
 *  - Handles that PJRT keeps for ever (devices, memories, clients) are never freed.
 */
#ifndef VKORE_BRIDGE_H
#define VKORE_BRIDGE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdatomic.h>

#include "abi.h"

enum { VK_MAX_RANK = 32, VK_NUM_KINDS = 3, VK_INLINE_RANK = 6 };

struct PJRT_Error {
    int32_t code;
    atomic_int refs;
    size_t size;
    char message[];
};

/* Every event is ready when it is handed out; one without error is one immortal object. */
struct PJRT_Event {
    PJRT_Error *error;
};

struct PJRT_DeviceDescription {
    int32_t id;
    size_t name_size;
    char name[48];
    PJRT_TopologyDescription *topology;
};

struct PJRT_TopologyDescription {
    size_t num_devices;
    PJRT_DeviceDescription **descriptions;
    char *platform_version, *device_kind, *serialized;
    PJRT_NamedValue *attributes; /* of every device description */
    size_t num_attributes;
};

struct PJRT_Memory {
    int32_t id;
    int kind; /* index into vk_memory_kinds; 0 is the chip's DRAM */
    PJRT_Device *device;
    size_t name_size;
    char name[64];
};

struct PJRT_Device {
    PJRT_Client *client;
    PJRT_DeviceDescription *description;
    PJRT_Memory memory[VK_NUM_KINDS];
    PJRT_Memory *memories[VK_NUM_KINDS];
    int64_t limit; /* bytes of DRAM */
    atomic_llong in_use, peak, num_allocs, largest;
};

struct PJRT_Client {
    PJRT_TopologyDescription *topology;
    PJRT_Device **devices;
    PJRT_Memory **memories;
    PyObject *config; /* what the configure hook returned */
};

/* 64-byte aligned host memory that a numpy array may outlive its buffer with. */
typedef struct vk_block {
    atomic_int refs;
    size_t bytes;
    unsigned char *data;
} vk_block;

/* What one execution returned (but its small results), before anybody asked for it: inner
 * arrays are made of all of it at once, when the first is needed (results.c).  Guarded by
 * vk_lock. */
typedef struct vk_results {
    PyObject *outcome;  /* NULL once the arrays are being made */
    PyObject *handlers; /* argument of outcome.consume_with_handlers */
    size_t count, live; /* live: members that still hold their bytes here */
    int pins;           /* threads and lists that look at this */
    pthread_t maker;    /* of the arrays, when outcome is NULL */
    bool queued;
    struct vk_results *next; /* in the list of those that lost some members */
    PJRT_Buffer *members[];
} vk_results;

/* A device buffer.  Its bytes are in `block` (came from the host or from a copy, or are a
 * small result), in `array` (an array of the inner client), in both when the array aliases
 * the block, or in `results`.  Structs come from a pool and go back to it. */
struct PJRT_Buffer {
    PJRT_Device *device;
    PJRT_Memory *memory;
    PyObject *array;
    vk_block *block;
    vk_results *results;
    size_t index; /* in results->members */
    void *data;   /* NULL until somebody asks where the array lies */
    size_t bytes; /* host bytes = accounted bytes; sub-byte elements take one byte */
    PJRT_Error *error;
    int32_t external; /* views that outlive Delete */
    bool deleted, destroyed, accounted;
    int32_t type;
    size_t num_dims;
    int64_t *dims; /* `few`, or memory of their own */
    int64_t few[VK_INLINE_RANK];
    PJRT_Buffer *next; /* in the pool */
};

typedef struct {
    int32_t type;
    int memory_kind;
    size_t num_dims, bytes;
    int64_t *dims;
    char *layout;
    char *sharding;
    size_t layout_size, sharding_size;
} vk_spec;

typedef struct {
    size_t count;
    vk_spec *specs;
    const char **kinds, **shardings;
    size_t *kind_sizes, *sharding_sizes;
    PJRT_Layouts_MemoryLayout **layouts;
} vk_signature;

/* A parameter or result that goes through a table (table.c). */
typedef struct {
    size_t number, bytes;
    size_t offset; /* in the table's values */
} vk_small;

typedef struct vk_table vk_table;

/* A compiled program, shared by Executable and LoadedExecutable handles. */
typedef struct {
    atomic_int refs;
    PyObject *program; /* the Python object that lazy queries go to */
    PyObject *execute; /* callable: list of inner arrays -> list of inner arrays */
    PyObject *launch;  /* the same -> what has consume_with_handlers, or None; where small
                        * ones exist it takes a table's address and the large ones, and
                        * returns the large ones */
    PyObject *handlers;
    PyObject *token;   /* inner array that stands for any token argument, or None */
    PJRT_Device *device;
    vk_signature params, results;
    bool *donated, *consumed; /* per parameter: for JAX; for the inner executable */
    bool *small_params, *small_results;
    bool calls_host; /* runs functions of the user, whose errors are told at once */
    vk_small *loads, *stores; /* the small ones, in order */
    size_t num_loads, num_stores, load_bytes;
    vk_table *tables; /* idle ones; guarded by the GIL */
    size_t result_bytes, temp_bytes, code_bytes, num_dims_total;
    int32_t *result_types;
    int64_t *result_dims;
    size_t *result_ranks;
    char *name, *fingerprint, *options, *assignment, *text;
    size_t name_size, fingerprint_size, options_size, assignment_size, text_size;
    PJRT_NamedValue *costs;
    size_t num_costs;
    pthread_mutex_t lazy;
} vk_program;

struct PJRT_Executable {
    vk_program *program;
};

struct PJRT_LoadedExecutable {
    vk_program *program;
    bool deleted;
    PJRT_LogicalDeviceIds logical;
};

struct PJRT_Layouts_MemoryLayout {
    bool owned; /* by the program when false */
    size_t size;
    char *text;
};

/* errors.c */
extern PJRT_Event vk_ready;
PJRT_Error *vk_error(int32_t code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
PJRT_Error *vk_error_ref(PJRT_Error *error);
void vk_error_unref(PJRT_Error *error);
PJRT_Error *vk_error_from_python(void);
PJRT_Event *vk_event(PJRT_Error *error);

/* defer.c */
extern pthread_mutex_t vk_lock;
extern PyTypeObject vk_block_type;
void vk_defer_decref(PyObject *object, size_t bytes);
void vk_urge(size_t bytes);
void vk_drain(void);
vk_block *vk_block_new(size_t bytes);
void vk_block_unref(vk_block *block);
PyObject *vk_block_exporter(vk_block *block);

/* device.c */
extern const char *const vk_memory_kinds[VK_NUM_KINDS];
int vk_kind_index(const char *kind);

/* memory.c */
void vk_account(PJRT_Buffer *buffer);
void vk_unaccount(PJRT_Buffer *buffer);
PJRT_Error *vk_check_room(const PJRT_Device *device, size_t bytes, size_t lasting,
                          const char *what);

/* buffer.c */
typedef struct {
    size_t bytes, num_dims;
    int32_t type;
    int64_t dims[VK_INLINE_RANK]; /* the first ones */
} vk_resident;
extern const char *const vk_type_names[VK_TYPE_COUNT];
size_t vk_largest_buffers(const PJRT_Device *device, vk_resident *out, size_t room);
size_t vk_item_size(int32_t type);
bool vk_is_packed(int32_t type);
PJRT_Buffer *vk_buffer_new(PJRT_Memory *memory, int32_t type, size_t num_dims,
                           const int64_t *dims);
void vk_buffer_free(PJRT_Buffer *buffer);
void vk_buffer_release(PJRT_Buffer *buffer);
PJRT_Error *vk_buffer_data(PJRT_Buffer *buffer, void **data, PyObject **keep);
PyObject *vk_buffer_array(PJRT_Buffer *buffer, bool fresh);

/* results.c */
PJRT_Error *vk_results_new(PyObject *outcome, PyObject *handlers, size_t count,
                           PJRT_Buffer **buffers);
void vk_results_leave(PJRT_Buffer *buffer);
void vk_results_unpack(PJRT_Buffer *buffer);
bool vk_results_waiting(void);
void vk_results_sweep(void);

/* table.c */
PyObject *vk_table_functions(void);
void vk_tables_free(vk_program *program);
PJRT_Error *vk_table_take(vk_program *program, PJRT_Buffer *const *inputs, vk_table **out);
void vk_table_give(vk_program *program, vk_table *table);
PyObject *vk_table_address(const vk_table *table);
PJRT_Error *vk_table_deliver(vk_table *table, PyObject *outcome, PJRT_Buffer **outputs);

/* views.c */
PyObject *vk_export_buffers(PyObject *module, PyObject *args);

/* program.c */
extern PyObject *vk_hooks;
vk_program *vk_program_ref(vk_program *program);
void vk_program_unref(vk_program *program);
PyObject *vk_call_hook(const char *name, const char *format, ...);

/* extension.c */
extern PJRT_Shardings_Extension vk_extensions;

/* api.c */
extern PJRT_Api *const vk_api;

#define VK_NEW(TYPE) ((TYPE *)calloc(1, sizeof(TYPE)))
#define VK_OOM()                                                                     \
    vk_error(VK_RESOURCE_EXHAUSTED, "the host (not the chip) is out of memory: free " \
                                    "some, or run fewer processes")

#endif
