/* A pretend libnvidia-ml.so.1: the unmodified binding reads GPUs that are not there.
 *
 * Tests say what it shows in a file of key=value lines, read again at every call:
 * $FAKE_NVML_STATE, or /var/lib/pretend-gpu/state, which every process of a box then sees. Without
 * that file the driver is not loaded. Processes take its memory with pretendAlloc, see holds.h.
 *
 *   init=CODE            what nvmlInit returns
 *   count=N              devices (1)
 *   generation=N         another number than at init is a driver that was loaded anew
 *   hang_s=N hang_init_s=N     calls sleep, for as long as the file says so
 *   latency_ms=N         every call takes so long
 *   release_ms=N         how long the bytes of a dead process stay in use, or "never" (0)
 *   fail.FUNCTION=CODE   what one call returns
 *
 * For each device, "0." for the first or "*." for all (N may end in K, M, G):
 *
 *   total= reserved= used= free=     bytes; what processes take is added to used
 *   memory=CODE          what the memory calls return, 3 for "not supported"
 *   listing=CODE         what the process lists return; "hidden" for empty ones
 *   sizes=hidden         the lists do not tell how much
 *   compute=PID:BYTES,PID:?   graphics=…   mps=…     processes that are always listed
 *   sm_clock= memory_clock= power_mw= temperature= throttle= pcie_width= pcie_generation=
 *   energy_mj= busy= memory_busy= ecc_uncorrected= remap_pending= remap_failed=
 *   recovery_action=     state beside the memory; a key that is missing is not supported
 *   capability=MAJOR.MINOR   compute capability, 12.0 for instance
 *   nvlinks=N            links that are up; missing: the device has none
 *   xids=48,79           XID errors so far: what is appended is told to every event set once
 *   ghosts=1             dead processes stay listed while their bytes are in use
 *   handle=CODE lost=1 mig=1 numa=NODE uuid= name= release_ms= fail.FUNCTION=
 *
 * Compiled with -DOLD_DRIVER it lacks the functions that came with driver 510 and 535.
 * The layout of the structures is the public NVML ABI, as the binding declares it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "holds.h"

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15,
    OUT_OF_MEMORY = 20
};
enum { TEXT = 4096 };
typedef uintptr_t Device; /* the index plus one: 0 is no handle */

static const uint64_t UNKNOWN_SIZE = UINT64_MAX;
static int inits;
static int64_t generation;

static void sleep_while(struct state *state, const char *key)
{
    int64_t began = now_us();

    while (now_us() - began < state_number(state, key, 0) * 1000000 && state_read(state))
        usleep(10000);
}

/* What every call does first. */
static int enter(const char *function, struct state *state)
{
    char key[96];

    if (!state_read(state))
        return DRIVER_NOT_LOADED;
    sleep_while(state, "hang_s");
    usleep((useconds_t)state_number(state, "latency_ms", 0) * 1000);
    if (!inits)
        return UNINITIALIZED;
    if (state_number(state, "generation", 0) != generation)
        return GPU_IS_LOST;
    snprintf(key, sizeof key, "fail.%s", function);
    return (int)state_number(state, key, SUCCESS);
}

/* What every call about a device does first. */
static int enter_device(const char *function, Device device, struct state *state)
{
    char key[96];
    int refused = enter(function, state);

    if (refused)
        return refused;
    if (!device || device - 1 >= (Device)state_number(state, "count", 1))
        return INVALID_ARGUMENT;
    if (device_number(state, device - 1, "lost", 0))
        return GPU_IS_LOST;
    snprintf(key, sizeof key, "fail.%s", function);
    return (int)device_number(state, device - 1, key, SUCCESS);
}

static int copied(const char *value, char *text, unsigned size)
{
    return snprintf(text, size, "%s", value) < (int)size ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlInitWithFlags(unsigned flags)
{
    struct state state;
    int refused = DRIVER_NOT_LOADED;

    (void)flags;
    if (state_read(&state)) {
        sleep_while(&state, "hang_init_s");
        refused = (int)state_number(&state, "init", SUCCESS);
    }
    if (!refused && !inits++)
        generation = state_number(&state, "generation", 0);
    return refused;
}

int nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

int nvmlShutdown(void)
{
    if (!inits)
        return UNINITIALIZED;
    inits--;
    return SUCCESS;
}

const char *nvmlErrorString(int code)
{
    return code == GPU_IS_LOST ? "GPU is lost" : "Pretended error";
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    struct state state;
    char value[96] = "580.95.05";
    int refused = enter(__func__, &state);

    if (refused)
        return refused;
    state_text(&state, "driver", value, sizeof value);
    return copied(value, text, size);
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    struct state state;
    int refused = enter(__func__, &state);

    *count = refused ? 0 : (unsigned)state_number(&state, "count", 1);
    return refused;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device)
{
    struct state state;
    int refused = enter_device(__func__, (Device)index + 1, &state);

    *device = (Device)index + 1;
    return refused ? refused : (int)device_number(&state, index, "handle", SUCCESS);
}

int nvmlDeviceGetIndex(Device device, unsigned *index)
{
    struct state state;
    *index = (unsigned)device - 1;
    return enter_device(__func__, device, &state);
}

static void uuid_of(const struct state *state, unsigned gpu, char *value, size_t size)
{
    if (!device_text(state, gpu, "uuid", value, size))
        snprintf(value, size, "GPU-00000000-0000-4000-8000-%012u", gpu);
}

int nvmlDeviceGetUUID(Device device, char *text, unsigned size)
{
    struct state state;
    char value[96];
    int refused = enter_device(__func__, device, &state);

    if (refused)
        return refused;
    uuid_of(&state, (unsigned)device - 1, value, sizeof value);
    return copied(value, text, size);
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device)
{
    struct state state;
    char value[96];
    int refused = enter(__func__, &state);

    for (*device = 1; !refused && *device <= (Device)state_number(&state, "count", 1); ++*device) {
        uuid_of(&state, (unsigned)*device - 1, value, sizeof value);
        if (strcmp(value, uuid) == 0)
            return enter_device(__func__, *device, &state);
    }
    return refused ? refused : NOT_FOUND;
}

int nvmlDeviceGetName(Device device, char *text, unsigned size)
{
    struct state state;
    char value[96];
    int refused = enter_device(__func__, device, &state);

    if (refused)
        return refused;
    if (!device_text(&state, (unsigned)device - 1, "name", value, sizeof value))
        snprintf(value, sizeof value, "Pretend GPU %u", (unsigned)device - 1);
    return copied(value, text, size);
}

/* A "na" or missing key is a device that has no such thing. */
static int feature(const char *function, Device device, const char *key, unsigned *value)
{
    struct state state;
    int refused = enter_device(function, device, &state);
    int64_t number = refused ? -1 : device_number(&state, (unsigned)device - 1, key, -1);

    *value = (unsigned)number;
    return refused ? refused : number < 0 ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending)
{
    int refused = feature(__func__, device, "mig", current);
    *pending = *current;
    return refused;
}

int nvmlDeviceGetNumaNodeId(Device device, unsigned *node)
{
    return feature(__func__, device, "numa", node);
}

enum { SM_CLOCK = 1, MEMORY_CLOCK = 2 };

int nvmlDeviceGetClockInfo(Device device, unsigned type, unsigned *mhz)
{
    if (type != SM_CLOCK && type != MEMORY_CLOCK)
        return INVALID_ARGUMENT;
    return feature(__func__, device, type == SM_CLOCK ? "sm_clock" : "memory_clock", mhz);
}

int nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts)
{
    return feature(__func__, device, "power_mw", milliwatts);
}

int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *degrees)
{
    return sensor ? INVALID_ARGUMENT : feature(__func__, device, "temperature", degrees);
}

int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned *lanes)
{
    return feature(__func__, device, "pcie_width", lanes);
}

int nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned *generation)
{
    return feature(__func__, device, "pcie_generation", generation);
}

/* As `feature`, for numbers that need 64 bits. */
static int large_feature(const char *function, Device device, const char *key, uint64_t *value)
{
    struct state state;
    int refused = enter_device(function, device, &state);
    int64_t number = refused ? -1 : device_number(&state, (unsigned)device - 1, key, -1);

    *value = (uint64_t)number;
    return refused ? refused : number < 0 ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(Device device, uint64_t *millijoules)
{
    return large_feature(__func__, device, "energy_mj", millijoules);
}

/* Drivers before 535 have only this name of the function. */
int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, uint64_t *reasons)
{
    return large_feature(__func__, device, "throttle", reasons);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetCurrentClocksEventReasons(Device device, uint64_t *reasons)
{
    return large_feature(__func__, device, "throttle", reasons);
}
#endif

/* --- kind ------------------------------------------------------------------------------------ */

int nvmlDeviceGetCudaComputeCapability(Device device, int *major, int *minor)
{
    struct state state;
    char value[16];
    int refused = enter_device(__func__, device, &state);

    *major = *minor = 0;
    if (refused)
        return refused;
    if (!device_text(&state, (unsigned)device - 1, "capability", value, sizeof value))
        return NOT_SUPPORTED;
    return sscanf(value, "%d.%d", major, minor) == 2 ? SUCCESS : NOT_SUPPORTED;
}

/* The links of a device are all up; one that it does not have is an invalid argument. */
int nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *enabled)
{
    unsigned links = 0;
    int refused = feature(__func__, device, "nvlinks", &links);

    *enabled = 1;
    return refused ? refused : link < links ? SUCCESS : INVALID_ARGUMENT;
}

/* --- health ---------------------------------------------------------------------------------- */

enum { UNCORRECTED = 1, AGGREGATE = 1, RECOVERY_ACTION = 230, UNSIGNED_INT = 1 };

struct utilization { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(Device device, struct utilization *rates)
{
    int refused = feature(__func__, device, "busy", &rates->gpu);
    return refused ? refused : feature(__func__, device, "memory_busy", &rates->memory);
}

int nvmlDeviceGetTotalEccErrors(Device device, unsigned type, unsigned counter, uint64_t *count)
{
    if (type != UNCORRECTED || counter != AGGREGATE)
        return INVALID_ARGUMENT;
    return large_feature(__func__, device, "ecc_uncorrected", count);
}

int nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed)
{
    int refused = feature(__func__, device, "remap_pending", pending);

    *corrected = *uncorrected = 0;
    return refused ? refused : feature(__func__, device, "remap_failed", failed);
}

struct field {
    uint32_t id, scope;
    int64_t timestamp, latency_us;
    unsigned type;
    int result;
    union { double real; unsigned number; uint64_t large; } value;
};

int nvmlDeviceGetFieldValues(Device device, int count, struct field *fields)
{
    struct state state;
    int refused = enter_device(__func__, device, &state);

    for (int i = 0; !refused && i < count; i++) {
        fields[i].type = UNSIGNED_INT;
        fields[i].result = fields[i].id == RECOVERY_ACTION
                               ? feature(__func__, device, "recovery_action", &fields[i].value.number)
                               : NOT_SUPPORTED;
    }
    return refused;
}

enum { XID = 8, MAX_DEVICES = 16 };
struct events { unsigned told[MAX_DEVICES]; int watched[MAX_DEVICES]; };
struct event { Device device; uint64_t type, data; unsigned gpu_instance, compute_instance; };

/* The number of XID errors so far, and the last one that is not beyond `most`; -1: not supported. */
static int xids_of(const struct state *state, unsigned gpu, unsigned most, unsigned *last)
{
    char value[256], *rest = NULL;
    int count = 0;

    if (!device_text(state, gpu, "xids", value, sizeof value))
        return -1;
    for (char *word = strtok_r(value, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        if ((unsigned)count++ < most)
            *last = (unsigned)strtoul(word, NULL, 10);
    return count;
}

int nvmlEventSetCreate(struct events **events)
{
    struct state state;
    int refused = enter(__func__, &state);

    *events = refused ? NULL : calloc(1, sizeof **events);
    return refused;
}

int nvmlEventSetFree(struct events *events)
{
    free(events);
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(Device device, uint64_t types, struct events *events)
{
    struct state state;
    unsigned last, gpu = (unsigned)device - 1;
    int refused = enter_device(__func__, device, &state);
    int count = refused ? 0 : xids_of(&state, gpu, 0, &last);

    if (refused || types != XID || gpu >= MAX_DEVICES)
        return refused ? refused : INVALID_ARGUMENT;
    if (count < 0)
        return NOT_SUPPORTED;
    events->watched[gpu] = 1;
    events->told[gpu] = (unsigned)count; /* what was before is not told */
    return SUCCESS;
}

int nvmlEventSetWait_v2(struct events *events, struct event *event, unsigned milliseconds)
{
    struct state state;
    int lost = 0, refused = enter(__func__, &state);
    unsigned xid = 0;

    for (unsigned gpu = 0; !refused && gpu < MAX_DEVICES; gpu++) {
        if (!events->watched[gpu])
            continue;
        if (xids_of(&state, gpu, events->told[gpu] + 1, &xid) > (int)events->told[gpu]) {
            events->told[gpu]++;
            *event = (struct event){ .device = (Device)gpu + 1, .type = XID, .data = xid,
                                     .gpu_instance = UINT32_MAX, .compute_instance = UINT32_MAX };
            return SUCCESS;
        }
        lost |= device_number(&state, gpu, "lost", 0) != 0;
    }
    if (refused || lost)
        return refused ? refused : GPU_IS_LOST;
    usleep(milliseconds * 1000);
    return TIMEOUT;
}

struct memory { uint64_t total, free, used; };

/* What is there, what the driver keeps, and what others than processes use. */
static void fixed_memory(const struct state *state, unsigned gpu, uint64_t *total,
                         uint64_t *reserved, uint64_t *used)
{
    *total = (uint64_t)device_number(state, gpu, "total", 0);
    *reserved = (uint64_t)device_number(state, gpu, "reserved", 0);
    int64_t free = device_number(state, gpu, "free", (int64_t)(*total - *reserved));
    *used = (uint64_t)device_number(state, gpu, "used", (int64_t)(*total - *reserved) - free);
}

static int read_memory(const char *function, Device device, struct memory *memory,
                       uint64_t *reserved)
{
    struct state state;
    struct hold holds[MAX_HOLDS];
    unsigned gpu = (unsigned)device - 1;
    int refused = enter_device(function, device, &state);

    if (!refused)
        refused = (int)device_number(&state, gpu, "memory", SUCCESS);
    if (refused)
        return refused;
    fixed_memory(&state, gpu, &memory->total, reserved, &memory->used);
    for (unsigned i = 0, count = holds_list(&state, holds); i < count; i++)
        memory->used += holds[i].gpu == gpu ? holds[i].bytes : 0;
    memory->free = memory->used + *reserved < memory->total
                       ? memory->total - *reserved - memory->used : 0;
    return SUCCESS;
}

/* The first version counts what the driver reserves as used. */
int nvmlDeviceGetMemoryInfo(Device device, struct memory *memory)
{
    uint64_t reserved = 0;
    int refused = read_memory(__func__, device, memory, &reserved);

    if (!refused)
        memory->used += reserved;
    return refused;
}

struct process { unsigned pid; uint64_t bytes; unsigned gpu_instance, compute_instance; };

struct listing { struct process *processes; unsigned found, room; int sizes; };

static void add(struct listing *listing, unsigned pid, uint64_t bytes)
{
    if (listing->processes && listing->found < listing->room)
        listing->processes[listing->found] = (struct process){
            .pid = pid, .bytes = listing->sizes ? bytes : UNKNOWN_SIZE,
            .gpu_instance = UINT32_MAX, .compute_instance = UINT32_MAX,
        };
    listing->found++;
}

static void add_fixed(struct listing *listing, char *words)
{
    char *rest = NULL;

    for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        const char *colon = strchr(word, ':');
        int known = colon && colon[1] != '?';
        add(listing, (unsigned)strtoul(word, NULL, 10),
            known ? strtoull(colon + 1, NULL, 0) : UNKNOWN_SIZE);
    }
}

static void add_holders(struct listing *listing, const struct state *state, unsigned gpu, char kind)
{
    struct hold holds[MAX_HOLDS];
    int ghosts = device_number(state, gpu, "ghosts", 0) != 0;

    for (unsigned i = 0, count = holds_list(state, holds); i < count; i++)
        if (holds[i].gpu == gpu && holds[i].kind == kind &&
            (holds[i].alive || holds[i].ghost || ghosts))
            add(listing, (unsigned)holds[i].pid, holds[i].bytes);
}

static int list(const char *function, Device device, const char *key, char kind, unsigned *count,
                struct process *processes)
{
    struct state state;
    char value[TEXT] = "", sizes[16];
    unsigned gpu = (unsigned)device - 1;
    struct listing listing = { .processes = processes, .room = *count };
    int refused = enter_device(function, device, &state);

    if (refused)
        return refused;
    device_text(&state, gpu, "listing", value, sizeof value);
    if (atoi(value))
        return atoi(value);
    listing.sizes = !device_text(&state, gpu, "sizes", sizes, sizeof sizes);
    if (strcmp(value, "hidden") != 0) {
        if (device_text(&state, gpu, key, value, sizeof value))
            add_fixed(&listing, value);
        add_holders(&listing, &state, gpu, kind);
    }
    *count = listing.found;
    return listing.found > listing.room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define LIST(FUNCTION, KEY, KIND)                                               \
    int FUNCTION(Device device, unsigned *count, struct process *found)         \
    {                                                                           \
        return list(#FUNCTION, device, KEY, KIND, count, found);                \
    }

LIST(nvmlDeviceGetComputeRunningProcesses_v2, "compute", 'C')

#ifndef OLD_DRIVER
struct memory_v2 { unsigned version; uint64_t total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(Device device, struct memory_v2 *memory)
{
    struct memory read = { 0 };
    int refused = read_memory(__func__, device, &read, &memory->reserved);

    memory->total = read.total;
    memory->free = read.free;
    memory->used = read.used;
    return refused;
}

LIST(nvmlDeviceGetComputeRunningProcesses_v3, "compute", 'C')
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics", 'G')
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps", 'M')
#endif

/* --- what no driver has: programs of the tests take pretend memory with these --------------- */

/* Takes bytes on a device for the calling process; gives them back where negative. */
int pretendAlloc(unsigned gpu, long long bytes)
{
    struct state state;
    uint64_t total, reserved, used;

    if (!state_read(&state))
        return DRIVER_NOT_LOADED;
    if (gpu >= (unsigned)state_number(&state, "count", 1))
        return INVALID_ARGUMENT;
    if (device_number(&state, gpu, "lost", 0))
        return GPU_IS_LOST;
    fixed_memory(&state, gpu, &total, &reserved, &used);
    return holds_take(&state, gpu, bytes, (int64_t)(total - reserved - used)) ? SUCCESS
                                                                            : OUT_OF_MEMORY;
}

/* How what is taken from now on behaves: 'C', 'G' or 'M'; see holds.h for the others. */
void pretendBehave(char kind, long long delay_ms, int ghost)
{
    holds_behave(kind, delay_ms, ghost);
}
