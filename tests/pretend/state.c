#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifndef DEFAULT_STATE
#define DEFAULT_STATE "/var/lib/pretend-gpu/state"
#endif
#ifndef DEFAULT_HOLDS
/* Below /dev even a unit with ProtectSystem=strict may write, RemoveIPC= removes nothing,
 * and nothing is left after a reboot. */
#define DEFAULT_HOLDS "/dev/pretend-gpu"
#endif

int state_read(struct state *state)
{
    const char *path = getenv("FAKE_NVML_STATE");
    int file = open(path ? path : DEFAULT_STATE, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, state->text + 1, sizeof state->text - 2);

    if (file >= 0)
        close(file);
    state->text[0] = '\n'; /* so that every key follows a line's end */
    state->text[length > 0 ? length + 1 : 1] = '\0';
    return length >= 0;
}

int state_text(const struct state *state, const char *key, char *value, size_t size)
{
    char line[160];
    const char *found;

    snprintf(line, sizeof line, "\n%s=", key);
    found = strstr(state->text, line);
    if (!found)
        return 0;
    found += strlen(line);
    snprintf(value, size, "%.*s", (int)strcspn(found, "\n"), found);
    return 1;
}

static int64_t parsed(const char *text)
{
    char *end;
    int64_t number = strtoll(text, &end, 0);

    if (strcmp(text, "never") == 0)
        return -1;
    return *end == 'G' ? number << 30 : *end == 'M' ? number << 20 : *end == 'K' ? number << 10 : number;
}

int64_t state_number(const struct state *state, const char *key, int64_t otherwise)
{
    char value[64];
    return state_text(state, key, value, sizeof value) ? parsed(value) : otherwise;
}

int device_text(const struct state *state, unsigned gpu, const char *key, char *value, size_t size)
{
    char one[128], any[128];

    snprintf(one, sizeof one, "%u.%s", gpu, key);
    snprintf(any, sizeof any, "*.%s", key);
    return state_text(state, one, value, size) || state_text(state, any, value, size);
}

int64_t device_number(const struct state *state, unsigned gpu, const char *key, int64_t otherwise)
{
    char value[64];
    return device_text(state, gpu, key, value, sizeof value) ? parsed(value) : otherwise;
}

const char *holds_directory(char *path, size_t size)
{
    const char *state = getenv("FAKE_NVML_STATE");

    snprintf(path, size, "%s%s", state ? state : DEFAULT_HOLDS, state ? ".holds" : "");
    return path;
}

int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}
