/* Calls that Linux has and other systems have under another name, or not in one piece. */
#ifndef GS_BASE_SYSTEM_H
#define GS_BASE_SYSTEM_H

#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* What poll waits for to hear that a socket's other side sends no more. */
#if defined(POLLRDHUP)
#define GS_SYSTEM_POLL_LEFT POLLRDHUP
#else
#define GS_SYSTEM_POLL_LEFT POLLHUP
#endif

/* A flag of send: no SIGPIPE where nobody reads. Without it the socket has to be told (SO_NOSIGPIPE). */
#if defined(MSG_NOSIGNAL)
#define GS_SYSTEM_NO_SIGNAL MSG_NOSIGNAL
#else
#define GS_SYSTEM_NO_SIGNAL 0
#endif

/* As pipe and socket, of descriptors that a program started from here does not get; 0 or -1, with errno. */
int gs_system_pipe(int ends[2]);
int gs_system_socket(int family, int type); /* nor does it wait (O_NONBLOCK); the descriptor or -1 */

/* When a file was last written to, in nanoseconds since 1970. */
int64_t gs_system_modified_ns(const struct stat *info);

/* Forgets what was read ahead of the stream and not taken yet. */
void gs_system_purge(FILE *stream);

/* As execvp, with this environment; for a child between fork and exec. */
void gs_system_execute(const char *file, char *const *argv, char *const *environment);

#endif
