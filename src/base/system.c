#include "base/system.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__linux__)
#include <stdio_ext.h>

int64_t gs_system_modified_ns(const struct stat *info)
{
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
}

int gs_system_pipe(int ends[2])
{
    return pipe2(ends, O_CLOEXEC);
}

int gs_system_socket(int family, int type)
{
    return socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

void gs_system_purge(FILE *stream)
{
    __fpurge(stream);
}

void gs_system_execute(const char *file, char *const *argv, char *const *environment)
{
    execvpe(file, argv, environment);
}

#else

extern char **environ;

int64_t gs_system_modified_ns(const struct stat *info)
{
#if defined(__APPLE__)
    return (int64_t)info->st_mtimespec.tv_sec * 1000000000 + info->st_mtimespec.tv_nsec;
#else
    return (int64_t)info->st_mtim.tv_sec * 1000000000 + info->st_mtim.tv_nsec;
#endif
}

/* A program that another thread starts at this very moment may still get the descriptor. */
static bool hide(int descriptor)
{
    return fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0;
}

int gs_system_pipe(int ends[2])
{
    if (pipe(ends) != 0)
        return -1;
    if (hide(ends[0]) && hide(ends[1]))
        return 0;
    close(ends[0]);
    close(ends[1]);
    return -1;
}

int gs_system_socket(int family, int type)
{
    int descriptor = socket(family, type, 0);
    if (descriptor < 0 || (hide(descriptor) && fcntl(descriptor, F_SETFL, O_NONBLOCK) == 0))
        return descriptor;
    close(descriptor);
    return -1;
}

void gs_system_purge(FILE *stream)
{
    fpurge(stream);
}

void gs_system_execute(const char *file, char *const *argv, char *const *environment)
{
    environ = (char **)environment;
    execvp(file, argv);
}

#endif
