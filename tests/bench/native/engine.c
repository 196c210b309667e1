/* A fast engine that thinks nothing: what a relay in front of it costs is all there is to see.
 *
 *   engine PORT            (0: any free port; the port is printed once it listens)
 *
 * Any request is answered with a small chat completion of fixed size, over a connection that is
 * kept. A request whose body has "stream":true gets server-sent events instead: "chunks":N of
 * them, one each "every_us":N microseconds (0: as fast as they are taken), every event one HTTP
 * chunk with its number and the time it was sent at. The last event has a checksum of all bytes
 * before it, so whoever reads the stream can tell whether one was lost, repeated or moved.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stream.h"

enum { READ_MAX = 1 << 16, EVENT_MAX = 1024, CONNECTIONS = 4096 };

struct connection {
    int fd;
    size_t got;
    char in[READ_MAX];
    /* What the kernel did not take yet, of one answer or of one event. */
    size_t out_at, out_len;
    char out[EVENT_MAX * 2];
    int streaming;
    long chunks, sent;
    uint64_t every_ns, due_ns, sum;
};

static struct connection *connections[CONNECTIONS];
static int streams;
static int poller;

static const char BODY[] =
    "{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion\",\"created\":1700000000,"
    "\"model\":\"fast\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
    "\"The quick brown fox jumps over the lazy dog, and thinks nothing of it. The dog sleeps on.\"},"
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":20,"
    "\"total_tokens\":32}}";

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void drop(struct connection *c)
{
    streams -= c->streaming;
    close(c->fd);
    connections[c->fd] = NULL;
    free(c);
}

/* 1: all is out; 0: the kernel wants no more now; -1: the connection is gone. */
static int flush(struct connection *c)
{
    while (c->out_at < c->out_len) {
        ssize_t n = send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN ? 0 : -1;
        c->out_at += (size_t)n;
    }
    c->out_at = c->out_len = 0;
    return 1;
}

static void put(struct connection *c, const char *bytes, size_t n)
{
    memcpy(c->out + c->out_len, bytes, n);
    c->out_len += n;
}

static void put_chunk(struct connection *c, const char *text, size_t n)
{
    char size[16];
    put(c, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
    put(c, text, n);
    put(c, "\r\n", 2);
}

static void next_event(struct connection *c)
{
    char text[EVENT_MAX];
    if (c->sent < c->chunks) {
        /* Lengths differ, so that no boundary of the stream is anybody's boundary for long. */
        int pad = (int)(c->sent * 37 % 160);
        int n = snprintf(text, sizeof text,
                         "data: {\"seq\":%ld,\"ns\":%" PRIu64 ",\"pad\":\"%.*s\"}\n\n", c->sent,
                         now_ns(), pad, PADDING);
        c->sum = checksum(c->sum, text, (size_t)n);
        put_chunk(c, text, (size_t)n);
        c->sent++;
        return;
    }
    int n = snprintf(text, sizeof text, "data: {\"sum\":\"%016" PRIx64 "\"}\n\ndata: [DONE]\n\n",
                     c->sum);
    put_chunk(c, text, (size_t)n);
    put(c, "0\r\n\r\n", 5);
    c->streaming = 0;
    streams--;
}

/* What is due on a stream; -1: the connection is gone. A reader that never lags gets no more than
 * its share before the others have had theirs. */
static int run_stream(struct connection *c, uint64_t now)
{
    int flushed = flush(c), share = 64;
    while (flushed == 1 && c->streaming && c->due_ns <= now && share--) {
        next_event(c);
        c->due_ns += c->every_ns;
        flushed = flush(c);
    }
    return flushed;
}

static long number(const char *body, const char *key, long otherwise)
{
    const char *at = strstr(body, key);
    return at ? strtol(at + strlen(key), NULL, 10) : otherwise;
}

static void begin_stream(struct connection *c, const char *body)
{
    static const char HEAD[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                               "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    put(c, HEAD, sizeof HEAD - 1);
    c->chunks = number(body, "\"chunks\":", 10);
    c->every_ns = (uint64_t)number(body, "\"every_us\":", 20000) * 1000;
    c->due_ns = now_ns() + c->every_ns;
    c->sent = 0;
    c->sum = CHECKSUM_START;
    c->streaming = 1;
    streams++;
}

static void answer(struct connection *c, const char *body)
{
    if (strstr(body, "\"stream\":true") || strstr(body, "\"stream\": true")) {
        begin_stream(c, body);
        return;
    }
    char head[128];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     sizeof BODY - 1);
    put(c, head, (size_t)n);
    put(c, BODY, sizeof BODY - 1);
}

/* The length of the first whole request in the buffer and its body; 0: none yet, -1: no request. */
static long whole(struct connection *c, char **body)
{
    c->in[c->got] = 0;
    char *end = strstr(c->in, "\r\n\r\n");
    if (!end)
        return c->got + 1 >= READ_MAX ? -1 : 0;
    *end = 0;
    char *length = strcasestr(c->in, "\r\nContent-Length:");
    int chunked = strcasestr(c->in, "\r\nTransfer-Encoding:") != NULL;
    long size = length ? strtol(length + 17, NULL, 10) : 0;
    *end = '\r';
    *body = end + 4;
    long total = (long)(*body - c->in) + size;
    if (chunked || total >= READ_MAX)
        return -1;
    return total <= (long)c->got ? total : 0;
}

/* Answer what is there; -1: the connection is gone. */
static int serve(struct connection *c)
{
    char *body;
    long total = 0;
    while (!c->streaming && c->out_len == 0 && (total = whole(c, &body)) > 0) {
        char after = c->in[total];
        c->in[total] = 0;
        answer(c, body);
        c->in[total] = after;
        memmove(c->in, c->in + total, c->got - (size_t)total);
        c->got -= (size_t)total;
        if (flush(c) < 0)
            return -1;
    }
    return total < 0 ? -1 : 0;
}

static int receive(struct connection *c)
{
    for (;;) {
        if (c->got + 1 >= READ_MAX)
            return serve(c);
        ssize_t n = recv(c->fd, c->in + c->got, READ_MAX - 1 - c->got, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return -1;
        if (n < 0)
            return serve(c);
        c->got += (size_t)n;
    }
}

static void accept_all(int listener)
{
    int fd, yes = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (fd >= CONNECTIONS || !(connections[fd] = calloc(1, sizeof **connections))) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        connections[fd]->fd = fd;
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET | EPOLLRDHUP, .data.fd = fd};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event))
            fail("epoll_ctl");
    }
}

static void happened(const struct epoll_event *event)
{
    struct connection *c = connections[event->data.fd];
    if (!c)
        return;
    int gone = event->events & (EPOLLHUP | EPOLLERR) ? -1 : 0;
    if (!gone && event->events & EPOLLOUT)
        gone = c->streaming ? run_stream(c, now_ns()) : flush(c);
    if (gone >= 0 && event->events & (EPOLLIN | EPOLLRDHUP))
        gone = receive(c);
    if (gone < 0)
        drop(c);
}

static void tick(void)
{
    uint64_t now = now_ns();
    for (int fd = 0; streams && fd < CONNECTIONS; fd++) {
        struct connection *c = connections[fd];
        if (c && c->streaming && c->due_ns <= now) {
            if (run_stream(c, now) < 0 || (!c->streaming && serve(c) < 0))
                drop(c);
        }
    }
}

static int listening(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), yes = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 1024))
        fail("listen");
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    int listener = listening(argc > 1 ? atoi(argv[1]) : 0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[256];
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event))
        fail("epoll");
    for (;;) {
        int n = epoll_wait(poller, events, 256, streams ? 1 : -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                accept_all(listener);
            else
                happened(&events[i]);
        }
        tick();
    }
}
