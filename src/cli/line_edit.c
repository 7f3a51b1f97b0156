#include "cli/line_edit.h"

#include "base/status.h"

#ifdef GS_HAVE_LIBEDIT

#include "base/file_write.h"
#include "base/utf8.h"
#include "cli/interrupt.h"
#include "cli/report.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#define MAX_HISTORY    1000             /* lines */
#define HISTORY_HEAD   "_HiStOrY_V2_\n" /* by which libedit knows its files */
#define MAX_SHOWN      6                /* lines of a paste that stand in the line itself */
#define MAX_PASTE      (8u << 20)
#define PASTE_ON       "\033[?2004h"
#define PASTE_OFF      "\033[?2004l"
#define PASTE_END      "\033[201~"
#define PASTE_END_SIZE 6

struct gs_line_editor {
    EditLine *edit;
    History *history;
    HistEvent event;
    FILE *out; /* the terminal behind standard error */
    const char *prompt;
    char *history_path;
    const char *const *completions;
    bool interrupted;
    sigset_t mask;            /* while the editor waits for a key */
    cc_t interrupt_key;       /* as the terminal had it */
    struct gs_buffer *pastes; /* [n_paste]: those that stand in the line by their numbers */
    size_t n_paste;
};

static struct gs_line_editor *editor_of(EditLine *edit)
{
    void *editor = NULL;
    el_get(edit, EL_CLIENTDATA, &editor);
    return editor;
}

/*
 * While a line is edited Ctrl-C is a key, not a signal. So it is off on the terminal itself, from before
 * libedit first looks at it. Somebody else's SIGINT gives the line up, too.
 */
static void set_interrupt_key(bool on, cc_t *key)
{
    struct termios mode;
    if (tcgetattr(STDIN_FILENO, &mode) != 0)
        return;
    if (!on)
        *key = mode.c_cc[VINTR];
    mode.c_cc[VINTR] = on ? *key : _POSIX_VDISABLE;
    tcsetattr(STDIN_FILENO, TCSANOW, &mode);
}

static void block_interrupts(sigset_t *before)
{
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_BLOCK, &interrupt, before);
}

/* Waits for a byte. Interrupts are let in here alone, so that none is lost between two waits. */
static ssize_t wait_byte(struct gs_line_editor *editor, char *byte)
{
    for (;;) {
        fd_set readable;
        FD_ZERO(&readable);
        FD_SET(STDIN_FILENO, &readable);
        int ready = pselect(STDIN_FILENO + 1, &readable, NULL, NULL, NULL, &editor->mask);
        editor->interrupted = gs_interrupted();
        if (editor->interrupted || (ready < 0 && errno != EINTR))
            return -1;
        ssize_t n = ready > 0 ? read(STDIN_FILENO, byte, 1) : -1;
        if (n >= 0 || (errno != EINTR && errno != EAGAIN))
            return n;
    }
}

/* As libedit's own: 1 and a character, 0 at the end of the input, -1. What is none in this locale is left
 * out. */
static int read_character(EditLine *edit, wchar_t *c)
{
    struct gs_line_editor *editor = editor_of(edit);
    mbstate_t state = {0};
    for (;;) {
        char byte;
        ssize_t n = wait_byte(editor, &byte);
        if (n <= 0)
            return (int)n;
        bool began = mbsinit(&state) == 0;
        size_t size = mbrtowc(c, &byte, 1, &state);
        if (size == (size_t)-1 && began) { /* what breaks a character off may be one: the end of the line */
            state = (mbstate_t){0};
            size = mbrtowc(c, &byte, 1, &state);
        }
        if (size == 0 || size == 1)
            return 1;
        if (size == (size_t)-1)
            state = (mbstate_t){0};
    }
}

static char *show_prompt(EditLine *edit)
{
    return (char *)(uintptr_t)editor_of(edit)->prompt;
}

static unsigned char interrupt_line(EditLine *edit, wint_t key)
{
    (void)key;
    editor_of(edit)->interrupted = true;
    return CC_NEWLINE;
}

/* Ends the program's line as Ctrl-D on an empty one does everywhere; elsewhere it deletes. */
static unsigned char end_or_delete(EditLine *edit, wint_t key)
{
    const LineInfo *line = el_line(edit);
    (void)key;
    if (line->lastchar == line->buffer)
        return CC_EOF;
    if (line->cursor == line->lastchar)
        return CC_ERROR;
    el_cursor(edit, 1);
    el_deletestr(edit, 1);
    return CC_REFRESH;
}

static unsigned char complete_word(EditLine *edit, wint_t key)
{
    const struct gs_line_editor *editor = editor_of(edit);
    const LineInfo *line = el_line(edit);
    size_t size = (size_t)(line->cursor - line->buffer);
    const char *found = NULL;
    (void)key;
    for (const char *const *word = editor->completions; word && *word; word++)
        if (size > 0 && strncmp(*word, line->buffer, size) == 0) {
            if (found)
                return CC_ERROR;
            found = *word;
        }
    if (!found || el_insertstr(edit, found + size) != 0 || el_insertstr(edit, " ") != 0)
        return CC_ERROR;
    return CC_REFRESH;
}

/* ---------------------------------------------------------------- paste */

/* What the terminal sends until the end of the paste, newlines as \n, other control characters left out. */
static bool read_paste(EditLine *edit, struct gs_buffer *text)
{
    static const char end[] = PASTE_END;
    size_t matched = 0;
    wchar_t c, last = 0;
    while (matched < PASTE_END_SIZE) {
        char bytes[4];
        if (el_wgetc(edit, &c) != 1)
            return false;
        if (c == (wchar_t)end[matched]) {
            matched++;
            continue;
        }
        matched = c == (wchar_t)end[0] ? 1 : 0;
        bool newline = c == L'\r' || (c == L'\n' && last != L'\r');
        last = c;
        if (newline)
            c = L'\n';
        else if (matched > 0 || (c < 0x20 && c != L'\t') || c == 0x7F)
            continue;
        size_t size = gs_utf8_encode((uint32_t)c, bytes);
        if (text->size < MAX_PASTE && gs_buffer_append(text, bytes, size, NULL) != GS_OK)
            return false;
    }
    return true;
}

static size_t count_lines(const struct gs_buffer *text)
{
    size_t lines = 1;
    for (size_t i = 0; i + 1 < text->size; i++)
        lines += text->data[i] == '\n';
    return lines;
}

/* Keeps a long paste aside; what stands for it goes to `name`. */
static bool put_aside(struct gs_line_editor *editor, struct gs_buffer *text, char *name, size_t size)
{
    struct gs_buffer *pastes = realloc(editor->pastes, (editor->n_paste + 1) * sizeof *pastes);
    if (!pastes)
        return false;
    editor->pastes = pastes;
    pastes[editor->n_paste++] = *text;
    snprintf(name, size, "[pasted %zu: %zu lines]", editor->n_paste, count_lines(text));
    *text = (struct gs_buffer){0};
    return true;
}

static unsigned char paste(EditLine *edit, wint_t key)
{
    struct gs_line_editor *editor = editor_of(edit);
    struct gs_buffer text = {0};
    char name[64];
    (void)key;
    bool ok = read_paste(edit, &text) && text.size > 0;
    if (ok && count_lines(&text) > MAX_SHOWN)
        ok = put_aside(editor, &text, name, sizeof name) && el_insertstr(edit, name) == 0;
    else if (ok)
        ok = el_insertstr(edit, text.data) == 0;
    gs_buffer_free(&text);
    return ok ? CC_REFRESH : CC_ERROR;
}

/* The line with the pastes in their places. */
static gs_status append_line(const struct gs_line_editor *editor, const char *text, size_t size,
                             struct gs_buffer *line, struct gs_error *error)
{
    gs_status status = GS_OK;
    size_t at = 0;
    while (at < size && status == GS_OK) {
        size_t number, n_line;
        int length = 0;
        bool named = sscanf(text + at, "[pasted %zu: %zu lines]%n", &number, &n_line, &length) == 2 &&
                     length > 0 && number >= 1 && number <= editor->n_paste;
        if (named)
            status = gs_buffer_append(line, editor->pastes[number - 1].data, editor->pastes[number - 1].size,
                                      error);
        else
            status = gs_buffer_append(line, text + at, 1, error);
        at += named ? (size_t)length : 1;
    }
    return status;
}

static void forget_pastes(struct gs_line_editor *editor)
{
    for (size_t i = 0; i < editor->n_paste; i++)
        gs_buffer_free(&editor->pastes[i]);
    free(editor->pastes);
    editor->pastes = NULL;
    editor->n_paste = 0;
}

/* ---------------------------------------------------------------- the editor */

static void bind_keys(struct gs_line_editor *editor)
{
    EditLine *edit = editor->edit;
    el_set(edit, EL_EDITOR, "emacs");
    /* The narrow form would keep copies of the names for ever. */
    el_wset(edit, EL_ADDFN, L"gs-paste", L"takes a paste whole", paste);
    el_wset(edit, EL_ADDFN, L"gs-interrupt", L"gives the line up", interrupt_line);
    el_wset(edit, EL_ADDFN, L"gs-end", L"ends the input, or deletes", end_or_delete);
    el_wset(edit, EL_ADDFN, L"gs-complete", L"completes a command", complete_word);
    el_set(edit, EL_BIND, "\033[200~", "gs-paste", NULL);
    el_set(edit, EL_BIND, "^C", "gs-interrupt", NULL);
    el_set(edit, EL_BIND, "^D", "gs-end", NULL);
    el_set(edit, EL_BIND, "\t", "gs-complete", NULL);
    el_set(edit, EL_BIND, "\033[1;5C", "em-next-word", NULL);
    el_set(edit, EL_BIND, "\033[1;5D", "ed-prev-word", NULL);
    el_set(edit, EL_BIND, "\033[3~", "ed-delete-next-char", NULL);
    el_set(edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(edit, NULL);
}

/* A line as libedit keeps it: white space, control characters and backslashes in octal. */
static gs_status encode_line(struct gs_buffer *out, const char *text, struct gs_error *error)
{
    gs_status status = GS_OK;
    for (; *text && status == GS_OK; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte <= ' ' || byte == 0x7F || byte == '\\')
            status = gs_buffer_print(out, error, "\\%03o", byte);
        else
            status = gs_buffer_append(out, text, 1, error);
    }
    return status == GS_OK ? gs_buffer_append(out, "\n", 1, error) : status;
}

/* The file anew, with the lines that are in memory. What fails is not worth a word: the old file stays. */
static void trim_history(struct gs_line_editor *editor)
{
    struct gs_file_write file = {0};
    struct gs_buffer lines = {0};
    HistEvent *event = &editor->event;
    gs_status status = gs_buffer_append_text(&lines, HISTORY_HEAD, NULL);
    for (int found = history(editor->history, event, H_LAST); found >= 0 && status == GS_OK;
         found = history(editor->history, event, H_PREV))
        status = encode_line(&lines, event->str, NULL);
    if (status == GS_OK)
        status = gs_file_write_begin(&file, editor->history_path, NULL);
    if (status == GS_OK) {
        status = gs_file_write_bytes(&file, lines.data, lines.size, NULL);
        gs_file_write_end(&file, status, NULL);
    }
    gs_buffer_free(&lines);
}

/* In one piece at the file's end, so that several chats can share it. Only its owner may read it. */
static void append_history(const struct gs_line_editor *editor, const char *text)
{
    struct gs_buffer line = {0};
    struct stat info;
    gs_status status = GS_OK;
    int descriptor = open(editor->history_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor < 0)
        return;
    if (fstat(descriptor, &info) == 0 && info.st_size == 0)
        status = gs_buffer_append_text(&line, HISTORY_HEAD, NULL);
    if (status == GS_OK)
        status = encode_line(&line, text, NULL);
    if (status == GS_OK) {
        ssize_t ignored = write(descriptor, line.data, line.size);
        (void)ignored;
    }
    close(descriptor);
    gs_buffer_free(&line);
}

static bool open_history(struct gs_line_editor *editor)
{
    editor->history = history_init();
    if (!editor->history)
        return false;
    history(editor->history, &editor->event, H_SETSIZE, MAX_HISTORY);
    history(editor->history, &editor->event, H_SETUNIQUE, 1);
    if (editor->history_path) {
        int n_line = history(editor->history, &editor->event, H_LOAD, editor->history_path);
        if (n_line < 0 || n_line > 2 * MAX_HISTORY)
            trim_history(editor);
    }
    el_set(editor->edit, EL_HIST, history, editor->history);
    return true;
}

gs_status gs_line_editor_open(const struct gs_line_options *options, struct gs_line_editor **out,
                              struct gs_error *error)
{
    *out = NULL;
    if (!gs_is_terminal(STDIN_FILENO) || !gs_is_cursor_terminal(STDERR_FILENO))
        return GS_OK;
    struct gs_line_editor *editor = calloc(1, sizeof *editor);
    if (!editor)
        return gs_fail_memory(error, sizeof *editor);
    editor->history_path = options->history ? strdup(options->history) : NULL;
    editor->completions = options->completions;
    int descriptor = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    editor->out = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    set_interrupt_key(false, &editor->interrupt_key);
    if (editor->out)
        editor->edit = el_init("gossamer", stdin, editor->out, editor->out);
    if (!editor->edit || !open_history(editor)) {
        gs_line_editor_close(editor);
        return gs_fail(error, GS_OUT_OF_MEMORY, "cannot prepare the line editor");
    }
    el_set(editor->edit, EL_CLIENTDATA, editor);
    el_set(editor->edit, EL_SIGNAL, 0);
    el_wset(editor->edit, EL_GETCFN, read_character);
    el_set(editor->edit, EL_PROMPT_ESC, show_prompt, '\1');
    bind_keys(editor);
    set_interrupt_key(true, &editor->interrupt_key);
    *out = editor;
    return GS_OK;
}

void gs_line_editor_close(struct gs_line_editor *editor)
{
    if (!editor)
        return;
    if (editor->history)
        history_end(editor->history);
    if (editor->edit)
        el_end(editor->edit);
    set_interrupt_key(true, &editor->interrupt_key); /* libedit restored what it had found */
    if (editor->out)
        fclose(editor->out);
    forget_pastes(editor);
    free(editor->history_path);
    free(editor);
}

gs_status gs_line_editor_read(struct gs_line_editor *editor, const char *prompt, struct gs_buffer *line,
                              enum gs_line_end *end, struct gs_error *error)
{
    int count = 0;
    gs_status status = GS_OK;
    cc_t key = 0;
    editor->prompt = prompt;
    set_interrupt_key(false, &key);
    block_interrupts(&editor->mask);
    editor->interrupted = gs_interrupted(); /* before this */
    const char *text = NULL;
    if (!editor->interrupted) {
        el_resize(editor->edit);
        fputs(PASTE_ON, editor->out);
        text = el_gets(editor->edit, &count);
        fputs(!text && editor->interrupted ? "\n" PASTE_OFF : PASTE_OFF, editor->out);
        fflush(editor->out);
    }
    pthread_sigmask(SIG_SETMASK, &editor->mask, NULL);
    set_interrupt_key(true, &key);
    *end = editor->interrupted ? GS_LINE_INTERRUPTED : !text || count <= 0 ? GS_LINE_EOF : GS_LINE_DONE;
    if (*end == GS_LINE_DONE) {
        size_t size = (size_t)count;
        if (text[size - 1] == '\n')
            size--;
        status = append_line(editor, text, size, line, error);
    }
    forget_pastes(editor);
    return status;
}

void gs_line_editor_remember(struct gs_line_editor *editor, const char *text)
{
    HistEvent *event = &editor->event;
    bool repeated =
        history(editor->history, event, H_FIRST) >= 0 && event->str && strcmp(event->str, text) == 0;
    if (!repeated && editor->history_path)
        append_history(editor, text);
    history(editor->history, event, H_ENTER, text);
}

#else

gs_status gs_line_editor_open(const struct gs_line_options *options, struct gs_line_editor **out,
                              struct gs_error *error)
{
    (void)options;
    (void)error;
    *out = NULL;
    return GS_OK;
}

void gs_line_editor_close(struct gs_line_editor *editor)
{
    (void)editor;
}

gs_status gs_line_editor_read(struct gs_line_editor *editor, const char *prompt, struct gs_buffer *line,
                              enum gs_line_end *end, struct gs_error *error)
{
    (void)editor;
    (void)prompt;
    (void)line;
    *end = GS_LINE_EOF;
    return gs_fail(error, GS_UNSUPPORTED, "this gossamer was built without libedit");
}

void gs_line_editor_remember(struct gs_line_editor *editor, const char *text)
{
    (void)editor;
    (void)text;
}

#endif
