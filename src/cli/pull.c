/* gossamer pull: a model from the hub into the cache. */
#include "hub/pull.h"
#include "base/clock.h"
#include "base/status.h"
#include "cli/commands.h"
#include "cli/hub.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/report.h"

#include <string.h>
#include <unistd.h>

struct settings {
    const char *model, *revision, *endpoint, *cache;
    int64_t n_connections;
    bool dry_run, verify;
};

static const struct gs_option options[] = {
    GS_HEADING_ROW("Options:"),
    GS_TEXT_ROW("revision", "NAME", offsetof(struct settings, revision),
                "a branch, a tag or a commit (default: main);\nthe same as MODEL@NAME"),
    GS_TEXT_ROW("endpoint", "URL", offsetof(struct settings, endpoint),
                "the hub (default: HF_ENDPOINT, else\nhttps://huggingface.co)"),
    GS_TEXT_ROW("cache-dir", "FOLDER", offsetof(struct settings, cache),
                "the cache (default: HF_HUB_CACHE, else HF_HOME/hub,\nelse ~/.cache/huggingface/hub)"),
    GS_INTEGER_ROW("connections", "N", offsetof(struct settings, n_connections), 1, 32,
                   "parts of a file that are fetched side by side\n(default: 8)"),
    GS_FLAG_ROW("verify", offsetof(struct settings, verify),
                "check the hashes of files that are there already, too"),
    GS_FLAG_ROW("dry-run", offsetof(struct settings, dry_run),
                "only list the files, their sizes and what is missing"),
    {.kind = GS_OPTION_END},
};

/* ---------------------------------------------------------------- what a person sees of it */

struct view {
    struct gs_progress fetching; /* of all files */
    struct gs_progress checking; /* of one; at most one of the two is visible */
    char checked[160];           /* the label of `checking` */
    const struct gs_pull_plan *plan;
    uint64_t fetched; /* files that came */
};

static uint64_t size_of(const struct view *view, const char *name)
{
    const struct gs_hub_file *file = gs_hub_listing_find(&view->plan->listing, name);
    return file ? file->size : 0;
}

static void show_event(void *user, enum gs_pull_event event, const char *file, const char *detail)
{
    struct view *view = user;
    gs_progress_end(&view->checking);
    if (event == GS_PULL_FETCHING) {
        view->fetching.label = file;
        view->fetching.rate_at = 0.0; /* the time of checking is not the network's */
        return;
    }
    gs_progress_end(&view->fetching);
    switch (event) {
    case GS_PULL_CHECKING:
        gs_format(view->checked, sizeof view->checked, "checking %s", file);
        gs_progress_begin(&view->checking, view->checked, true, 0);
        view->checking.rated = true;
        break;
    case GS_PULL_PRESENT:
        fprintf(stderr, "%s: there already\n", file);
        break;
    case GS_PULL_DONE:
        view->fetched++;
        fprintf(stderr, "%s: %s\n", file, gs_size_text(size_of(view, file)).text);
        break;
    case GS_PULL_AGAIN:
        fprintf(stderr, "%s: what an earlier run had left is damaged; from the start\n", file);
        break;
    default:
        fprintf(stderr, "%s\n", detail);
    }
}

static void show_progress(void *user, uint64_t done, uint64_t total)
{
    struct view *view = user;
    gs_progress_update(&view->fetching, done, total);
}

static void show_checking(void *user, uint64_t done, uint64_t size)
{
    struct view *view = user;
    gs_progress_update(&view->checking, done, size);
}

static bool is_interrupted(void *user)
{
    (void)user;
    return gs_interrupted();
}

static const char *state_text(const struct gs_pull_file *file, char *text, size_t size)
{
    if (file->present == file->file->size)
        return "there";
    if (file->present == 0)
        return "missing";
    snprintf(text, size, "%s of it there", gs_size_text(file->present).text);
    return text;
}

static void print_plan(const struct gs_pull_plan *plan, struct gs_output *out)
{
    int width = 0;
    char text[64];
    for (size_t i = 0; i < plan->count; i++)
        if ((int)strlen(plan->files[i].file->name) > width)
            width = (int)strlen(plan->files[i].file->name);
    gs_output_print(out, "%s@%s, commit %s\n", plan->name.repo, plan->name.revision, plan->listing.commit);
    for (size_t i = 0; i < plan->count; i++)
        gs_output_print(out, "  %-*s  %11s  %s\n", width, plan->files[i].file->name,
                        gs_size_text(plan->files[i].file->size).text,
                        state_text(&plan->files[i], text, sizeof text));
    gs_output_print(out, "%zu files of %s, %s to fetch; %s free at %s\n", plan->count,
                    gs_size_text(plan->total).text, gs_size_text(plan->total - plan->present).text,
                    gs_size_text(plan->free_bytes).text, gs_quote(plan->options->cache).text);
}

/* ---------------------------------------------------------------- the command */

static gs_status fetch(struct gs_pull_plan *plan, struct view *view, struct gs_output *out,
                       struct gs_error *error)
{
    double began = gs_clock_seconds();
    gs_progress_begin(&view->fetching, plan->name.repo, true, 0);
    view->fetching.rated = true;
    gs_status status = gs_pull_run(plan, error);
    gs_progress_end(&view->checking);
    gs_progress_end(&view->fetching);
    if (status == GS_CANCELLED)
        fputs("interrupted; the same command goes on from here\n", stderr);
    if (status != GS_OK)
        return status;
    double seconds = gs_clock_seconds() - began;
    if (view->fetched > 0 && seconds > 1.0)
        fprintf(stderr, "%s in %.0f s, %s a second\n", gs_size_text(plan->total - plan->present).text,
                seconds, gs_size_text((uint64_t)((double)(plan->total - plan->present) / seconds)).text);
    gs_output_append(out, plan->store.snapshot.data, plan->store.snapshot.size);
    gs_output_append(out, "\n", 1);
    return GS_OK;
}

static gs_status pull(const struct settings *s, struct gs_output *out, struct gs_error *error)
{
    struct gs_buffer cache = {0}, endpoint = {0}, token = {0};
    struct gs_pull_options choice = gs_pull_options_default();
    struct gs_pull_plan plan = {0};
    struct gs_hub_name name;
    struct view view = {.plan = &plan};
    gs_status status = gs_hub_name_parse(s->model, &name, error);
    if (status == GS_OK && s->revision && strchr(s->model, '@'))
        status = gs_fail(error, GS_INVALID_ARGUMENT, "%s and --revision %s: a revision is given once",
                         gs_quote(s->model).text, gs_quote(s->revision).text);
    else if (status == GS_OK && s->revision)
        status = gs_hub_name_set_revision(&name, s->revision, error);
    if (status == GS_OK)
        status =
            s->cache ? gs_buffer_append_text(&cache, s->cache, error) : gs_hub_cache_folder(&cache, error);
    if (status == GS_OK)
        status = gs_hub_endpoint(s->endpoint, &endpoint, error);
    if (status == GS_OK)
        status = gs_hub_token(&token, error);
    if (status != GS_OK)
        goto cleanup;
    choice.cache = cache.data;
    choice.endpoint = endpoint.data;
    choice.token = token.size > 0 ? token.data : NULL;
    choice.verify = s->verify;
    choice.n_connections = (size_t)s->n_connections;
    choice.cancelled = is_interrupted;
    choice.progress = show_progress;
    choice.checking = show_checking;
    choice.event = show_event;
    choice.user = &view;
    gs_interrupt_note(NULL);
    status = gs_pull_plan_make(&choice, &name, &plan, error);
    if (status == GS_OK && s->dry_run)
        print_plan(&plan, out);
    else if (status == GS_OK)
        status = fetch(&plan, &view, out, error);
cleanup:
    gs_pull_plan_free(&plan);
    gs_buffer_free(&cache);
    gs_buffer_free(&endpoint);
    gs_buffer_free(&token);
    return status;
}

static int pull_main(const struct gs_command *command, int argc, char **argv)
{
    struct settings settings = {.n_connections = 8};
    struct gs_operands operands;
    struct gs_output output;
    struct gs_error error = {0};
    gs_status status = gs_options_parse(command, argc, argv, &settings, &operands, &error);
    if (status == GS_OK && operands.help) {
        gs_options_help(command, stdout);
        return GS_EXIT_OK;
    }
    if (status == GS_OK && operands.count == 0)
        status = gs_fail(&error, GS_INVALID_ARGUMENT, "no model: gossamer pull openai/gpt-oss-20b");
    if (status == GS_OK && settings.cache && settings.cache[0] == '\0') /* it would mean the root folder */
        status = gs_fail(&error, GS_INVALID_ARGUMENT, "--cache-dir is empty; it should be a folder");
    if (status != GS_OK)
        return gs_report(status, &error);
    settings.model = operands.list[0];
    gs_output_open(&output, false);
    status = pull(&settings, &output, &error);
    int code = gs_output_end(&output, status, &error);
    /* The network and the disk are the machine's, not the person's. */
    return status == GS_IO ? GS_EXIT_FAILURE : code;
}

const struct gs_command gs_command_pull = {
    .name = "pull",
    .usage = "MODEL[@REVISION] [options]",
    .summary = "Fetches a model from the hub into the Hugging Face cache.",
    .details =
        "MODEL is a name such as openai/gpt-oss-20b; afterwards every command takes it in place of a\n"
        "path. Only what gossamer needs is fetched, checked by size and hash; an interrupted download\n"
        "goes on where it stopped. A token, where one is needed, comes from HF_TOKEN or from the file\n"
        "that HF_TOKEN_PATH names (else HF_HOME/token).",
    .options = options,
    .max_operands = 1,
    .run = pull_main,
};
