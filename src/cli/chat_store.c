/* Conversations on the disk: the messages as JSON and, beside them, a snapshot of the cache. */
#include "base/clock.h"
#include "base/file_write.h"
#include "base/status.h"
#include "chat/harmony_render.h"
#include "cli/chat.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "engine/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* A name without a slash or a dot is a file of the state folder; all else is a path. */
static gs_status find_path(const struct gs_chat *chat, const char *name, struct gs_buffer *path,
                           struct gs_error *error)
{
    const char *home = getenv("HOME");
    gs_buffer_clear(path);
    if (name[0] == '\0')
        return gs_fail(error, GS_INVALID_ARGUMENT,
                       "the name of a saved conversation, or its path, is expected");
    if (name[0] == '~' && name[1] == '/' && home)
        return gs_buffer_print(path, error, "%s%s", home, name + 1);
    if (strpbrk(name, "/.") || chat->state_folder.size == 0)
        return gs_buffer_append_text(path, name, error);
    return gs_buffer_print(path, error, "%sconversations/%s.json", chat->state_folder.data, name);
}

static gs_status snapshot_path(const struct gs_buffer *path, struct gs_buffer *out, struct gs_error *error)
{
    return gs_buffer_print(out, error, "%s.kv", path->data);
}

/*
 * What the next turn's prompt begins with, whatever is said in it: the conversation as it is rendered with a
 * further message of the user, without the text and the end of that message.
 */
static gs_status render_prefix(struct gs_chat *chat, struct gs_tokens *tokens, struct gs_error *error)
{
    const struct gs_render_options how = {.end = GS_RENDER_PLAIN, .replay = chat->dialog.replay};
    struct gs_conversation conversation = {0};
    size_t count = gs_dialog_count(&chat->dialog);
    gs_status status = gs_dialog_add_user(&chat->dialog, "", 0, error);
    if (status == GS_OK)
        status = gs_dialog_build(&chat->dialog, &conversation, error);
    gs_dialog_cut(&chat->dialog, count);
    if (status == GS_OK)
        status = gs_harmony_render(chat->setup.vocab, &conversation, &how, tokens, NULL, error);
    if (status == GS_OK && tokens->count > 0)
        tokens->count--;
    gs_conversation_free(&conversation);
    return status;
}

/* Brings `base` to the prefix, so that the snapshot holds all that can be known of the next prompt. */
static gs_status save_snapshot(struct gs_chat *chat, const struct gs_buffer *path, struct gs_error *error)
{
    struct gs_tokens tokens = {0};
    struct gs_progress progress;
    struct gs_session *base = chat->timeline.base;
    gs_status status = render_prefix(chat, &tokens, error);
    if (status == GS_OK) {
        gs_interrupt_rearm();
        gs_interrupt_note(base);
        gs_progress_begin(&progress, "prefill", false, 0);
        gs_session_on_progress(base, gs_progress_update, &progress);
        status = gs_session_sync(base, tokens.ids, tokens.count, NULL, error);
        gs_session_on_progress(base, NULL, NULL);
        gs_progress_end(&progress);
        gs_interrupt_note(NULL);
    }
    if (status == GS_OK)
        status = gs_session_save(base, path->data, error);
    gs_tokens_free(&tokens);
    return status;
}

static uint64_t size_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && info.st_size > 0 ? (uint64_t)info.st_size : 0;
}

/* Is this a snapshot of a cache? All else beside a conversation is somebody's own file. */
static bool is_snapshot(const char *path)
{
    char magic[sizeof GS_SNAPSHOT_MAGIC];
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return false;
    FILE *file = fopen(path, "rbe");
    bool is = file && fread(magic, sizeof magic, 1, file) == 1 &&
              memcmp(magic, GS_SNAPSHOT_MAGIC, sizeof magic) == 0;
    if (file)
        fclose(file);
    return is;
}

static bool is_there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

/* What is at `path` and is not this conversation is replaced only by consent. */
static gs_status may_write(struct gs_chat *chat, const char *name, const char *path, bool *may,
                           struct gs_error *error)
{
    struct gs_buffer reply = {0};
    enum gs_line_end end;
    *may = !is_there(path) || (chat->name.size > 0 && strcmp(chat->name.data, name) == 0);
    if (*may)
        return GS_OK;
    if (!gs_line_is_interactive(chat->reader)) {
        gs_view_say(&chat->view,
                    "not saved: %s is there already, and is not this conversation: another name "
                    "is needed",
                    gs_quote(path).text);
        return GS_OK;
    }
    gs_view_say(&chat->view, "%s is there already, and is not this conversation", gs_quote(path).text);
    tcflush(STDIN_FILENO, TCIFLUSH); /* what was typed before the question is no answer to it */
    gs_status status = gs_line_ask(chat->reader, "  replace it? [y/N] ", &reply, &end, error);
    if (status == GS_OK && end == GS_LINE_DONE) {
        const char *word = reply.data + strspn(reply.data, " \t");
        size_t size = strcspn(word, " \t\r\n");
        bool alone = word[size + strspn(word + size, " \t\r\n")] == '\0';
        *may = alone && ((size == 1 && strncasecmp(word, "y", 1) == 0) ||
                         (size == 3 && strncasecmp(word, "yes", 3) == 0));
    }
    if (status == GS_OK && !*may)
        gs_view_say(&chat->view, "not saved");
    gs_buffer_free(&reply);
    return status;
}

/* The cache beside the saved messages, or what became of it; one line says how all went. */
static void write_cache(struct gs_chat *chat, const char *path, const struct gs_buffer *kv)
{
    struct gs_error failed = {0};
    size_t count = gs_dialog_count(&chat->dialog);
    bool foreign = is_there(kv->data) && !is_snapshot(kv->data);
    if (!chat->setup.engine || chat->settings.no_snapshot) {
        if (!foreign)
            unlink(kv->data); /* of an older state, if any */
        gs_view_say(&chat->view, "saved %zu messages to %s", count, gs_quote(path).text);
        return;
    }
    gs_status saved = foreign ? gs_fail(&failed, GS_INVALID_ARGUMENT, "%s is no snapshot, and stays",
                                        gs_quote(kv->data).text)
                              : save_snapshot(chat, kv, &failed);
    if (saved == GS_OK)
        gs_view_say(&chat->view, "saved %zu messages to %s, and the cache beside it (%s)", count,
                    gs_quote(path).text, gs_size_text(size_of(kv->data)).text);
    else
        gs_view_say(&chat->view, "saved %zu messages to %s, but not the cache: %s", count,
                    gs_quote(path).text, failed.message);
}

gs_status gs_chat_save(struct gs_chat *chat, const char *name, struct gs_error *error)
{
    struct gs_buffer path = {0}, kv = {0};
    struct gs_error failed = {0};
    bool may = false;
    gs_status status = find_path(chat, name, &path, error);
    if (status == GS_OK)
        status = snapshot_path(&path, &kv, error);
    if (status == GS_OK)
        status = may_write(chat, name, path.data, &may, error);
    if (status != GS_OK || !may)
        goto cleanup;
    gs_status saved = gs_make_private_folders(path.data, &failed);
    if (saved == GS_OK)
        saved = gs_dialog_save(&chat->dialog, path.data, &failed);
    if (saved != GS_OK) {
        gs_view_say(&chat->view, "not saved: %s", failed.message);
        goto cleanup;
    }
    gs_buffer_clear(&chat->name);
    status = gs_buffer_append_text(&chat->name, name, error);
    write_cache(chat, path.data, &kv);
cleanup:
    gs_buffer_free(&path);
    gs_buffer_free(&kv);
    return status;
}

/* Into a `base` of its own; a snapshot that cannot be used is said in one line. */
static void load_snapshot(struct gs_chat *chat, const char *path)
{
    struct gs_timeline *timeline = &chat->timeline;
    struct gs_error failed;
    size_t count;
    double began = gs_clock_seconds();
    if (access(path, F_OK) != 0) {
        gs_view_note(&chat->view, "no snapshot of the cache beside it: the next turn reads all of it");
        return;
    }
    if (timeline->live != timeline->base)
        gs_session_close(timeline->live);
    timeline->live = timeline->base;
    if (gs_session_load(timeline->base, path, &failed) != GS_OK) {
        gs_view_say(&chat->view, "the cache's snapshot is ignored: %s", failed.message);
        return;
    }
    gs_session_tokens(timeline->base, &count);
    gs_view_note(&chat->view, "the cache's snapshot brings %zu tokens back in %.2f s", count,
                 gs_clock_seconds() - began);
}

gs_status gs_chat_load(struct gs_chat *chat, const char *name, struct gs_error *error)
{
    struct gs_buffer path = {0}, kv = {0};
    gs_status status = find_path(chat, name, &path, error);
    if (status == GS_OK)
        status = snapshot_path(&path, &kv, error);
    if (status == GS_OK)
        status = gs_dialog_load(&chat->dialog, chat->setup.vocab, path.data, error);
    if (status != GS_OK)
        goto cleanup;
    chat->sums = (struct gs_sums){0};
    gs_buffer_clear(&chat->view.thought);
    gs_buffer_clear(&chat->name);
    status = gs_buffer_append_text(&chat->name, name, error);
    gs_view_say(&chat->view, "loaded %zu messages from %s", gs_dialog_count(&chat->dialog),
                gs_quote(path.data).text);
    if (chat->setup.engine)
        load_snapshot(chat, kv.data);
cleanup:
    gs_buffer_free(&path);
    gs_buffer_free(&kv);
    return status;
}
