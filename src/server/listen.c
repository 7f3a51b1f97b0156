#include "server/listen.h"

#include "base/status.h"
#include "base/system.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 1024

static int port_of(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)(const void *)address)->sin6_port);
    return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
}

static int open_socket(const struct addrinfo *info)
{
    int yes = 1, listener = gs_system_socket(info->ai_family, SOCK_STREAM);
    if (listener < 0)
        return -1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, info->ai_addr, info->ai_addrlen) == 0 && listen(listener, BACKLOG) == 0)
        return listener;
    int reason = errno;
    close(listener);
    errno = reason;
    return -1;
}

gs_status gs_listen(const char *host, int wanted, int *listener, int *port, struct gs_error *error)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    struct addrinfo *found = NULL;
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof address;
    char service[16];
    *listener = -1;
    snprintf(service, sizeof service, "%d", wanted);
    const char *numeric = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    if (getaddrinfo(numeric, service, &hints, &found) != 0 || !found)
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "--host %s: an address is expected, such as 127.0.0.1 or 0.0.0.0",
                       gs_quote(host).text);
    *listener = open_socket(found);
    int reason = errno;
    freeaddrinfo(found);
    if (*listener < 0)
        return gs_fail(error, GS_IO, "cannot listen on %s port %d: %s", gs_quote(host).text, wanted,
                       strerror(reason));
    if (getsockname(*listener, (struct sockaddr *)&address, &length) != 0) {
        reason = errno;
        close(*listener);
        *listener = -1;
        return gs_fail(error, GS_IO, "cannot tell the port: %s", strerror(reason));
    }
    *port = port_of(&address);
    return GS_OK;
}
