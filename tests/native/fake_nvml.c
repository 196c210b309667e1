/* A pretend libnvidia-ml.so.1, so that the unmodified binding can be run without a GPU.
 *
 * $FAKE_NVML_STATE names a file of key=value lines that is read again at every call; tests
 * replace it to make memory come back. Keys ("0" stands for any device's index):
 *
 *   init=CODE          what nvmlInit returns
 *   hang_s=N           every call after that first sleeps
 *   count=N            devices
 *   0.total= 0.free= 0.used=     bytes
 *   0.memory=CODE      what the memory calls return, 3 for "not supported"
 *   0.listing=CODE     what the process lists return
 *   0.compute=PID:BYTES,PID:?    processes; "?" for a size that the driver does not tell
 *   0.graphics=…
 *
 * Compiled with -DOLD_DRIVER it lacks the functions that came with driver 510.
 * The layout of the structures is the public NVML ABI, as the binding declares it.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };
enum { TEXT = 4096 };
static const uint64_t UNKNOWN_SIZE = UINT64_MAX;

/* Copies the value of `key` to `value`; 0 when the state file does not have it. */
static int lookup(const char *key, char *value)
{
    const char *path = getenv("FAKE_NVML_STATE");
    FILE *file = path ? fopen(path, "re") : NULL;
    size_t length = strlen(key);
    char line[TEXT];
    int found = 0;

    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == '=') {
            line[strcspn(line, "\n")] = '\0';
            strcpy(value, line + length + 1);
            found = 1;
        }
    }
    if (file)
        fclose(file);
    return found;
}

static uint64_t number(const char *key, uint64_t otherwise)
{
    char value[TEXT];
    return lookup(key, value) ? strtoull(value, NULL, 0) : otherwise;
}

static uint64_t device_number(uintptr_t device, const char *key, uint64_t otherwise)
{
    char full[64];
    snprintf(full, sizeof full, "%u.%s", (unsigned)device - 1, key);
    return number(full, otherwise);
}

static void maybe_hang(void)
{
    sleep((unsigned)number("hang_s", 0));
}

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return (int)number("init", getenv("FAKE_NVML_STATE") ? SUCCESS : DRIVER_NOT_LOADED);
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

const char *nvmlErrorString(int code)
{
    return code == 15 ? "GPU is lost" : "Pretended error";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    maybe_hang();
    *count = (unsigned)number("count", 1);
    return SUCCESS;
}

/* A handle is the index plus one: NULL is no handle. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, uintptr_t *device)
{
    *device = index + 1;
    return index < number("count", 1) ? (int)device_number(*device, "handle", SUCCESS)
                                      : INVALID_ARGUMENT;
}

int nvmlDeviceGetUUID(uintptr_t device, char *text, unsigned size)
{
    snprintf(text, size, "GPU-00000000-0000-4000-8000-%012u", (unsigned)device - 1);
    return SUCCESS;
}

int nvmlDeviceGetName(uintptr_t device, char *text, unsigned size)
{
    snprintf(text, size, "Pretend GPU %u", (unsigned)device - 1);
    return SUCCESS;
}

struct memory { uint64_t total, free, used; };

static int fill(uintptr_t device, uint64_t *total, uint64_t *free, uint64_t *used)
{
    *total = device_number(device, "total", 0);
    *free = device_number(device, "free", 0);
    *used = device_number(device, "used", *total - *free);
    return (int)device_number(device, "memory", SUCCESS);
}

int nvmlDeviceGetMemoryInfo(uintptr_t device, struct memory *memory)
{
    return fill(device, &memory->total, &memory->free, &memory->used);
}

struct process { unsigned pid; uint64_t bytes; unsigned gpu_instance, compute_instance; };

static int list(uintptr_t device, const char *kind, unsigned *count, struct process *processes)
{
    char key[64], value[TEXT];
    unsigned found = 0, room = *count;
    int refused = (int)device_number(device, "listing", SUCCESS);

    if (refused)
        return refused;
    snprintf(key, sizeof key, "%u.%s", (unsigned)device - 1, kind);
    for (char *word = lookup(key, value) ? strtok(value, ",") : NULL; word;
         word = strtok(NULL, ",")) {
        const char *colon = strchr(word, ':');
        if (processes && found < room)
            processes[found] = (struct process){
                .pid = (unsigned)strtoul(word, NULL, 10),
                .bytes = colon[1] == '?' ? UNKNOWN_SIZE : strtoull(colon + 1, NULL, 0),
            };
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(uintptr_t d, unsigned *count, struct process *found)
{
    return list(d, "compute", count, found);
}

#ifndef OLD_DRIVER
struct memory_v2 { unsigned version; uint64_t total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(uintptr_t device, struct memory_v2 *memory)
{
    return fill(device, &memory->total, &memory->free, &memory->used);
}

int nvmlDeviceGetComputeRunningProcesses_v3(uintptr_t d, unsigned *count, struct process *found)
{
    return list(d, "compute", count, found);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(uintptr_t d, unsigned *count, struct process *found)
{
    return list(d, "graphics", count, found);
}
#endif
