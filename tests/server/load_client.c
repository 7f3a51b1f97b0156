/*
 * Many streams of chat at once against a running server, one process and one thread, so that the processors
 * are left to the server:
 *
 *     load_client PORT STREAMS SECONDS [PID [BOUND]]
 *
 * Each stream asks, reads to the end, and asks the next thing; of seven one leaves after a while. No error
 * but 429 is taken, and each stream has to end with [DONE]: exit code 1 otherwise. With the server's PID its
 * memory is watched, from the end of the first minute on (of a shorter run, from its middle); with BOUND it
 * may lie at most so many percent from its middle.
 */
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_STREAMS    4000
#define N_BUCKET        2400 /* of times, each 1 % longer than the one before, from a microsecond on */
#define LEAST_SECONDS   1e-6
#define RETRY_SECONDS   0.2 /* after a 429 */
#define STILL_SECONDS   5.0 /* between two looks: everything stood still, and connections may have been cut */
#define SILENCE_SECONDS 900.0
#define TOLD_SECONDS    60.0
#define LEAVES(number)  ((number) % 7 == 3)

static const char *const questions[] = {"What is the capital of Japan?", "What is 23 + 45?",
                                        "Tell me a story", "What is the atomic number of iron?",
                                        "Spell the word water"};

enum part { HEAD, SIZE, CHUNK, CHUNK_END, OVER };

struct stream {
    int socket;         /* -1: none */
    size_t number;      /* of what it asks */
    double again;       /* when it may ask, after a 429 */
    double asked, last; /* the last event; 0: none yet */
    char kind;          /* of that: what its delta begins with */
    size_t n_event, leaves_after;
    int status;
    enum part part;
    size_t left; /* bytes of the chunk */
    bool done, failed;
    char frame[256], line[256]; /* of HTTP, of the events: what has come of a line */
    size_t frame_size, line_size;
};

struct times {
    size_t counts[N_BUCKET], n;
    double worst;
};

struct run {
    int port;
    size_t n_stream;
    double began, end, last_look, stood; /* until then what breaks off may be the machine's fault */
    struct stream *streams;              /* [n_stream] */
    struct pollfd *polls;                /* [n_stream] */
    size_t n_whole, n_left, n_refused, n_cut, n_wrong, n_event;
    struct times between, turns, first; /* of tokens, to the next message, to the first event */
    char wrong[256];                    /* the first that was */
    const char *pid;                    /* NULL: its memory is not looked at */
    double least_kib, most_kib;
};

/* ---------------------------------------------------------------- figures */

static void add_time(struct times *times, double seconds)
{
    double bucket = seconds > LEAST_SECONDS ? log(seconds / LEAST_SECONDS) / log(1.01) : 0.0;
    times->counts[bucket < N_BUCKET - 1 ? (size_t)bucket : N_BUCKET - 1]++;
    times->n++;
    times->worst = seconds > times->worst ? seconds : times->worst;
}

/* Milliseconds, to 1 %. */
static double quantile(const struct times *times, double share)
{
    size_t seen = 0, i = 0;
    while (i < N_BUCKET - 1 && (seen += times->counts[i]) <= (size_t)(share * (double)times->n))
        i++;
    return 1e3 * LEAST_SECONDS * pow(1.01, (double)i + 0.5);
}

static void look_at_memory(struct run *run)
{
    char path[64], line[256];
    double kib = 0.0;
    snprintf(path, sizeof path, "/proc/%s/status", run->pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %lf", &kib) == 1)
            break;
    if (file)
        fclose(file);
    if (kib > 0.0 && (run->least_kib == 0.0 || kib < run->least_kib))
        run->least_kib = kib;
    run->most_kib = kib > run->most_kib ? kib : run->most_kib;
}

/* Percent from the middle. */
static double memory_swing(const struct run *run)
{
    return run->most_kib > 0.0 ? 100.0 * (run->most_kib - run->least_kib) / (run->most_kib + run->least_kib)
                               : 0.0;
}

static void tell_times(const char *what, const struct times *times)
{
    if (times->n > 0)
        printf("; %s p50 %.1f ms, p99 %.1f, p99.9 %.1f, worst %.1f", what, quantile(times, 0.5),
               quantile(times, 0.99), quantile(times, 0.999), 1e3 * times->worst);
}

static void tell(const struct run *run, double now)
{
    double seconds = now - run->began;
    printf("%zu streams, %.0f s: %zu whole, %zu left, %zu with 429, %zu cut by a standstill, %zu wrong; %.0f "
           "events/s",
           run->n_stream, seconds, run->n_whole, run->n_left, run->n_refused, run->n_cut, run->n_wrong,
           (double)run->n_event / seconds);
    tell_times("between tokens", &run->between);
    tell_times("to the next message", &run->turns);
    tell_times("to the first event", &run->first);
    if (run->most_kib > 0.0)
        printf("; memory %.1f to %.1f MiB (+-%.1f %%)", run->least_kib / 1024, run->most_kib / 1024,
               memory_swing(run));
    printf("\n");
    fflush(stdout);
}

/* ---------------------------------------------------------------- asking */

static void ask(struct run *run, struct stream *s, double now)
{
    char body[256], request[512];
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)run->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int size = snprintf(body, sizeof body,
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"temperature\":0,"
                        "\"max_tokens\":80,\"stream\":true}",
                        questions[s->number % (sizeof questions / sizeof *questions)]);
    int count = snprintf(request, sizeof request,
                         "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: "
                         "application/json\r\nContent-Length: %d\r\n\r\n%s",
                         size, body);
    *s = (struct stream){.socket = socket(AF_INET, SOCK_STREAM, 0),
                         .number = s->number,
                         .asked = now,
                         .leaves_after = LEAVES(s->number) ? s->number % 5 * 10 : SIZE_MAX};
    if (s->socket < 0 || connect(s->socket, (struct sockaddr *)&address, sizeof address) != 0 ||
        send(s->socket, request, (size_t)count, MSG_NOSIGNAL) != count)
        snprintf(run->wrong, sizeof run->wrong, "cannot ask: %s", strerror(errno));
}

/* It is over, well or not; the next thing is asked where there is time. */
static void end_stream(struct run *run, struct stream *s, const char *how, double now)
{
    bool leaves = s->n_event >= s->leaves_after && !s->done;
    if (s->socket >= 0)
        close(s->socket);
    s->socket = -1;
    s->again = now;
    if (s->status == 429) {
        run->n_refused++;
        s->again = now + RETRY_SECONDS;
    } else if (leaves && !s->failed) {
        run->n_left++;
    } else if (s->done && s->part == OVER && !s->failed) {
        run->n_whole++;
    } else if (now < run->stood) {
        run->n_cut++;
    } else if (run->n_wrong++ == 0) {
        snprintf(run->wrong, sizeof run->wrong, "stream %zu, status %d, %zu events, %s: %.120s", s->number,
                 s->status, s->n_event, how, s->line);
    }
    s->number += run->n_stream;
}

/* ---------------------------------------------------------------- reading */

/* Between reasoning and text the model writes some tokens that nobody is shown. */
static char find_kind(const char *line)
{
    static const char delta[] = "\"delta\":{\"";
    const char *at = strstr(line, delta);
    return at ? at[sizeof delta - 1] : '\0';
}

/* A line of the stream is whole. */
static void take_line(struct run *run, struct stream *s, double now)
{
    static const char data[] = "data: ", done[] = "data: [DONE]", error[] = "data: {\"error\"";
    if (strncmp(s->line, done, sizeof done - 1) == 0) {
        s->done = true;
    } else if (strncmp(s->line, error, sizeof error - 1) == 0) {
        s->failed = true;
    } else if (strncmp(s->line, data, sizeof data - 1) == 0) {
        char kind = find_kind(s->line);
        add_time(s->n_event == 0   ? &run->first
                 : kind == s->kind ? &run->between
                                   : &run->turns,
                 now - (s->n_event > 0 ? s->last : s->asked));
        s->kind = kind;
        s->last = now;
        s->n_event++;
        run->n_event++;
    }
}

/* A line of the head or of the frame is whole; what counts of a longer one is its beginning. */
static void take_frame(struct stream *s)
{
    if (s->part == HEAD && s->status == 0 && sscanf(s->frame, "HTTP/1.1 %d", &s->status) != 1)
        s->part = OVER;
    else if (s->part == HEAD && s->frame[0] == '\r')
        s->part = s->status == 200 ? SIZE : OVER; /* the body of an error is of no interest */
    else if (s->part == SIZE) {
        s->left = strtoul(s->frame, NULL, 16);
        s->part = s->left > 0 ? CHUNK : OVER;
    } else if (s->part == CHUNK_END)
        s->part = SIZE;
}

static void append(char *text, size_t capacity, size_t *size, char byte)
{
    if (*size < capacity - 1)
        text[(*size)++] = byte;
    text[*size] = '\0';
}

static void take_byte(struct run *run, struct stream *s, char byte, double now)
{
    if (s->part != CHUNK) {
        append(s->frame, sizeof s->frame, &s->frame_size, byte);
        if (byte != '\n')
            return;
        take_frame(s);
        s->frame_size = 0;
        return;
    }
    append(s->line, sizeof s->line, &s->line_size, byte);
    if (byte == '\n') {
        take_line(run, s, now);
        s->line_size = 0;
    }
    if (--s->left == 0)
        s->part = CHUNK_END;
}

static void receive(struct run *run, struct stream *s, double now)
{
    char bytes[1 << 14];
    ssize_t count = recv(s->socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return;
    for (ssize_t i = 0; i < count && s->part != OVER && s->n_event < s->leaves_after; i++)
        take_byte(run, s, bytes[i], now);
    if (count <= 0)
        end_stream(run, s, count == 0 ? "closed" : strerror(errno), now);
    else if (s->part == OVER || s->n_event >= s->leaves_after)
        end_stream(run, s, "over", now);
}

/* ---------------------------------------------------------------- the run */

/* Streams that have none ask, while there is time; returns how many are under way. */
static size_t ask_all(struct run *run, double now)
{
    size_t under_way = 0;
    for (size_t i = 0; i < run->n_stream; i++) {
        struct stream *s = &run->streams[i];
        if (s->socket < 0 && now < run->end && now >= s->again && run->wrong[0] == '\0')
            ask(run, s, now);
        if (s->socket >= 0 && s->leaves_after == 0)
            end_stream(run, s, "asked", now);
        run->polls[i] = (struct pollfd){.fd = s->socket, .events = POLLIN};
        under_way += s->socket >= 0;
    }
    return under_way;
}

static void notice_standstill(struct run *run, double now)
{
    if (now - run->last_look > STILL_SECONDS)
        run->stood = now + STILL_SECONDS;
    run->last_look = now;
}

static void serve_streams(struct run *run)
{
    double now = run->began, length = run->end - now;
    double warm = now + (length < 2 * TOLD_SECONDS ? length / 2 : TOLD_SECONDS);
    double tell_at = now + TOLD_SECONDS, look_at = warm, heard = now;
    while ((ask_all(run, now) > 0 || now < run->end) && run->wrong[0] == '\0') {
        int ready = poll(run->polls, (nfds_t)run->n_stream, 100);
        now = gs_clock_seconds();
        notice_standstill(run, now);
        heard = ready > 0 || run->stood > now ? now : heard;
        for (size_t i = 0; ready > 0 && i < run->n_stream; i++)
            if (run->polls[i].revents)
                receive(run, &run->streams[i], now);
        if (run->pid && now >= look_at && now < run->end) {
            look_at_memory(run);
            look_at = now + 0.5;
        }
        if (now >= tell_at && now < run->end) {
            tell(run, now);
            tell_at += TOLD_SECONDS;
        }
        if (now > heard + SILENCE_SECONDS)
            snprintf(run->wrong, sizeof run->wrong, "nothing came for %.0f s", SILENCE_SECONDS);
    }
}

int main(int argc, char **argv)
{
    long port = argc > 3 ? atol(argv[1]) : 0, count = argc > 3 ? atol(argv[2]) : 0;
    double seconds = argc > 3 ? atof(argv[3]) : 0.0, bound = argc > 5 ? atof(argv[5]) : 0.0;
    struct run run = {.port = (int)port, .n_stream = (size_t)count, .pid = argc > 4 ? argv[4] : NULL};
    if (argc > 6 || port < 1 || port > 65535 || count < 1 || count > MOST_STREAMS || !(seconds > 0.0)) {
        fprintf(stderr, "load_client PORT STREAMS SECONDS [PID [BOUND]]\n");
        return 2;
    }
    run.streams = calloc(run.n_stream, sizeof *run.streams);
    run.polls = calloc(run.n_stream, sizeof *run.polls);
    if (!run.streams || !run.polls) {
        fprintf(stderr, "memory is out\n");
        free(run.streams);
        free(run.polls);
        return 1;
    }
    for (size_t i = 0; i < run.n_stream; i++)
        run.streams[i] = (struct stream){.socket = -1, .number = i};
    run.began = run.last_look = gs_clock_seconds();
    run.end = run.began + seconds;
    serve_streams(&run);
    tell(&run, gs_clock_seconds());
    bool swings = bound > 0.0 && memory_swing(&run) > bound;
    if (run.wrong[0] != '\0')
        printf("wrong: %s\n", run.wrong);
    if (swings)
        printf("wrong: memory, which may lie %g %% from its middle\n", bound);
    free(run.streams);
    free(run.polls);
    return run.wrong[0] != '\0' || swings || run.n_whole == 0 ? 1 : 0;
}
