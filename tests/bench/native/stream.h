/* What the engine writes and the reader checks. */
#ifndef STREAM_H
#define STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define CHECKSUM_START UINT64_C(0xcbf29ce484222325)

static const char PADDING[] =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-0123456789abcdefghijklmnop"
    "qrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOP";

/* The same clock in every process of the machine. */
static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

/* FNV-1a, 64 bits. */
static inline uint64_t checksum(uint64_t sum, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return sum;
}

#endif
