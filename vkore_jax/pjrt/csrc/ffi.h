/* The part of XLA's FFI (xla/ffi/api/c_api.h, versions 0.2 and 0.3) that a function
 * needs which the inner client's programs call.  Fields that are not used are void
 * pointers. */
#ifndef VKORE_FFI_H
#define VKORE_FFI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { XLA_FFI_METADATA = 1 };

typedef struct {
    size_t struct_size;
    void *extension_start;
    int32_t major_version, minor_version;
} XLA_FFI_Api_Version;

typedef struct XLA_FFI_Error XLA_FFI_Error;

typedef struct {
    size_t struct_size;
    void *extension_start;
    const char *message;
    int32_t code; /* absl's */
} XLA_FFI_Error_Create_Args;

typedef struct {
    size_t struct_size;
    void *extension_start;
    XLA_FFI_Api_Version api_version;
    const void *internal_api;
    XLA_FFI_Error *(*Error_Create)(XLA_FFI_Error_Create_Args *args);
} XLA_FFI_Api; /* its first fields */

typedef struct {
    size_t struct_size;
    XLA_FFI_Api_Version api_version;
    uint32_t traits;
} XLA_FFI_Metadata; /* its first fields */

typedef struct {
    size_t struct_size;
    int32_t type;
    void *next;
    XLA_FFI_Metadata *metadata;
} XLA_FFI_Metadata_Extension;

typedef struct {
    size_t struct_size;
    void *extension_start;
    int32_t dtype;
    void *data;
    int64_t rank;
    const int64_t *dims;
} XLA_FFI_Buffer;

typedef struct {
    size_t struct_size;
    void *extension_start;
    int64_t size;
    int32_t *types;
    XLA_FFI_Buffer **buffers;
} XLA_FFI_Buffers; /* XLA_FFI_Args and XLA_FFI_Rets */

typedef struct {
    size_t struct_size;
    XLA_FFI_Metadata_Extension *extension_start;
    const XLA_FFI_Api *api;
    void *ctx;
    int32_t stage;
    XLA_FFI_Buffers args, rets;
} XLA_FFI_CallFrame; /* its first fields */

typedef XLA_FFI_Error *XLA_FFI_Handler(XLA_FFI_CallFrame *frame);

#endif
