/* A clock that a test can set, for programs that are started with LD_PRELOAD=this.
 *
 * The file /var/lib/chaos/clock has eight bytes, the nanoseconds to add to the time of day.
 * Clocks that nobody can set are left alone, as a real jump leaves them alone.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define OFFSET_FILE "/var/lib/chaos/clock"
enum { SECOND = 1000000000 };
static const volatile int64_t *offset;

__attribute__((constructor)) static void find_offset(void)
{
    int file = open(OFFSET_FILE, O_RDONLY | O_CLOEXEC);
    void *page = file < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);

    if (file >= 0)
        close(file);
    if (page != MAP_FAILED)
        offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);

    if (result == 0 && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t shifted = now->tv_nsec + *offset % SECOND;
        now->tv_sec += *offset / SECOND + (shifted >= SECOND) - (shifted < 0);
        now->tv_nsec = shifted + (shifted < 0 ? SECOND : 0) - (shifted >= SECOND ? SECOND : 0);
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    int result = clock_gettime(CLOCK_REALTIME, &precise);

    (void)zone;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return result;
}

time_t time(time_t *now)
{
    struct timespec precise;

    clock_gettime(CLOCK_REALTIME, &precise);
    if (now)
        *now = precise.tv_sec;
    return precise.tv_sec;
}
