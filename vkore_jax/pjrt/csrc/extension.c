/* The Layouts and Shardings extensions, chained behind the API struct. */
#include <stdio.h>
#include <string.h>

#include "bridge.h"

static void keep_text(void *holder)
{
    (void)holder;
}

static PJRT_Error *layout_destroy(void *raw)
{
    PJRT_Layouts_MemoryLayout_Destroy_Args *args = raw;
    if (args->layout->owned) {
        free(args->layout->text);
        free(args->layout);
    }
    return NULL;
}

static PJRT_Error *layout_serialize(void *raw)
{
    PJRT_Layouts_MemoryLayout_Serialize_Args *args = raw;
    args->serialized_bytes = args->layout->text;
    args->serialized_bytes_size = args->layout->size;
    args->serialized_layout = args->layout;
    args->serialized_layout_deleter = keep_text;
    return NULL;
}

/* Row-major: "{2,1,0}" for rank 3. */
static PJRT_Error *default_layout(size_t rank, PJRT_Layouts_MemoryLayout **out)
{
    PJRT_Layouts_MemoryLayout *layout = VK_NEW(PJRT_Layouts_MemoryLayout);
    char *text = malloc(rank * 4 + 4);
    if (layout == NULL || text == NULL || rank > VK_MAX_RANK) {
        free(layout);
        free(text);
        return VK_OOM();
    }
    size_t size = 0;
    text[size++] = '{';
    for (size_t i = rank; i-- > 0;)
        size += (size_t)sprintf(text + size, i ? "%zu," : "%zu", i);
    text[size++] = '}';
    text[size] = 0;
    layout->owned = true;
    layout->text = text;
    layout->size = size;
    *out = layout;
    return NULL;
}

static PJRT_Error *client_default(void *raw)
{
    PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *args = raw;
    return default_layout(args->num_dims, &args->layout);
}

static PJRT_Error *topology_default(void *raw)
{
    PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args *args = raw;
    return default_layout(args->num_dims, &args->layout);
}

static PJRT_Error *buffer_layout(void *raw)
{
    PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args *args = raw;
    return default_layout(args->buffer->num_dims, &args->layout);
}

static PJRT_Error *output_layouts(void *raw)
{
    PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args *args = raw;
    args->num_outputs = args->executable->program->results.count;
    args->layouts = args->executable->program->results.layouts;
    return NULL;
}

static PJRT_Error *parameter_layouts(void *raw)
{
    PJRT_Layouts_PJRT_Executable_GetParameterLayouts_Args *args = raw;
    args->num_parameters = args->executable->program->params.count;
    args->layouts = args->executable->program->params.layouts;
    return NULL;
}

static PJRT_Error *parameter_shardings(void *raw)
{
    PJRT_Shardings_PJRT_Executable_ParameterShardings_Args *args = raw;
    vk_signature *params = &args->executable->program->params;
    args->num_parameters = params->count;
    args->shardings = params->shardings;
    args->sharding_sizes = params->sharding_sizes;
    return NULL;
}

static PJRT_Error *output_shardings(void *raw)
{
    PJRT_Shardings_PJRT_Executable_OutputShardings_Args *args = raw;
    vk_signature *results = &args->executable->program->results;
    args->num_outputs = results->count;
    /* jaxlib refuses an empty list; no list means "not known", which is fine for none */
    args->shardings = results->count ? results->shardings : NULL;
    args->sharding_sizes = results->sharding_sizes;
    return NULL;
}

static PJRT_Layouts_Extension layouts = {
    .base = {sizeof layouts, VK_EXT_LAYOUTS, NULL},
    .slots = {layout_destroy, layout_serialize, client_default, buffer_layout,
              topology_default, output_layouts, parameter_layouts}};

PJRT_Shardings_Extension vk_extensions = {
    .base = {sizeof vk_extensions, VK_EXT_SHARDINGS, &layouts},
    .slots = {parameter_shardings, output_shardings}};
