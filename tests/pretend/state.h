/* What tests say about the pretend driver: a file of key=value lines, read again at every call. */
#ifndef PRETEND_STATE_H
#define PRETEND_STATE_H
#include <stddef.h>
#include <stdint.h>
#pragma GCC visibility push(hidden)

struct state { char text[1 << 14]; };

/* Reads the file; 0 when there is none: then there is no driver. */
int state_read(struct state *state);

/* Copies the value of `key`; 0 when there is none. */
int state_text(const struct state *state, const char *key, char *value, size_t size);

/* As a number, which may end in K, M or G; "never" is -1. */
int64_t state_number(const struct state *state, const char *key, int64_t otherwise);

/* Of one device: the line "3.key" comes before "*.key". */
int device_text(const struct state *state, unsigned gpu, const char *key, char *value, size_t size);
int64_t device_number(const struct state *state, unsigned gpu, const char *key, int64_t otherwise);

/* The directory where processes keep what they hold. */
const char *holds_directory(char *path, size_t size);

/* Microseconds of the clock that nobody can set, the same for every process of the machine. */
int64_t now_us(void);

#pragma GCC visibility pop
#endif
