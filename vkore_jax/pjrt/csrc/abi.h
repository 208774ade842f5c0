/* The PJRT C API as this plugin speaks it: one table of argument structs, one of slots.
 *
 * Each struct is declared once, with the size that the interface demands; a mismatch
 * stops the build.  "Size" is the offset of the last field plus its size, as PJRT counts
 * it (trailing padding excluded).  Fields that this plugin ignores are void pointers.
 */
#ifndef VKORE_ABI_H
#define VKORE_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The lowest interface version that has every slot jaxlib calls: a higher minor would
 * promise features (error payloads, parameter memory kinds) that nobody needs here. */
enum { VK_API_MAJOR = 0, VK_API_MINOR = 98 };

typedef struct PJRT_Error PJRT_Error;
typedef struct PJRT_Event PJRT_Event;
typedef struct PJRT_Client PJRT_Client;
typedef struct PJRT_Device PJRT_Device;
typedef struct PJRT_DeviceDescription PJRT_DeviceDescription;
typedef struct PJRT_Memory PJRT_Memory;
typedef struct PJRT_TopologyDescription PJRT_TopologyDescription;
typedef struct PJRT_Buffer PJRT_Buffer;
typedef struct PJRT_Executable PJRT_Executable;
typedef struct PJRT_LoadedExecutable PJRT_LoadedExecutable;
typedef struct PJRT_ExecuteContext PJRT_ExecuteContext;
typedef struct PJRT_Layouts_MemoryLayout PJRT_Layouts_MemoryLayout;
typedef struct { int32_t replica; int32_t partition; } PJRT_LogicalDeviceIds;

typedef void vk_deleter(void *holder);
typedef void vk_on_ready(PJRT_Error *error, void *user_arg);
typedef PJRT_Error *vk_slot(void *args);

/* PJRT_Buffer_Type, PJRT_NamedValue_Type, layout and extension kinds, absl codes. */
enum { VK_TYPE_PRED = 1, VK_TYPE_S4 = 21, VK_TYPE_U4 = 22, VK_TYPE_TOKEN = 23,
       VK_TYPE_S2 = 24, VK_TYPE_U2 = 25, VK_TYPE_F4E2M1FN = 29, VK_TYPE_COUNT = 30 };
enum { VK_VALUE_STRING = 0, VK_VALUE_INT64 = 1, VK_VALUE_INT64_LIST = 2,
       VK_VALUE_FLOAT = 3, VK_VALUE_BOOL = 4 };
enum { VK_LAYOUT_TILED = 0, VK_LAYOUT_STRIDES = 1 };
enum { VK_EXT_LAYOUTS = 4, VK_EXT_SHARDINGS = 19 };
enum { VK_CANCELLED = 1, VK_UNKNOWN = 2, VK_INVALID_ARGUMENT = 3, VK_NOT_FOUND = 5,
       VK_RESOURCE_EXHAUSTED = 8, VK_FAILED_PRECONDITION = 9, VK_UNIMPLEMENTED = 12,
       VK_INTERNAL = 13 };

#define ABI_RAW(NAME, SIZE, LAST, ...)                                               \
    typedef struct NAME { __VA_ARGS__ } NAME;                                        \
    _Static_assert(offsetof(NAME, LAST) + sizeof(((NAME *)0)->LAST) == (SIZE), #NAME);
#define ABI(NAME, SIZE, LAST, ...)                                                   \
    ABI_RAW(NAME, SIZE, LAST, size_t struct_size; void *extension_start; __VA_ARGS__)

ABI_RAW(PJRT_Extension_Base, 24, next,
    size_t struct_size; int32_t type; void *next;)
ABI(PJRT_Api_Version, 24, minor_version,
    int32_t major_version; int32_t minor_version;)
ABI(PJRT_NamedValue, 56, value_size,
    const char *name; size_t name_size; int32_t type;
    union { const char *string_value; int64_t int64_value; const int64_t
      *int64_array_value; float float_value; bool bool_value; };
    size_t value_size;)
ABI(PJRT_Program, 48, format_size,
    char *code; size_t code_size; const char *format; size_t format_size;)
ABI(PJRT_ExecuteOptions, 144, num_hlo_output_callbacks,
    void *send_callbacks; void *recv_callbacks; size_t num_send_ops;
    size_t num_recv_ops; int32_t launch_id; const int64_t *non_donatable_input_indices;
    size_t num_non_donatable_input_indices; PJRT_ExecuteContext *context;
    const char *call_location; size_t num_tasks; void *task_ids; void *incarnation_ids;
    void *multi_slice_config; bool use_major_to_minor_data_layout_for_callbacks;
    void *hlo_output_callbacks; size_t num_hlo_output_callbacks;)
ABI(PJRT_Buffer_MemoryLayout_Tiled, 56, num_tiles,
    const int64_t *minor_to_major; size_t minor_to_major_size; const int64_t *tile_dims;
    const size_t *tile_dim_sizes; size_t num_tiles;)
ABI(PJRT_Buffer_MemoryLayout_Strides, 32, num_byte_strides,
    const int64_t *byte_strides; size_t num_byte_strides;)
ABI(PJRT_Buffer_MemoryLayout, 76, type,
    union { PJRT_Buffer_MemoryLayout_Tiled tiled; PJRT_Buffer_MemoryLayout_Strides
      strides; };
    int32_t type;)
ABI(PJRT_Error_Destroy_Args, 24, error,
    PJRT_Error *error;)
ABI(PJRT_Error_Message_Args, 40, message_size,
    PJRT_Error *error; const char *message; size_t message_size;)
ABI(PJRT_Error_GetCode_Args, 28, code,
    PJRT_Error *error; int32_t code;)
ABI(PJRT_Plugin_Initialize_Args, 16, extension_start)
ABI(PJRT_Plugin_Attributes_Args, 32, num_attributes,
    const PJRT_NamedValue *attributes; size_t num_attributes;)
ABI(PJRT_Event_Destroy_Args, 24, event,
    PJRT_Event *event;)
ABI(PJRT_Event_IsReady_Args, 25, is_ready,
    PJRT_Event *event; bool is_ready;)
ABI(PJRT_Event_Error_Args, 24, event,
    PJRT_Event *event;)
ABI(PJRT_Event_Await_Args, 24, event,
    PJRT_Event *event;)
ABI(PJRT_Event_OnReady_Args, 40, user_arg,
    PJRT_Event *event; vk_on_ready *callback; void *user_arg;)
ABI(PJRT_Client_Create_Args, 88, kv_try_get_user_arg,
    const PJRT_NamedValue *create_options; size_t num_options; void *kv_get_callback;
    void *kv_get_user_arg; void *kv_put_callback; void *kv_put_user_arg;
    PJRT_Client *client; void *kv_try_get_callback; void *kv_try_get_user_arg;)
ABI(PJRT_Client_Destroy_Args, 24, client,
    PJRT_Client *client;)
ABI(PJRT_Client_PlatformName_Args, 40, platform_name_size,
    PJRT_Client *client; const char *platform_name; size_t platform_name_size;)
ABI(PJRT_Client_ProcessIndex_Args, 28, process_index,
    PJRT_Client *client; int32_t process_index;)
ABI(PJRT_Client_PlatformVersion_Args, 40, platform_version_size,
    PJRT_Client *client; const char *platform_version; size_t platform_version_size;)
ABI(PJRT_Client_Devices_Args, 40, num_devices,
    PJRT_Client *client; PJRT_Device *const *devices; size_t num_devices;)
ABI(PJRT_Client_AddressableDevices_Args, 40, num_addressable_devices,
    PJRT_Client *client; PJRT_Device *const *addressable_devices;
    size_t num_addressable_devices;)
ABI(PJRT_Client_LookupDevice_Args, 40, device,
    PJRT_Client *client; int32_t id; PJRT_Device *device;)
ABI(PJRT_Client_LookupAddressableDevice_Args, 40, addressable_device,
    PJRT_Client *client; int32_t local_hardware_id; PJRT_Device *addressable_device;)
ABI(PJRT_Client_AddressableMemories_Args, 40, num_addressable_memories,
    PJRT_Client *client; PJRT_Memory *const *addressable_memories;
    size_t num_addressable_memories;)
ABI(PJRT_Client_Compile_Args, 56, executable,
    PJRT_Client *client; PJRT_Program *program; const char *compile_options;
    size_t compile_options_size; PJRT_LoadedExecutable *executable;)
ABI(PJRT_Client_DefaultDeviceAssignment_Args, 48, default_assignment,
    PJRT_Client *client; int32_t num_replicas; int32_t num_partitions;
    size_t default_assignment_size; int32_t *default_assignment;)
ABI(PJRT_Client_BufferFromHostBuffer_Args, 120, buffer,
    PJRT_Client *client; void *data; int32_t type; const int64_t *dims; size_t num_dims;
    const int64_t *byte_strides; size_t num_byte_strides; int32_t host_buffer_semantics;
    PJRT_Device *device; PJRT_Memory *memory; PJRT_Buffer_MemoryLayout *device_layout;
    PJRT_Event *done_with_host_buffer; PJRT_Buffer *buffer;)
ABI(PJRT_Client_UpdateGlobalProcessInfo_Args, 40, num_process_infos,
    PJRT_Client *client; void *process_infos; size_t num_process_infos;)
ABI(PJRT_DeviceDescription_Id_Args, 28, id,
    PJRT_DeviceDescription *device_description; int32_t id;)
ABI(PJRT_DeviceDescription_ProcessIndex_Args, 28, process_index,
    PJRT_DeviceDescription *device_description; int32_t process_index;)
ABI(PJRT_DeviceDescription_Attributes_Args, 40, attributes,
    PJRT_DeviceDescription *device_description; size_t num_attributes;
    const PJRT_NamedValue *attributes;)
ABI(PJRT_DeviceDescription_Kind_Args, 40, device_kind_size,
    PJRT_DeviceDescription *device_description; const char *device_kind;
    size_t device_kind_size;)
ABI(PJRT_DeviceDescription_DebugString_Args, 40, debug_string_size,
    PJRT_DeviceDescription *device_description; const char *debug_string;
    size_t debug_string_size;)
ABI(PJRT_DeviceDescription_ToString_Args, 40, to_string_size,
    PJRT_DeviceDescription *device_description; const char *to_string;
    size_t to_string_size;)
ABI(PJRT_Device_GetDescription_Args, 32, device_description,
    PJRT_Device *device; PJRT_DeviceDescription *device_description;)
ABI(PJRT_Device_IsAddressable_Args, 25, is_addressable,
    PJRT_Device *device; bool is_addressable;)
ABI(PJRT_Device_LocalHardwareId_Args, 28, local_hardware_id,
    PJRT_Device *device; int32_t local_hardware_id;)
ABI(PJRT_Device_AddressableMemories_Args, 40, num_memories,
    PJRT_Device *device; PJRT_Memory *const *memories; size_t num_memories;)
ABI(PJRT_Device_DefaultMemory_Args, 32, memory,
    PJRT_Device *device; PJRT_Memory *memory;)
ABI(PJRT_Device_MemoryStats_Args, 201, peak_allocated_bytes_is_set,
    PJRT_Device *device; int64_t bytes_in_use; int64_t peak_bytes_in_use;
    bool peak_bytes_in_use_is_set; int64_t num_allocs; bool num_allocs_is_set;
    int64_t largest_alloc_size; bool largest_alloc_size_is_set; int64_t bytes_limit;
    bool bytes_limit_is_set; int64_t bytes_reserved; bool bytes_reserved_is_set;
    int64_t peak_bytes_reserved; bool peak_bytes_reserved_is_set;
    int64_t bytes_reservable_limit; bool bytes_reservable_limit_is_set;
    int64_t largest_free_block_bytes; bool largest_free_block_bytes_is_set;
    int64_t pool_bytes; bool pool_bytes_is_set; int64_t peak_pool_bytes;
    bool peak_pool_bytes_is_set; int64_t peak_allocated_bytes;
    bool peak_allocated_bytes_is_set;)
ABI(PJRT_Memory_Id_Args, 28, id,
    PJRT_Memory *memory; int32_t id;)
ABI(PJRT_Memory_Kind_Args, 40, kind_size,
    PJRT_Memory *memory; const char *kind; size_t kind_size;)
ABI(PJRT_Memory_DebugString_Args, 40, debug_string_size,
    PJRT_Memory *memory; const char *debug_string; size_t debug_string_size;)
ABI(PJRT_Memory_ToString_Args, 40, to_string_size,
    PJRT_Memory *memory; const char *to_string; size_t to_string_size;)
ABI(PJRT_Memory_AddressableByDevices_Args, 40, num_devices,
    PJRT_Memory *memory; PJRT_Device *const *devices; size_t num_devices;)
ABI(PJRT_Executable_Destroy_Args, 24, executable,
    PJRT_Executable *executable;)
ABI(PJRT_Executable_Name_Args, 40, executable_name_size,
    PJRT_Executable *executable; const char *executable_name;
    size_t executable_name_size;)
ABI(PJRT_Executable_NumReplicas_Args, 32, num_replicas,
    PJRT_Executable *executable; size_t num_replicas;)
ABI(PJRT_Executable_NumPartitions_Args, 32, num_partitions,
    PJRT_Executable *executable; size_t num_partitions;)
ABI(PJRT_Executable_NumOutputs_Args, 32, num_outputs,
    PJRT_Executable *executable; size_t num_outputs;)
ABI(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args, 32, size_in_bytes,
    PJRT_Executable *executable; int64_t size_in_bytes;)
ABI(PJRT_Executable_GetCostAnalysis_Args, 40, properties,
    PJRT_Executable *executable; size_t num_properties;
    const PJRT_NamedValue *properties;)
ABI(PJRT_Executable_OutputMemoryKinds_Args, 48, memory_kind_sizes,
    PJRT_Executable *executable; size_t num_outputs; const char *const *memory_kinds;
    const size_t *memory_kind_sizes;)
ABI(PJRT_Executable_OptimizedProgram_Args, 32, program,
    PJRT_Executable *executable; PJRT_Program *program;)
ABI(PJRT_Executable_Serialize_Args, 56, serialized_executable_deleter,
    PJRT_Executable *executable; const char *serialized_bytes;
    size_t serialized_bytes_size; void *serialized_executable;
    vk_deleter *serialized_executable_deleter;)
ABI(PJRT_LoadedExecutable_Destroy_Args, 24, executable,
    PJRT_LoadedExecutable *executable;)
ABI(PJRT_LoadedExecutable_GetExecutable_Args, 32, executable,
    PJRT_LoadedExecutable *loaded_executable; PJRT_Executable *executable;)
ABI(PJRT_LoadedExecutable_AddressableDevices_Args, 40, num_addressable_devices,
    PJRT_LoadedExecutable *executable; PJRT_Device *const *addressable_devices;
    size_t num_addressable_devices;)
ABI(PJRT_LoadedExecutable_Delete_Args, 24, executable,
    PJRT_LoadedExecutable *executable;)
ABI(PJRT_LoadedExecutable_IsDeleted_Args, 25, is_deleted,
    PJRT_LoadedExecutable *executable; bool is_deleted;)
ABI(PJRT_LoadedExecutable_Execute_Args, 80, execute_device,
    PJRT_LoadedExecutable *executable; PJRT_ExecuteOptions *options;
    PJRT_Buffer *const *const *argument_lists; size_t num_devices; size_t num_args;
    PJRT_Buffer **const *output_lists; PJRT_Event **device_complete_events;
    PJRT_Device *execute_device;)
ABI(PJRT_Executable_DeserializeAndLoad_Args, 72, load_options,
    PJRT_Client *client; const char *serialized_executable;
    size_t serialized_executable_size; PJRT_LoadedExecutable *loaded_executable;
    const char *overridden_serialized_compile_options;
    size_t overridden_serialized_compile_options_size; void *load_options;)
ABI(PJRT_LoadedExecutable_Fingerprint_Args, 40, executable_fingerprint_size,
    PJRT_LoadedExecutable *executable; const char *executable_fingerprint;
    size_t executable_fingerprint_size;)
ABI(PJRT_Buffer_Destroy_Args, 24, buffer,
    PJRT_Buffer *buffer;)
ABI(PJRT_Buffer_ElementType_Args, 28, type,
    PJRT_Buffer *buffer; int32_t type;)
ABI(PJRT_Buffer_Dimensions_Args, 40, num_dims,
    PJRT_Buffer *buffer; const int64_t *dims; size_t num_dims;)
ABI(PJRT_Buffer_UnpaddedDimensions_Args, 40, num_dims,
    PJRT_Buffer *buffer; const int64_t *unpadded_dims; size_t num_dims;)
ABI(PJRT_Buffer_DynamicDimensionIndices_Args, 40, num_dynamic_dims,
    PJRT_Buffer *buffer; const size_t *dynamic_dim_indices; size_t num_dynamic_dims;)
ABI(PJRT_Buffer_GetMemoryLayout_Args, 104, layout,
    PJRT_Buffer *buffer; PJRT_Buffer_MemoryLayout layout;)
ABI(PJRT_Buffer_OnDeviceSizeInBytes_Args, 32, on_device_size_in_bytes,
    PJRT_Buffer *buffer; size_t on_device_size_in_bytes;)
ABI(PJRT_Buffer_Device_Args, 32, device,
    PJRT_Buffer *buffer; PJRT_Device *device;)
ABI(PJRT_Buffer_Memory_Args, 32, memory,
    PJRT_Buffer *buffer; PJRT_Memory *memory;)
ABI(PJRT_Buffer_Delete_Args, 24, buffer,
    PJRT_Buffer *buffer;)
ABI(PJRT_Buffer_IsDeleted_Args, 25, is_deleted,
    PJRT_Buffer *buffer; bool is_deleted;)
ABI(PJRT_Buffer_CopyToDevice_Args, 40, dst_buffer,
    PJRT_Buffer *buffer; PJRT_Device *dst_device; PJRT_Buffer *dst_buffer;)
ABI(PJRT_Buffer_ToHostBuffer_Args, 56, event,
    PJRT_Buffer *src; PJRT_Buffer_MemoryLayout *host_layout; void *dst; size_t dst_size;
    PJRT_Event *event;)
ABI(PJRT_Buffer_IsOnCpu_Args, 25, is_on_cpu,
    PJRT_Buffer *buffer; bool is_on_cpu;)
ABI(PJRT_Buffer_ReadyEvent_Args, 32, event,
    PJRT_Buffer *buffer; PJRT_Event *event;)
ABI(PJRT_Buffer_UnsafePointer_Args, 32, buffer_pointer,
    PJRT_Buffer *buffer; size_t buffer_pointer;)
ABI(PJRT_Buffer_IncreaseExternalReferenceCount_Args, 24, buffer,
    PJRT_Buffer *buffer;)
ABI(PJRT_Buffer_DecreaseExternalReferenceCount_Args, 24, buffer,
    PJRT_Buffer *buffer;)
ABI(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, 32, device_memory_ptr,
    PJRT_Buffer *buffer; void *device_memory_ptr;)
ABI(PJRT_TopologyDescription_Create_Args, 56, topology,
    const char *topology_name; size_t topology_name_size;
    const PJRT_NamedValue *create_options; size_t num_options;
    PJRT_TopologyDescription *topology;)
ABI(PJRT_TopologyDescription_Destroy_Args, 24, topology,
    PJRT_TopologyDescription *topology;)
ABI(PJRT_TopologyDescription_PlatformName_Args, 40, platform_name_size,
    PJRT_TopologyDescription *topology; const char *platform_name;
    size_t platform_name_size;)
ABI(PJRT_TopologyDescription_PlatformVersion_Args, 40, platform_version_size,
    PJRT_TopologyDescription *topology; const char *platform_version;
    size_t platform_version_size;)
ABI(PJRT_TopologyDescription_GetDeviceDescriptions_Args, 40, num_descriptions,
    PJRT_TopologyDescription *topology; PJRT_DeviceDescription *const *descriptions;
    size_t num_descriptions;)
ABI(PJRT_TopologyDescription_Serialize_Args, 56, serialized_topology_deleter,
    PJRT_TopologyDescription *topology; const char *serialized_bytes;
    size_t serialized_bytes_size; void *serialized_topology;
    vk_deleter *serialized_topology_deleter;)
ABI(PJRT_TopologyDescription_Attributes_Args, 40, num_attributes,
    PJRT_TopologyDescription *topology; const PJRT_NamedValue *attributes;
    size_t num_attributes;)
ABI(PJRT_Compile_Args, 64, executable,
    PJRT_TopologyDescription *topology; PJRT_Program *program;
    const char *compile_options; size_t compile_options_size; PJRT_Client *client;
    PJRT_Executable *executable;)
ABI(PJRT_Executable_OutputElementTypes_Args, 40, num_output_types,
    PJRT_Executable *executable; const int32_t *output_types; size_t num_output_types;)
ABI(PJRT_Executable_OutputDimensions_Args, 48, dim_sizes,
    PJRT_Executable *executable; size_t num_outputs; const int64_t *dims;
    const size_t *dim_sizes;)
ABI(PJRT_Buffer_CopyToMemory_Args, 40, dst_buffer,
    PJRT_Buffer *buffer; PJRT_Memory *dst_memory; PJRT_Buffer *dst_buffer;)
ABI(PJRT_Executable_Fingerprint_Args, 40, executable_fingerprint_size,
    PJRT_Executable *executable; const char *executable_fingerprint;
    size_t executable_fingerprint_size;)
ABI(PJRT_Client_TopologyDescription_Args, 32, topology,
    PJRT_Client *client; PJRT_TopologyDescription *topology;)
ABI(PJRT_Executable_GetCompiledMemoryStats_Args, 144, peak_unpadded_heap_bytes,
    PJRT_Executable *executable; int64_t generated_code_size_in_bytes;
    int64_t argument_size_in_bytes; int64_t output_size_in_bytes;
    int64_t alias_size_in_bytes; int64_t temp_size_in_bytes;
    int64_t host_generated_code_size_in_bytes; int64_t host_argument_size_in_bytes;
    int64_t host_output_size_in_bytes; int64_t host_alias_size_in_bytes;
    int64_t host_temp_size_in_bytes; int64_t peak_memory_in_bytes;
    int64_t total_size_in_bytes; int64_t total_allocation_bytes;
    int64_t indefinite_allocations; int64_t peak_unpadded_heap_bytes;)
ABI(PJRT_Memory_Kind_Id_Args, 28, kind_id,
    PJRT_Memory *memory; int32_t kind_id;)
ABI(PJRT_LoadedExecutable_GetDeviceAssignment_Args, 56, serialized_device_assignment_deleter,
    PJRT_LoadedExecutable *executable; const char *serialized_bytes;
    size_t serialized_bytes_size; void *serialized_device_assignment;
    vk_deleter *serialized_device_assignment_deleter;)
ABI(PJRT_Executable_GetCompileOptions_Args, 56, serialized_compile_options_deleter,
    PJRT_Executable *executable; const char *serialized_bytes;
    size_t serialized_bytes_size; void *serialized_compile_options;
    vk_deleter *serialized_compile_options_deleter;)
ABI(PJRT_Device_GetAttributes_Args, 56, attributes_deleter,
    PJRT_Device *device; const PJRT_NamedValue *attributes; size_t num_attributes;
    void *device_attributes; vk_deleter *attributes_deleter;)
ABI(PJRT_Client_Load_Args, 56, loaded_executable,
    PJRT_Client *client; PJRT_Executable *executable; const char *compile_options;
    size_t compile_options_size; PJRT_LoadedExecutable *loaded_executable;)
ABI(PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args, 40, num_addressable_device_logical_ids,
    PJRT_LoadedExecutable *executable;
    const PJRT_LogicalDeviceIds *addressable_device_logical_ids;
    size_t num_addressable_device_logical_ids;)
ABI(PJRT_Layouts_MemoryLayout_Destroy_Args, 24, layout,
    PJRT_Layouts_MemoryLayout *layout;)
ABI(PJRT_Layouts_MemoryLayout_Serialize_Args, 56, serialized_layout_deleter,
    PJRT_Layouts_MemoryLayout *layout; const char *serialized_bytes;
    size_t serialized_bytes_size; void *serialized_layout;
    vk_deleter *serialized_layout_deleter;)
ABI(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args, 56, layout,
    PJRT_Client *client; int32_t type; const int64_t *dims; size_t num_dims;
    PJRT_Layouts_MemoryLayout *layout;)
ABI(PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args, 32, layout,
    PJRT_Buffer *buffer; PJRT_Layouts_MemoryLayout *layout;)
ABI(PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args, 56, layout,
    void *topology_description; int32_t type; const int64_t *dims; size_t num_dims;
    PJRT_Layouts_MemoryLayout *layout;)
ABI(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args, 40, layouts,
    PJRT_Executable *executable; size_t num_outputs;
    PJRT_Layouts_MemoryLayout *const *layouts;)
ABI(PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args, 40, layouts,
    PJRT_Executable *executable; size_t num_parameters;
    PJRT_Layouts_MemoryLayout *const *layouts;)
ABI(PJRT_Shardings_PJRT_Executable_OutputShardings_Args, 48, sharding_sizes,
    PJRT_Executable *executable; size_t num_outputs; const char *const *shardings;
    const size_t *sharding_sizes;)
ABI(PJRT_Shardings_PJRT_Executable_ParameterShardings_Args, 48, sharding_sizes,
    PJRT_Executable *executable; size_t num_parameters; const char *const *shardings;
    const size_t *sharding_sizes;)

/* Every slot of PJRT_Api in order.  X: implemented here; U: answers UNIMPLEMENTED. */
#define VK_SLOTS(X, U) \
    X(Error_Destroy) X(Error_Message) X(Error_GetCode) X(Plugin_Initialize) \
    X(Plugin_Attributes) X(Event_Destroy) X(Event_IsReady) X(Event_Error) \
    X(Event_Await) X(Event_OnReady) X(Client_Create) X(Client_Destroy) \
    X(Client_PlatformName) X(Client_ProcessIndex) X(Client_PlatformVersion) \
    X(Client_Devices) X(Client_AddressableDevices) X(Client_LookupDevice) \
    X(Client_LookupAddressableDevice) X(Client_AddressableMemories) X(Client_Compile) \
    X(Client_DefaultDeviceAssignment) X(Client_BufferFromHostBuffer) \
    X(DeviceDescription_Id) X(DeviceDescription_ProcessIndex) \
    X(DeviceDescription_Attributes) X(DeviceDescription_Kind) \
    X(DeviceDescription_DebugString) X(DeviceDescription_ToString) \
    X(Device_GetDescription) X(Device_IsAddressable) X(Device_LocalHardwareId) \
    X(Device_AddressableMemories) X(Device_DefaultMemory) X(Device_MemoryStats) \
    X(Memory_Id) X(Memory_Kind) X(Memory_DebugString) X(Memory_ToString) \
    X(Memory_AddressableByDevices) X(Executable_Destroy) X(Executable_Name) \
    X(Executable_NumReplicas) X(Executable_NumPartitions) X(Executable_NumOutputs) \
    X(Executable_SizeOfGeneratedCodeInBytes) X(Executable_GetCostAnalysis) \
    X(Executable_OutputMemoryKinds) X(Executable_OptimizedProgram) \
    X(Executable_Serialize) X(LoadedExecutable_Destroy) \
    X(LoadedExecutable_GetExecutable) X(LoadedExecutable_AddressableDevices) \
    X(LoadedExecutable_Delete) X(LoadedExecutable_IsDeleted) \
    X(LoadedExecutable_Execute) X(Executable_DeserializeAndLoad) \
    X(LoadedExecutable_Fingerprint) X(Buffer_Destroy) X(Buffer_ElementType) \
    X(Buffer_Dimensions) X(Buffer_UnpaddedDimensions) \
    X(Buffer_DynamicDimensionIndices) X(Buffer_GetMemoryLayout) \
    X(Buffer_OnDeviceSizeInBytes) X(Buffer_Device) X(Buffer_Memory) X(Buffer_Delete) \
    X(Buffer_IsDeleted) X(Buffer_CopyToDevice) X(Buffer_ToHostBuffer) \
    X(Buffer_IsOnCpu) X(Buffer_ReadyEvent) X(Buffer_UnsafePointer) \
    X(Buffer_IncreaseExternalReferenceCount) X(Buffer_DecreaseExternalReferenceCount) \
    X(Buffer_OpaqueDeviceMemoryDataPointer) U(CopyToDeviceStream_Destroy) \
    U(CopyToDeviceStream_AddChunk) U(CopyToDeviceStream_TotalBytes) \
    U(CopyToDeviceStream_GranuleSize) U(CopyToDeviceStream_CurrentBytes) \
    X(TopologyDescription_Create) X(TopologyDescription_Destroy) \
    X(TopologyDescription_PlatformName) X(TopologyDescription_PlatformVersion) \
    X(TopologyDescription_GetDeviceDescriptions) X(TopologyDescription_Serialize) \
    X(TopologyDescription_Attributes) X(Compile) X(Executable_OutputElementTypes) \
    X(Executable_OutputDimensions) X(Buffer_CopyToMemory) \
    U(Client_CreateViewOfDeviceBuffer) X(Executable_Fingerprint) \
    X(Client_TopologyDescription) X(Executable_GetCompiledMemoryStats) \
    X(Memory_Kind_Id) U(ExecuteContext_Create) U(ExecuteContext_Destroy) \
    U(Buffer_CopyRawToHost) U(AsyncHostToDeviceTransferManager_Destroy) \
    U(AsyncHostToDeviceTransferManager_TransferData) \
    U(Client_CreateBuffersForAsyncHostToDevice) \
    U(AsyncHostToDeviceTransferManager_RetrieveBuffer) \
    U(AsyncHostToDeviceTransferManager_Device) \
    U(AsyncHostToDeviceTransferManager_BufferCount) \
    U(AsyncHostToDeviceTransferManager_BufferSize) \
    U(AsyncHostToDeviceTransferManager_SetBufferError) \
    U(AsyncHostToDeviceTransferManager_AddMetadata) U(Client_DmaMap) \
    U(Client_DmaUnmap) U(Client_CreateUninitializedBuffer) \
    X(Client_UpdateGlobalProcessInfo) U(TopologyDescription_Deserialize) \
    U(Client_CreateAliasBuffer) U(Client_FulfillAliasBuffer) \
    X(LoadedExecutable_GetDeviceAssignment) U(Client_CreateErrorBuffer) \
    U(AsyncHostToDeviceTransferManager_TransferLiteral) U(Buffer_CopyRawToHostFuture) \
    U(Device_PoisonExecution) U(Device_CreateAsyncTrackingEvent) \
    U(AsyncTrackingEvent_Destroy) X(Executable_GetCompileOptions) \
    U(Buffer_DonateWithControlDependency) U(Event_Create) U(Event_Set) \
    X(Device_GetAttributes) X(Client_Load) \
    X(LoadedExecutable_AddressableDeviceLogicalIds) U(Buffer_Bitcast)

#define VK_MEMBER(NAME) vk_slot *NAME;
typedef struct PJRT_Api {
    size_t struct_size;
    void *extension_start;
    PJRT_Api_Version version;
    VK_SLOTS(VK_MEMBER, VK_MEMBER)
} PJRT_Api;
_Static_assert(sizeof(PJRT_Api) == 40 + 8 * 132, "PJRT_Api");

#define VK_PROTOTYPE(NAME) PJRT_Error *vk_##NAME(PJRT_##NAME##_Args *args);
#define VK_NOTHING(NAME)
VK_SLOTS(VK_PROTOTYPE, VK_NOTHING)

typedef struct {
    PJRT_Extension_Base base;
    vk_slot *slots[7];
} PJRT_Layouts_Extension;
_Static_assert(sizeof(PJRT_Layouts_Extension) == 80, "PJRT_Layouts_Extension");

typedef struct {
    PJRT_Extension_Base base;
    vk_slot *slots[2];
} PJRT_Shardings_Extension;
_Static_assert(sizeof(PJRT_Shardings_Extension) == 40, "PJRT_Shardings_Extension");

#endif
