/* The accounting of device memory: what arrays hold, and what does not fit. */
#include <stdio.h>
#include <string.h>

#include "bridge.h"

static void raise_to(atomic_llong *cell, long long value)
{
    long long old = atomic_load(cell);
    while (old < value && !atomic_compare_exchange_weak(cell, &old, value))
        ;
}

/* Counts a buffer that now holds bytes.  Host memories are not the chip's. */
void vk_account(PJRT_Buffer *buffer)
{
    PJRT_Device *device = buffer->device;
    if (buffer->memory->kind != 0 || buffer->accounted)
        return;
    buffer->accounted = true;
    long long bytes = (long long)buffer->bytes;
    raise_to(&device->peak, atomic_fetch_add(&device->in_use, bytes) + bytes);
    raise_to(&device->largest, bytes);
    atomic_fetch_add(&device->num_allocs, 1);
}

void vk_unaccount(PJRT_Buffer *buffer)
{
    if (buffer->accounted)
        atomic_fetch_sub(&buffer->device->in_use, (long long)buffer->bytes);
    buffer->accounted = false;
}

/* Writes "f32[512,8192] 16777216 bytes, ..." of the largest arrays on a device. */
static void list_residents(const PJRT_Device *device, char *text, size_t room)
{
    enum { LISTED = 6 };
    vk_resident found[LISTED];
    size_t count = vk_largest_buffers(device, found, LISTED), size = 0;
    text[0] = 0;
    for (size_t i = 0; i < count && size < room; i++) {
        const vk_resident *one = &found[i];
        size += (size_t)snprintf(text + size, room - size, "%s%s[", i ? ", " : "",
                                 vk_type_names[one->type]);
        for (size_t d = 0; d < one->num_dims && d < VK_INLINE_RANK && size < room; d++)
            size += (size_t)snprintf(text + size, room - size, d ? ",%lld" : "%lld",
                                     (long long)one->dims[d]);
        if (size < room)
            size += (size_t)snprintf(text + size, room - size, "%s] %zu bytes",
                                     one->num_dims > VK_INLINE_RANK ? ",..." : "",
                                     one->bytes);
    }
    if (count == 0)
        snprintf(text, room, "none");
}

/* Bytes that the host can still give, swap included; -1 when it does not say. */
static long long host_bytes(void)
{
    char line[128];
    long long available = -1, swap = 0;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        sscanf(line, "MemAvailable: %lld", &available);
        sscanf(line, "SwapFree: %lld", &swap);
    }
    if (file != NULL)
        fclose(file);
    return available < 0 ? -1 : (available + swap) * 1024;
}

/* The chip's DRAM lies in the host's memory, of which there may be less.  Linux grants it
 * all the same and kills the process later.  Only what is large is worth a look; the
 * limits of containers are not seen. */
static PJRT_Error *check_host(const PJRT_Device *device, size_t bytes, const char *what)
{
    enum { LARGE = 256 << 20 };
    if (bytes < LARGE)
        return NULL;
    long long room = host_bytes();
    if (room < 0 || bytes <= (size_t)room)
        return NULL;
    return vk_error(
        VK_RESOURCE_EXHAUSTED,
        "%s needs %zu bytes of DRAM on %s, which the emulated chip has, but this host has "
        "only %lld bytes of memory left for it. Use a smaller batch or model, fewer "
        "emulated devices (VKORE_NUM_DEVICES), or a larger host.",
        what, bytes, device->description->name, room);
}

/* Refuses what does not fit: how much is missing, what lies there, what to do.  `lasting`
 * of the bytes are for arrays; the host need not have memory for the chip's others. */
PJRT_Error *vk_check_room(const PJRT_Device *device, size_t bytes, size_t lasting,
                          const char *what)
{
    long long used = atomic_load(&device->in_use), limit = device->limit;
    if (bytes <= (size_t)limit && used <= limit - (long long)bytes)
        return check_host(device, lasting, what);
    char residents[1024];
    list_residents(device, residents, sizeof residents);
    long long free_bytes = limit > used ? limit - used : 0;
    return vk_error(
        VK_RESOURCE_EXHAUSTED,
        "%s needs %zu bytes of DRAM on %s and %lld are free, %zu too few: the chip has "
        "%lld bytes, live arrays hold %lld. Largest of them: %s. Delete arrays (del x, "
        "x.delete()), donate arguments that are not needed any more (jax.jit(..., "
        "donate_argnums=...)), use a smaller batch or jax.checkpoint, move arrays to "
        "pinned_host, or choose a larger chip (VKORE_CHIP, VKORE_DRAM_BYTES).",
        what, bytes, device->description->name, free_bytes,
        bytes - (size_t)free_bytes, limit, used, residents);
}

PJRT_Error *vk_Device_MemoryStats(PJRT_Device_MemoryStats_Args *args)
{
    PJRT_Device *device = args->device;
    PJRT_Device_MemoryStats_Args stats = {0};
    stats.struct_size = args->struct_size;
    stats.extension_start = args->extension_start;
    stats.device = device;
    stats.bytes_in_use = atomic_load(&device->in_use);
    stats.peak_bytes_in_use = atomic_load(&device->peak);
    stats.num_allocs = atomic_load(&device->num_allocs);
    stats.largest_alloc_size = atomic_load(&device->largest);
    stats.bytes_limit = stats.bytes_reservable_limit = device->limit;
    stats.largest_free_block_bytes = device->limit - stats.bytes_in_use;
    stats.peak_bytes_in_use_is_set = stats.num_allocs_is_set = true;
    stats.bytes_reserved_is_set = stats.peak_bytes_reserved_is_set = true;
    stats.largest_alloc_size_is_set = stats.bytes_limit_is_set = true;
    stats.bytes_reservable_limit_is_set = stats.largest_free_block_bytes_is_set = true;
    /* Older callers have a shorter struct. */
    size_t size = sizeof stats < args->struct_size ? sizeof stats : args->struct_size;
    memcpy(args, &stats, size);
    return NULL;
}
