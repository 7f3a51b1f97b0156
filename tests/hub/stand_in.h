/* The stand-in of a hub (stand_in_hub.py) as a child of the test: started, commanded, ended. */
#ifndef TESTS_HUB_STAND_IN_H
#define TESTS_HUB_STAND_IN_H

#include "base/system.h"
#include "tests/support/check.h"
#include "tests/support/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define STAND_IN_COMMIT "0123456789abcdef0123456789abcdef01234567"
#define STAND_IN_TOKEN  "hf_secretSECRETsecret"

struct stand_in {
    pid_t child;
    FILE *in, *out;
    char *truth;       /* folder of the true files */
    char endpoint[64]; /* "http://127.0.0.1:PORT" */
};

static inline struct stand_in stand_in_start(void)
{
    struct stand_in hub = {.truth = test_folder_make()};
    int to[2], from[2], hub_port, cdn_port;
    assert_int_equal(gs_system_pipe(to), 0);
    assert_int_equal(gs_system_pipe(from), 0);
    hub.child = fork();
    assert_true(hub.child >= 0);
    if (hub.child == 0) {
        if (dup2(to[0], 0) >= 0 && dup2(from[1], 1) >= 0)
            execlp("python3", "python3", "tests/hub/stand_in_hub.py", hub.truth, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    hub.in = fdopen(to[1], "w");
    hub.out = fdopen(from[0], "r");
    char line[80];
    assert_non_null(fgets(line, sizeof line, hub.out));
    assert_int_equal(sscanf(line, "ready %d %d", &hub_port, &cdn_port), 2);
    snprintf(hub.endpoint, sizeof hub.endpoint, "http://127.0.0.1:%d", hub_port);
    return hub;
}

static inline void stand_in_stop(struct stand_in *hub)
{
    int status;
    fclose(hub->in);
    fclose(hub->out);
    assert_int_equal(waitpid(hub->child, &status, 0), hub->child);
    test_folder_remove(hub->truth);
}

/* Sends a command; returns the lines before ".", which the caller frees. */
static inline char *stand_in_ask(struct stand_in *hub, const char *command)
{
    char line[1024], *text = NULL;
    size_t size = 0;
    FILE *lines = open_memstream(&text, &size);
    assert_non_null(lines);
    fprintf(hub->in, "%s\n", command);
    assert_int_equal(fflush(hub->in), 0);
    for (;;) {
        assert_non_null(fgets(line, sizeof line, hub->out));
        if (strcmp(line, ".\n") == 0)
            break;
        fputs(line, lines);
    }
    fclose(lines);
    return text;
}

static inline void stand_in_tell(struct stand_in *hub, const char *command)
{
    char *text = stand_in_ask(hub, command);
    assert_string_equal(text, "");
    free(text);
}

/* Proxies where nobody answers: who asks one of them fails. */
static inline void stand_in_break_proxies(void)
{
    static const char *const names[] = {"http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        setenv(names[i], "http://127.0.0.1:1", 1);
    unsetenv("no_proxy");
    unsetenv("NO_PROXY");
}

#endif
