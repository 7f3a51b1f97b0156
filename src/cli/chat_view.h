/*
 * What a person sees of a conversation. Answers go to standard output; reasoning, questions and the status
 * line go to standard error. On a terminal the reasoning runs as its last few lines and folds to one when it
 * ends, and answers are drawn from light markdown; elsewhere an answer's bytes are exactly the model's, and a
 * newline ends each.
 */
#ifndef GS_CLI_CHAT_VIEW_H
#define GS_CLI_CHAT_VIEW_H

#include "chat/assemble.h"
#include "cli/markdown.h"
#include "cli/output.h"
#include "cli/turn.h"

struct gs_view {
    struct gs_output *out; /* opened with its control characters kept: the view cleans */
    bool person;           /* standard error is a terminal */
    bool moves;            /* whose cursor can be moved */
    bool color, utf8;
    bool keep_control; /* the person wants the model's control characters */
    bool show_all;     /* reasoning is not folded */

    struct gs_cleaner thought_cleaner, answer_cleaner;
    struct gs_markdown markdown;
    struct gs_buffer thought; /* the reasoning of this turn, cleaned: /think shows it */
    struct gs_buffer scratch;
    size_t thought_from; /* where the reasoning message under way begins in it */
    double thought_began, drawn;
    int n_drawn; /* lines of the fold on the screen */
    bool answering, at_line_start;
};

void gs_view_open(struct gs_view *view, struct gs_output *out, bool keep_control, bool show_all);
void gs_view_close(struct gs_view *view);

/* A turn begins or goes on after a tool's result. */
void gs_view_begin(struct gs_view *view, bool after_result);

/* A gs_harmony_event_fn; `user` is the gs_view. */
gs_status gs_view_event(void *user, const struct gs_harmony_event *event, struct gs_error *error);

/* Figures of one turn or of several. */
struct gs_sums {
    size_t n_answer, n_generated, n_reasoning, n_computed, n_reused, n_steps;
    double prefill_seconds, decode_seconds;
    double first_seconds; /* of the first turn */
    size_t n_context;     /* tokens of the last prompt and answer */
};
void gs_sums_add(struct gs_sums *sums, const struct gs_turn *turn);

/* The quiet line under an answer; n_ctx 0: unknown. */
void gs_view_status(const struct gs_view *view, const struct gs_sums *sums, int64_t n_ctx);

/* A dim line on standard error, for persons alone; and one for everybody. */
__attribute__((format(printf, 2, 3))) void gs_view_note(const struct gs_view *view, const char *format, ...);
__attribute__((format(printf, 2, 3))) void gs_view_say(const struct gs_view *view, const char *format, ...);

/* The reasoning of the last turn. */
void gs_view_show_thought(const struct gs_view *view);

/* Text from a model or a file on standard error, cleaned; `indent` before each line. */
void gs_view_text(const struct gs_view *view, const char *indent, const char *text, size_t size);

#endif
