/* Reads many streams of the fast engine at once and checks every byte of them.
 *
 *   streams PORT STREAMS CHUNKS EVERY_US
 *
 * One line of JSON: how many streams there were, how many were not what the engine had sent
 * (an event lost, repeated or moved, a wrong checksum, no proper end, another status), and how
 * late events were: from just before the engine's write until they had been read here.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stream.h"

enum { RAW_MAX = 1 << 15, TEXT_MAX = 1 << 14, LATEST_US = 10 * 1000 * 1000 };

enum where { HEAD, SIZE, DATA, DATA_END, END, DONE };

struct reader {
    int fd;
    enum where where;
    /* Bytes that have come and are not parsed yet. */
    size_t got;
    char raw[RAW_MAX];
    /* Bytes of the body that are no whole event yet. */
    size_t text_len;
    char text[TEXT_MAX];
    size_t left;
    long events;
    uint64_t sum;
    int checked;
};

static long chunks;
static long total;
static uint32_t *late_us; /* how many events were late by so many microseconds */
static const char *wrong; /* why the first stream that is corrupt is so */

static int corrupt(const char *why)
{
    if (!wrong)
        wrong = why;
    return -1;
}

static void note(uint64_t sent_ns, uint64_t now)
{
    uint64_t us = now > sent_ns ? (now - sent_ns) / 1000 : 0;
    late_us[us < LATEST_US ? us : LATEST_US - 1]++;
    total++;
}

/* One whole event, its blank line included; -1: not the one that is due. */
static int event(struct reader *r, const char *text, size_t n, uint64_t now)
{
    long seq;
    uint64_t ns, sum;
    char copy[2048];
    if (n >= sizeof copy)
        return corrupt("an event is too long");
    memcpy(copy, text, n);
    copy[n] = 0;
    if (sscanf(copy, "data: {\"seq\":%ld,\"ns\":%" SCNu64 ",", &seq, &ns) == 2) {
        if (seq != r->events++ || r->checked)
            return corrupt("an event is out of order");
        r->sum = checksum(r->sum, text, n);
        note(ns, now);
        return 0;
    }
    if (sscanf(copy, "data: {\"sum\":\"%16" SCNx64 "\"}", &sum) == 1) {
        r->checked = sum == r->sum && r->events == chunks;
        return r->checked ? 0 : corrupt("the checksum or the number of events is wrong");
    }
    return strcmp(copy, "data: [DONE]\n\n") == 0 && r->checked ? 0 : corrupt("an unknown event");
}

static int body(struct reader *r, const char *bytes, size_t n, uint64_t now)
{
    if (r->text_len + n > TEXT_MAX)
        return corrupt("no event ends");
    memcpy(r->text + r->text_len, bytes, n);
    r->text_len += n;
    for (;;) {
        char *end = memmem(r->text, r->text_len, "\n\n", 2);
        if (!end)
            return 0;
        size_t length = (size_t)(end + 2 - r->text);
        if (event(r, r->text, length, now))
            return -1;
        r->text_len -= length;
        memmove(r->text, r->text + length, r->text_len);
    }
}

static int head(const char *text)
{
    if (strncmp(text, "HTTP/1.1 200 ", 13) != 0)
        return corrupt("another status");
    return strcasestr(text, "\r\nTransfer-Encoding: chunked\r\n") ? 0 : corrupt("not chunked");
}

/* Take a line off the front; its length with its end, 0: none yet. */
static size_t line(struct reader *r, size_t at, const char *end)
{
    char *found = memmem(r->raw + at, r->got - at, end, strlen(end));
    return found ? (size_t)(found - r->raw) + strlen(end) - at : 0;
}

/* Parse what has come; -1: corrupt. */
static int parse(struct reader *r, uint64_t now)
{
    size_t at = 0, n;
    while (at < r->got && r->where != DONE) {
        if (r->where == DATA) {
            n = r->got - at < r->left ? r->got - at : r->left;
            if (body(r, r->raw + at, n, now))
                return -1;
            at += n;
            if (!(r->left -= n))
                r->where = DATA_END;
            continue;
        }
        if (!(n = line(r, at, r->where == HEAD ? "\r\n\r\n" : "\r\n")))
            break;
        r->raw[at + n - 1] = 0;
        if (r->where == HEAD) {
            if (head(r->raw + at))
                return -1;
            r->where = SIZE;
        } else if (r->where == SIZE) {
            char *end;
            r->left = strtoul(r->raw + at, &end, 16);
            if (end == r->raw + at || *end != '\r')
                return corrupt("no chunk size");
            r->where = r->left ? DATA : END;
        } else {
            if (n != 2)
                return corrupt("no end of a chunk");
            r->where = r->where == DATA_END ? SIZE : DONE;
        }
        at += n;
    }
    r->got -= at;
    memmove(r->raw, r->raw + at, r->got);
    if (r->where == DONE && (r->got || r->text_len || !r->checked))
        return corrupt("bytes after the end");
    return 0;
}

/* Read what is there; 1: the stream is whole, -1: corrupt, 0: more to come. */
static int readable(struct reader *r)
{
    for (;;) {
        if (r->got == RAW_MAX)
            return corrupt("a line is too long");
        ssize_t n = recv(r->fd, r->raw + r->got, RAW_MAX - r->got, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            return corrupt("closed before its end");
        r->got += (size_t)n;
        if (parse(r, now_ns()))
            return -1;
        if (r->where == DONE)
            return 1;
    }
}

static int ask(struct reader *r, int port, int poller, long every_us, void *tag)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    char text[512], request[1024];
    int yes = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    r->fd = socket(AF_INET, SOCK_STREAM, 0);
    r->sum = CHECKSUM_START;
    if (r->fd < 0 || connect(r->fd, (struct sockaddr *)&address, sizeof address))
        return corrupt("no connection");
    setsockopt(r->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    int body_len = snprintf(text, sizeof text,
                            "{\"model\":\"fast\",\"messages\":[],\"stream\":true,\"chunks\":%ld,"
                            "\"every_us\":%ld}",
                            chunks, every_us);
    int n = snprintf(request, sizeof request,
                     "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
                     "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                     port, body_len, text);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = tag};
    if (send(r->fd, request, (size_t)n, MSG_NOSIGNAL) != n ||
        epoll_ctl(poller, EPOLL_CTL_ADD, r->fd, &event))
        return corrupt("the request was not taken");
    return 0;
}

static double late_ms(double share)
{
    long wanted = (long)(share * (double)total), seen = 0;
    for (long us = 0; us < LATEST_US; us++)
        if ((seen += late_us[us]) > wanted)
            return (double)us / 1000;
    return 0;
}

/* Read all streams; how many were corrupt. Their beginnings are spread over one interval. */
static int run(struct reader *readers, int count, int port, long every_us)
{
    struct epoll_event events[256];
    int poller = epoll_create1(0), open = 0, bad = 0;
    for (int i = 0; i < count; i++) {
        if (ask(&readers[i], port, poller, every_us, &readers[i]))
            bad++;
        else
            open++;
        usleep((useconds_t)(every_us / count + 1));
    }
    while (open) {
        int n = epoll_wait(poller, events, 256, 20000);
        if (n == 0) {
            corrupt("nothing came for 20 s");
            return bad + open;
        }
        for (int i = 0; i < n; i++) {
            struct reader *r = events[i].data.ptr;
            int over = readable(r);
            if (over) {
                bad += over < 0;
                open--;
                close(r->fd);
            }
        }
    }
    return bad;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int count = atoi(argv[2]);
    long every_us = atol(argv[4]);
    chunks = atol(argv[3]);
    late_us = calloc(LATEST_US, sizeof *late_us);
    struct reader *readers = calloc((size_t)count, sizeof *readers);
    if (!late_us || !readers)
        return 1;
    int bad = run(readers, count, atoi(argv[1]), every_us);
    printf("{\"streams\":%d,\"corrupt\":%d,\"why\":\"%s\",\"events\":%ld,"
           "\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f}\n",
           count, bad, wrong ? wrong : "", total, late_ms(0.5), late_ms(0.99), late_ms(0.999999));
    return 0;
}
