#include "holds.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 512, HEADER = 64, MAX_DEVICES = 32, LOCK_ATTEMPTS = 1000 };
static const char LINE[] = "died=%019lld delay=%+019lld ghost=%d\n";

/* What this process holds itself. Closing any descriptor of such a file would drop its lock,
 * so the name is all that is ever looked at. A fork holds nothing of its parent's. */
static struct { char name[96]; int file; } own[MAX_DEVICES];
static pid_t owner;
static char own_kind = 'C';
static int64_t own_delay_ms = AS_THE_STATE_SAYS;
static int own_ghost;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static const char *inside(char *path, const char *name)
{
    holds_directory(path, PATH / 2);
    strcat(path, "/");
    return strncat(path, name, PATH / 2 - 2);
}

static void forget_parent(void)
{
    if (owner == getpid())
        return;
    for (unsigned i = 0; i < MAX_DEVICES; i++) {
        if (own[i].name[0])
            close(own[i].file);
        own[i].name[0] = '\0';
    }
    owner = getpid();
}

static int is_own(const char *name)
{
    for (unsigned i = 0; i < MAX_DEVICES; i++)
        if (strcmp(own[i].name, name) == 0)
            return 1;
    return 0;
}

static void write_log(const char *name, const char *format, ...)
{
    char path[PATH], line[160];
    va_list arguments;
    int file = open(inside(path, name), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);

    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (file < 0)
        return;
    fchmod(file, 0666); /* whatever the umask; fails for all but the owner, who has done it */
    if (write(file, line, (size_t)length) < 0)
        perror("pretend driver");
    close(file);
}

/* Sets `hold->alive`, and `hold->pid` to what it is called from here. */
static void look_for_life(int file, struct hold *hold)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

    hold->alive = fcntl(file, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    if (hold->alive && lock.l_pid > 0)
        hold->pid = lock.l_pid;
}

/* Whether a dead hold's bytes are still in use; the file is gone when they are not. */
static int lingers(const struct state *state, const char *path, int file, int writable,
                   struct hold *hold)
{
    char header[HEADER + 1] = "";
    long long died = 0, delay = AS_THE_STATE_SAYS;
    int64_t now = now_us();

    if (pread(file, header, HEADER, 0) > 0)
        sscanf(header, "died=%19lld delay=%19lld ghost=%d", &died, &delay, &hold->ghost);
    if (delay == AS_THE_STATE_SAYS)
        delay = device_number(state, hold->gpu, "release_ms", state_number(state, "release_ms", 0));
    if (!died && (delay == 0 || writable)) {
        died = now;
        snprintf(header, sizeof header, LINE, died, 0LL, 0);
        if (writable && pwrite(file, header, strcspn(header, " "), 0) < 0)
            return 1;
    }
    if (!died || delay == NEVER || now < died + delay * 1000)
        return 1;
    if (unlink(path) == 0)
        write_log("released", "%lld %lld %d %u %llu\n", died + delay * 1000, died, hold->pid,
                  hold->gpu, (unsigned long long)hold->bytes);
    return 0;
}

static int in_use(const struct state *state, const char *name, struct hold *hold)
{
    char path[PATH];
    struct stat status;
    int used = 1, writable = 1;

    if (is_own(name)) {
        hold->alive = 1;
        used = stat(inside(path, name), &status) == 0;
        hold->bytes = used ? (uint64_t)status.st_size : 0;
        return used;
    }
    int file = open(inside(path, name), O_RDWR | O_CLOEXEC);
    if (file < 0) {
        writable = 0;
        file = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (file < 0)
        return 0;
    fstat(file, &status);
    hold->bytes = (uint64_t)status.st_size;
    look_for_life(file, hold);
    if (!hold->alive)
        used = status.st_nlink > 0 && lingers(state, path, file, writable, hold);
    close(file);
    return used;
}

unsigned holds_list(const struct state *state, struct hold found[MAX_HOLDS])
{
    char path[PATH];
    unsigned count = 0;
    struct dirent *entry;

    pthread_mutex_lock(&mutex);
    forget_parent();
    DIR *directory = opendir(holds_directory(path, PATH / 2));
    while (directory && count < MAX_HOLDS && (entry = readdir(directory))) {
        struct hold hold = { 0 };
        if (sscanf(entry->d_name, "%d.%u.%c.", &hold.pid, &hold.gpu, &hold.kind) == 3 &&
            in_use(state, entry->d_name, &hold))
            found[count++] = hold;
    }
    if (directory)
        closedir(directory);
    pthread_mutex_unlock(&mutex);
    return count;
}

/* Keeps others from allocating meanwhile. One that is stopped by a signal just now must not
 * stop them for good: after a second they go on without. */
static int lock_allocations(void)
{
    char path[PATH];
    int file;

    if (mkdir(holds_directory(path, PATH / 2), 0777) == 0)
        chmod(path, 0777);
    file = open(inside(path, ".lock"), O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
    for (int i = 0; file >= 0 && i < LOCK_ATTEMPTS && flock(file, LOCK_EX | LOCK_NB); i++)
        usleep(1000);
    return file;
}

/* A new hold. It gets its name once it is locked: nobody ever sees it and takes it for dead. */
static int create(unsigned gpu, int64_t bytes)
{
    char header[HEADER], new[PATH], path[PATH], name[96];
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    int length = snprintf(header, sizeof header, LINE, 0LL, (long long)own_delay_ms, own_ghost);

    snprintf(name, sizeof name, ".new-%d-%u", getpid(), gpu);
    int file = open(inside(new, name), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0)
        return 0;
    snprintf(name, sizeof name, "%d.%u.%c.%lld", getpid(), gpu, own_kind, (long long)now_us());
    if (fchmod(file, 0666) || fcntl(file, F_SETLK, &lock) || write(file, header, length) < 0 ||
        ftruncate(file, bytes) || rename(new, inside(path, name))) {
        close(file);
        return 0;
    }
    strcpy(own[gpu].name, name);
    own[gpu].file = file;
    return 1;
}

static int change(unsigned gpu, int64_t held, int64_t bytes)
{
    char path[PATH];

    if (!own[gpu].name[0])
        return bytes <= 0 || create(gpu, bytes < HEADER ? HEADER : bytes);
    if (held + bytes > HEADER)
        return ftruncate(own[gpu].file, held + bytes) == 0;
    unlink(inside(path, own[gpu].name));
    own[gpu].name[0] = '\0';
    close(own[gpu].file);
    return 1;
}

int holds_take(const struct state *state, unsigned gpu, int64_t bytes, int64_t capacity)
{
    struct hold found[MAX_HOLDS];
    struct stat status = { 0 };
    int64_t used = 0;
    int lock = lock_allocations();
    unsigned count = holds_list(state, found);
    int fits;

    for (unsigned i = 0; i < count; i++)
        used += found[i].gpu == gpu ? (int64_t)found[i].bytes : 0;
    fits = gpu < MAX_DEVICES && (bytes <= 0 || used + bytes <= capacity);
    if (!fits)
        write_log("oom", "%lld %d %u %lld %lld\n", (long long)now_us(), getpid(), gpu,
                  (long long)bytes, (long long)(capacity - used));
    pthread_mutex_lock(&mutex);
    if (fits && own[gpu].name[0])
        fstat(own[gpu].file, &status);
    fits = fits && change(gpu, status.st_size, bytes);
    pthread_mutex_unlock(&mutex);
    if (lock >= 0)
        close(lock);
    return fits;
}

void holds_behave(char kind, int64_t delay_ms, int ghost)
{
    own_kind = kind;
    own_delay_ms = delay_ms;
    own_ghost = ghost;
}
