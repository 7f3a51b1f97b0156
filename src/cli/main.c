/* gossamer: which command is it, and the help above them all. */
#include "backend/registry.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const struct gs_command *const commands[] = {
    &gs_command_run,      &gs_command_chat,    &gs_command_verify, &gs_command_bench, &gs_command_inspect,
    &gs_command_tokenize, &gs_command_harmony, &gs_command_pull,   &gs_command_serve,
};
static const size_t n_commands = sizeof commands / sizeof *commands;

static const struct gs_command *find_command(const char *name)
{
    for (size_t i = 0; i < n_commands; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static void print_help(FILE *file)
{
    fputs("usage: gossamer COMMAND ...\n\n"
          "Runs OpenAI's open-weight models gpt-oss-20b and gpt-oss-120b in their native MXFP4 form.\n\n",
          file);
    for (size_t i = 0; i < n_commands; i++)
        fprintf(file, "  %-12s%s\n", commands[i]->name, commands[i]->summary);
    fputs("\n  gossamer COMMAND --help   its options\n"
          "  gossamer --version        the version, and the backends that work here\n\n"
          "MODEL is a folder as downloaded (Hugging Face layout, or its original/ folder), a .gguf or\n"
          ".safetensors file, or the name of a model that gossamer pull has fetched: openai/gpt-oss-20b.\n\n"
          "Metal, HIP and ARM are tested in simulators and an emulator, and have never run on a Mac, an AMD\n"
          "GPU or ARM hardware; for macOS the program is cross-compiled, and has never been started.\n",
          file);
}

static void print_version(void)
{
    printf("gossamer %s\n", gs_version());
    for (size_t i = 0; i < gs_backend_count(); i++) {
        const struct gs_backend *backend = gs_backend_at(i);
        char description[256] = "";
        if (backend->probe(description, sizeof description))
            printf("backend %s: %s\n", backend->name, description);
    }
}

static int fail_surplus(const char *argument, const char *usage)
{
    struct gs_error error;
    gs_fail(&error, GS_INVALID_ARGUMENT, "\"%s\" is one argument too many: gossamer %s",
            gs_quote(argument).text, usage);
    return gs_report(GS_INVALID_ARGUMENT, &error);
}

static int fail_unknown(const char *name)
{
    const char *names[sizeof commands / sizeof *commands];
    for (size_t i = 0; i < n_commands; i++)
        names[i] = commands[i]->name;
    const char *nearest = gs_nearest_name(name, names, n_commands);
    struct gs_error error;
    gs_fail(&error, GS_INVALID_ARGUMENT, "unknown command \"%s\": %s%s%s", gs_quote(name).text,
            nearest ? "did you mean " : "gossamer --help lists them", nearest ? nearest : "",
            nearest ? "?" : "");
    return gs_report(GS_INVALID_ARGUMENT, &error);
}

/* Help and version go to standard output by stdio: a full disk must not pass for success. */
static int close_stdio(void)
{
    struct gs_error error;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return GS_EXIT_OK;
    gs_fail(&error, GS_IO, "cannot write to standard output");
    gs_report(GS_IO, &error);
    return GS_EXIT_FAILURE;
}

/* argv[1] asks for help: of all, or of the command argv[2]. */
static int show_help(int argc, char **argv)
{
    const struct gs_command *about = argc > 2 ? find_command(argv[2]) : NULL;
    if (argc > 3)
        return fail_surplus(argv[3], "--help, or gossamer COMMAND --help");
    if (argc > 2 && !about)
        return fail_unknown(argv[2]);
    if (!about) {
        print_help(stdout);
        return close_stdio();
    }
    char option[] = "--help"; /* the command's own help: it may say more than its options */
    char *arguments[] = {argv[2], option, NULL};
    int code = about->run(about, 2, arguments);
    return code == GS_EXIT_OK ? close_stdio() : code;
}

/*
 * A file that is opened must not take the number of a standard stream that was closed: a model's weights
 * would be read as what a person typed. The stand-ins refuse reading (0) and writing (1, 2), as closed ones
 * do.
 */
static void keep_standard_streams(void)
{
    for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++)
        if (fcntl(descriptor, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
            _exit(GS_EXIT_FAILURE);
}

int main(int argc, char **argv)
{
    keep_standard_streams();
    gs_interrupt_install();
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) {
        print_help(stderr);
        return GS_EXIT_BAD_INPUT;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return show_help(argc, argv);
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        if (argc > 2)
            return fail_surplus(argv[2], "--version");
        print_version();
        return close_stdio();
    }
    const struct gs_command *command = find_command(name);
    if (!command)
        return fail_unknown(name);
    int code = command->run(command, argc - 1, argv + 1);
    return code == GS_EXIT_OK ? close_stdio() : code;
}
