/* Samples who owns pretend GPUs in a box, as the machine's kernel sees it.
 *
 *   watch INTERVAL_US GROUP...
 *
 * Each GROUP is the control group of one backend. Of every process in it that is alive, a sample
 * asks the kernel for two things: a file among the pretend driver's holds that carries its pid,
 * and a descriptor whose description has an exclusive flock on a lease (/proc/PID/fdinfo, which
 * tells a held lock from an open file). Either makes its group an owner. No lock is ever tried:
 * that would disturb those who mean it.
 *
 * On standard input, "holds PATH" says where the holds are; they move with every boot. Prints
 *
 *   owners MICROSECONDS MASK            when the set of owners has changed
 *   together MICROSECONDS MASK TEXT     two looks in a row found these: they owned at once
 *   samples COUNT LONGEST_GAP_US        once a second, since the last such line
 *
 * A look takes a while, and what is handed over meanwhile could be counted twice. So a process
 * counts as together with others only when the look before found it too: then all of them owned
 * between the end of that look and the start of this one.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GROUPS = 16, HOLDS = 128, MEMBERS = 64, CACHE = 4096, PATH = 512 };

struct look {
    unsigned mask;
    int pid[GROUPS];         /* the owner that was found first */
    const char *how[GROUPS]; /* what makes it one */
};

static char holds_path[PATH];
static int holds[HOLDS], hold_count;
static struct { int pid, inner; unsigned long long born; } names[CACHE];

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static ssize_t slurp(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, size - 1);

    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = '\0';
    return length;
}

static void read_holds(void)
{
    DIR *directory = holds_path[0] ? opendir(holds_path) : NULL;
    struct dirent *entry;

    hold_count = 0;
    while (directory && hold_count < HOLDS && (entry = readdir(directory))) {
        int pid;
        unsigned gpu;
        char kind;
        if (sscanf(entry->d_name, "%d.%u.%c.", &pid, &gpu, &kind) == 3)
            holds[hold_count++] = pid;
    }
    if (directory)
        closedir(directory);
}

/* The pid by which the process is known in its box; 0: it is dead. */
static int inner_pid(int pid)
{
    char path[64], text[4096], state, *rest;
    unsigned long long born;
    unsigned slot = (unsigned)pid % CACHE;

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (slurp(path, text, sizeof text) <= 0 || !(rest = strrchr(text, ')')))
        return 0;
    if (sscanf(rest + 2, "%c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &state, &born) != 2 || state == 'Z' || state == 'X')
        return 0;
    if (names[slot].pid == pid && names[slot].born == born)
        return names[slot].inner;
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    if (slurp(path, text, sizeof text) <= 0 || !(rest = strstr(text, "\nNSpid:")))
        return 0;
    rest[1 + strcspn(rest + 1, "\n")] = '\0';
    names[slot].pid = pid;
    names[slot].born = born;
    return names[slot].inner = atoi(strrchr(rest, '\t') + 1);
}

static int has_lease(int pid)
{
    char path[300], text[1024];
    int found = 0;
    struct dirent *entry;

    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *directory = opendir(path);
    while (directory && !found && (entry = readdir(directory))) {
        ssize_t length = readlinkat(dirfd(directory), entry->d_name, text, sizeof text - 1);
        if (length <= 0 || (text[length] = '\0', !strstr(text, "/appliance-leases/")))
            continue;
        snprintf(path, sizeof path, "/proc/%d/fdinfo/%s", pid, entry->d_name);
        found = slurp(path, text, sizeof text) > 0 && strstr(text, "FLOCK") && strstr(text, "WRITE");
    }
    if (directory)
        closedir(directory);
    return found;
}

static const char *owns(int pid)
{
    int inner = inner_pid(pid);

    for (int i = 0; inner && i < hold_count; i++)
        if (holds[i] == inner)
            return "VRAM";
    return inner && has_lease(pid) ? "lease" : NULL;
}

static void look(int count, char **groups, struct look *found)
{
    char path[PATH], text[8192];

    found->mask = 0;
    read_holds();
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/cgroup.procs", groups[i]);
        if (slurp(path, text, sizeof text) <= 0)
            continue;
        for (char *word = strtok(text, "\n"); word; word = strtok(NULL, "\n")) {
            if ((found->how[i] = owns(atoi(word)))) {
                found->mask |= 1u << i;
                found->pid[i] = atoi(word);
                break;
            }
        }
    }
}

static void listen_until(int64_t until)
{
    static char line[PATH];
    static size_t filled;
    struct pollfd input = { .fd = 0, .events = POLLIN };
    int64_t left;

    while ((left = until - now_us()) > 0) {
        struct timespec pause = { .tv_nsec = left * 1000 };
        if (ppoll(&input, 1, &pause, NULL) <= 0)
            continue;
        ssize_t length = read(0, line + filled, sizeof line - filled - 1);
        if (length <= 0)
            exit(0);
        filled += (size_t)length;
        line[filled] = '\0';
        if (filled == sizeof line - 1 || strchr(line, '\n')) {
            line[strcspn(line, "\n")] = '\0';
            strcpy(holds_path, strncmp(line, "holds ", 6) == 0 ? line + 6 : "");
            filled = 0;
        }
    }
}

static void tell_together(const struct look *a, const struct look *b, int count)
{
    unsigned mask = 0;
    char text[512] = "";

    for (int i = 0; i < count; i++)
        if ((a->mask & b->mask) >> i & 1 && a->pid[i] == b->pid[i]) {
            size_t used = strlen(text);
            mask |= 1u << i;
            snprintf(text + used, sizeof text - used, " %d:%s", b->pid[i], b->how[i]);
        }
    if (mask & (mask - 1))
        printf("together %lld %u%s\n", (long long)now_us(), mask, text);
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc - 2 > GROUPS)
        return 2;
    struct look before = { .mask = 0 }, now = { .mask = 0 };
    int64_t interval = atoll(argv[1]), next = now_us(), last = next, told = next, longest = 0;
    unsigned shown = ~0u;
    long samples = 0;

    if (nice(-15) == -1)
        perror("watch: nice");
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (;;) {
        look(argc - 2, argv + 2, &now);
        int64_t at = now_us();
        longest = at - last > longest ? at - last : longest;
        last = at;
        samples++;
        if (now.mask & (now.mask - 1)) {
            before = now;
            look(argc - 2, argv + 2, &now);
            tell_together(&before, &now, argc - 2);
        }
        if (now.mask != shown)
            printf("owners %lld %u\n", (long long)at, shown = now.mask);
        if (at - told >= 1000000) {
            printf("samples %ld %lld\n", samples, (long long)longest);
            told = at, samples = 0, longest = 0;
        }
        next = next + interval > at ? next + interval : at + interval / 4;
        listen_until(next);
    }
}
