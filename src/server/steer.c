#include "server/steer.h"

#include "base/status.h"
#include "chat/json_path.h"
#include "text/tokens.h"

#include <stdlib.h>
#include <string.h>

/* A function whose arguments are held to its schema. */
struct bound_tool {
    struct gs_text name;
    struct gs_grammar *arguments;
};

struct gs_steer_plan {
    struct gs_steer_tools tools;
    size_t n_word;             /* of a mask */
    bool raw;                  /* no harmony is around what is generated */
    struct gs_grammar *format; /* of the final message, or of raw text; NULL: free */
    struct bound_tool *bound;  /* [n_bound] */
    size_t n_bound;
    struct gs_grammar *names; /* of a call that must come, each with a blank behind it; NULL: none must */
    bool guided;              /* headers are chosen, not only watched */
    bool may_final, may_call;
    int64_t budget;          /* tokens of reasoning; -1: no end */
    struct gs_tokens forced; /* behind the prompt: the header of a call of forced_name */
    struct gs_text forced_name;
    struct gs_tokens analysis, final, call, commentary; /* headers, from the channel's name on */
    struct gs_tokens next, json;                        /* <|start|>assistant<|channel|>; json<|message|> */
    struct gs_tokens enough;                            /* <|end|>, then `next` */
    uint64_t *header, *body; /* [n_word]: what a header, and a body that must go on, may hold */
};

enum place {
    WATCH,  /* free, until a body begins that is not */
    FORCED, /* through `queue`, then `after` */
    CHOOSE, /* which channel */
    NAME,   /* of the function */
    HEADER, /* the model writes it */
    BODY,   /* free, but the turn must not end with it */
    MASKED, /* through `mask` */
    LET_GO, /* to the end */
};

struct gs_steer {
    const struct gs_steer_plan *plan;
    enum place place, after;
    const struct gs_tokens *queue;
    size_t queue_at;
    struct gs_mask *mask;
    bool thought;      /* there was a message of reasoning */
    bool thinks;       /* the next ordinary token is one of reasoning */
    int64_t n_thought; /* tokens of reasoning */
    uint64_t *words;   /* [n_word] */
};

/* ---------------------------------------------------------------- the plan */

void gs_steer_plan_free(struct gs_steer_plan *plan)
{
    if (!plan)
        return;
    gs_grammar_close(plan->format);
    gs_grammar_close(plan->names);
    for (size_t i = 0; i < plan->n_bound; i++)
        gs_grammar_close(plan->bound[i].arguments);
    free(plan->bound);
    struct gs_tokens *lists[] = {&plan->forced,     &plan->analysis, &plan->final, &plan->call,
                                 &plan->commentary, &plan->next,     &plan->json,  &plan->enough};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        gs_tokens_free(lists[i]);
    free(plan->header);
    free(plan->body);
    free(plan);
}

const struct gs_tokens *gs_steer_plan_forced(const struct gs_steer_plan *plan)
{
    return &plan->forced;
}

static void set(uint64_t *words, int32_t id)
{
    if (id >= 0)
        words[id / 64] |= (uint64_t)1 << (id % 64);
}

static gs_status make_masks(struct gs_steer_plan *plan, struct gs_error *error)
{
    const struct gs_steer_tools *t = &plan->tools;
    size_t size, count = gs_vocab_size(t->vocab);
    plan->header = calloc(plan->n_word, sizeof *plan->header);
    plan->body = calloc(plan->n_word, sizeof *plan->body);
    if (!plan->header || !plan->body)
        return gs_fail_memory(error, plan->n_word * sizeof *plan->body);
    for (size_t id = 0; id < count && id < t->n_vocab; id++)
        if (!gs_vocab_is_special(t->vocab, (int32_t)id) && gs_vocab_bytes(t->vocab, (int32_t)id, &size)) {
            set(plan->header, (int32_t)id);
            set(plan->body, (int32_t)id);
        }
    set(plan->header, t->markers.constrain);
    set(plan->header, t->markers.message);
    set(plan->body, t->markers.end);
    return GS_OK;
}

/* Texts of special tokens become those tokens: all of this is written here, but for names that were checked.
 */
static gs_status make_header(const struct gs_steer_plan *plan, const char *text, struct gs_tokens *tokens,
                             struct gs_error *error)
{
    return gs_vocab_encode_special(plan->tools.vocab, text, strlen(text), tokens, error);
}

static gs_status make_headers(struct gs_steer_plan *plan, struct gs_error *error)
{
    gs_status status = make_header(plan, "analysis<|message|>", &plan->analysis, error);
    if (status == GS_OK)
        status = make_header(plan, "final<|message|>", &plan->final, error);
    if (status == GS_OK)
        status = make_header(plan, "commentary to=functions.", &plan->call, error);
    if (status == GS_OK)
        status = make_header(plan, "commentary", &plan->commentary, error);
    if (status == GS_OK)
        status = make_header(plan, "<|start|>assistant<|channel|>", &plan->next, error);
    if (status == GS_OK)
        status = make_header(plan, "json<|message|>", &plan->json, error);
    if (status == GS_OK)
        status = make_header(plan, "<|end|><|start|>assistant<|channel|>", &plan->enough, error);
    return status == GS_OK ? make_masks(plan, error) : status;
}

/* The header of a call whose function is known stands behind the prompt. */
static gs_status force_call(struct gs_steer_plan *plan, struct gs_text name, struct gs_error *error)
{
    struct gs_buffer text = {0};
    plan->forced_name = name;
    gs_status status = gs_buffer_print(&text, error,
                                       "<|channel|>commentary to=functions.%.*s <|constrain|>json"
                                       "<|message|>",
                                       (int)name.size, name.bytes);
    if (status == GS_OK)
        status = make_header(plan, text.data, &plan->forced, error);
    gs_buffer_free(&text);
    return status;
}

static gs_status make_names(struct gs_steer_plan *plan, const struct gs_request *request,
                            struct gs_error *error)
{
    const struct gs_declared_tools *tools = &request->tools;
    char(*texts)[80] = calloc(tools->n_function, sizeof *texts);
    const char **pointers = calloc(tools->n_function, sizeof *pointers);
    gs_status status = texts && pointers ? GS_OK : gs_fail_memory(error, tools->n_function * 80);
    for (size_t i = 0; i < tools->n_function && status == GS_OK; i++) {
        gs_format(texts[i], sizeof texts[i], "%.*s ", (int)tools->functions[i].size,
                  tools->functions[i].bytes);
        pointers[i] = texts[i];
    }
    if (status == GS_OK)
        status = gs_grammar_texts(pointers, tools->n_function, &plan->names, error);
    free(pointers);
    free(texts);
    return status;
}

/* ---------------------------------------------------------------- schemas */

static int warn(struct gs_request *request, struct gs_api_error *error, const char *where, const char *why)
{
    char text[900];
    gs_format(text, sizeof text, "%s: %s", where, why);
    if (!request->warnings)
        request->warnings = json_array();
    json_t *line = json_string(text);
    if (!request->warnings || !line || json_array_append_new(request->warnings, line) != 0)
        return gs_api_fail(error, 503, "out_of_memory", "memory is out");
    return 0;
}

/*
 * *out: the grammar, or NULL where there cannot be one and that is no error. `strict`: all of the schema must
 * be honoured; `must`: there has to be a grammar. `where` is its path in the request.
 */
static int compile(const struct gs_steer_tools *tools, const json_t *schema, bool strict, bool must,
                   const char *where, struct gs_request *request, struct gs_grammar **out,
                   struct gs_api_error *error)
{
    struct gs_schema_report report;
    struct gs_error cause;
    char line[700];
    *out = NULL;
    gs_status status = GS_UNSUPPORTED;
    if (tools->trie)
        status = gs_grammar_cache_get(tools->grammars, schema, out, &report, &cause);
    else
        gs_fail(&cause, status, "the model's vocabulary cannot be held to a format");
    if (status == GS_OUT_OF_MEMORY)
        return gs_api_error_from(error, status, &cause);
    if (status != GS_OK && (strict || must))
        return gs_api_bad(error, where, "%s: %s", where, cause.message);
    if (status != GS_OK) {
        gs_format(line, sizeof line, "the schema is not enforced: %s", cause.message);
        return warn(request, error, where, line);
    }
    for (size_t i = 0; i < report.count; i++) {
        gs_format(line, sizeof line, "%s is not supported at %s", report.list[i].keyword,
                  report.list[i].path);
        int bad =
            strict ? gs_api_bad(error, where, "%s: %s", where, line) : warn(request, error, where, line);
        if (bad != 0) {
            gs_grammar_close(*out);
            *out = NULL;
            return bad;
        }
    }
    return 0;
}

static bool is_strict(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return json_is_true(json_object_get(function ? function : tool, "strict"));
}

/* Arguments of strict tools, and of those that must be called, are held to their schema. */
static int bind_tools(struct gs_steer_plan *plan, struct gs_request *request, struct gs_api_error *error)
{
    const json_t *list = json_object_get(request->document, "tools");
    bool must = request->tool_choice == GS_TOOLS_REQUIRED || request->tool_choice == GS_TOOLS_NAMED;
    const struct gs_namespace *functions = request->conversation.functions;
    size_t at = 0; /* in `functions`: the tools of the list that are functions, in order */
    if (!functions || request->tool_choice == GS_TOOLS_NONE)
        return 0;
    plan->bound = calloc(functions->n_function, sizeof *plan->bound);
    if (!plan->bound)
        return gs_api_fail(error, 503, "out_of_memory", "memory is out");
    for (size_t i = 0; i < json_array_size(list) && at < functions->n_function; i++) {
        const json_t *tool = json_array_get(list, i);
        if (!gs_text_is(gs_json_text(json_object_get(tool, "type")), "function"))
            continue;
        const struct gs_function *function = &functions->functions[at++];
        bool named = gs_text_equal(function->name, request->tool_name);
        if (!is_strict(tool) && !(must && (named || !request->tool_name.bytes)))
            continue;
        struct gs_json_path path = gs_json_path_index("tools", i);
        path = gs_json_path_key(path.text,
                                json_object_get(tool, "function") ? "function.parameters" : "parameters");
        struct bound_tool *bound = &plan->bound[plan->n_bound];
        int status = compile(&plan->tools, function->parameters, is_strict(tool), false, path.text, request,
                             &bound->arguments, error);
        if (status != 0)
            return status;
        bound->name = function->name;
        plan->n_bound += bound->arguments != NULL;
    }
    return 0;
}

static int bind_format(struct gs_steer_plan *plan, struct gs_request *request, struct gs_api_error *error)
{
    const struct gs_format *format = &request->format;
    if (format->kind == GS_FORMAT_TEXT)
        return 0;
    bool schema = format->kind == GS_FORMAT_JSON_SCHEMA;
    return compile(&plan->tools, schema ? format->schema : NULL, format->strict, true,
                   schema ? "response_format.json_schema.schema" : "response_format", request, &plan->format,
                   error);
}

static bool is_needed(const struct gs_request *request)
{
    const json_t *list = request->chat ? json_object_get(request->document, "tools") : NULL;
    bool strict = false;
    for (size_t i = 0; i < json_array_size(list); i++)
        strict |= is_strict(json_array_get(list, i));
    return strict || request->tool_choice != GS_TOOLS_AUTO || request->format.kind != GS_FORMAT_TEXT ||
           request->reasoning_budget >= 0;
}

static int fill_plan(struct gs_steer_plan *plan, struct gs_request *request, struct gs_api_error *error)
{
    struct gs_error cause;
    plan->raw = !request->chat;
    plan->budget = request->reasoning_budget;
    if (plan->raw)
        return bind_format(plan, request, error);
    gs_status status = make_headers(plan, &cause);
    if (status != GS_OK)
        return gs_api_error_from(error, status, &cause);
    int bad = bind_format(plan, request, error);
    if (bad == 0)
        bad = bind_tools(plan, request, error);
    if (bad != 0)
        return bad;
    const struct gs_declared_tools *tools = &request->tools;
    if (request->tool_choice == GS_TOOLS_NAMED)
        status = force_call(plan, request->tool_name, &cause);
    else if (request->tool_choice == GS_TOOLS_REQUIRED && tools->n_function == 1)
        status = force_call(plan, tools->functions[0], &cause);
    else if (request->tool_choice == GS_TOOLS_REQUIRED && plan->tools.trie)
        status = make_names(plan, request, &cause);
    if (status != GS_OK)
        return gs_api_error_from(error, status, &cause);
    plan->guided = plan->forced.count == 0 && (plan->format || plan->names ||
                                               request->tool_choice == GS_TOOLS_NONE || plan->budget == 0);
    plan->may_final = !plan->names;
    plan->may_call = plan->names || (tools->n_function > 0 && request->tool_choice == GS_TOOLS_AUTO);
    return 0;
}

int gs_steer_plan_make(const struct gs_steer_tools *tools, struct gs_request *request,
                       struct gs_steer_plan **out, struct gs_api_error *error)
{
    *out = NULL;
    if (!is_needed(request))
        return 0;
    struct gs_steer_plan *plan = calloc(1, sizeof *plan);
    if (!plan)
        return gs_api_fail(error, 503, "out_of_memory", "memory is out");
    plan->tools = *tools;
    plan->n_word = (tools->n_vocab + 63) / 64;
    int status = fill_plan(plan, request, error);
    if (status != 0) {
        gs_steer_plan_free(plan);
        return status;
    }
    *out = plan;
    return 0;
}

/* ---------------------------------------------------------------- a choice */

/* Which grammar a body that begins now is held to; NULL: none. */
static struct gs_grammar *grammar_of(const struct gs_steer_plan *plan, const struct gs_steer_place *place)
{
    if (place->kind == GS_MESSAGE_FINAL)
        return plan->format;
    for (size_t i = 0; i < plan->n_bound && place->kind == GS_MESSAGE_CALL; i++)
        if (gs_text_equal(plan->bound[i].name, place->call))
            return plan->bound[i].arguments;
    return NULL;
}

static gs_status begin_body(struct gs_steer *s, const struct gs_steer_place *place, struct gs_error *error)
{
    const struct gs_steer_plan *plan = s->plan;
    struct gs_grammar *grammar = grammar_of(plan, place);
    const int32_t *end =
        place->kind == GS_MESSAGE_FINAL ? &plan->tools.markers.final_return : &plan->tools.markers.call;
    gs_mask_close(s->mask);
    s->mask = NULL;
    if (grammar) {
        s->place = MASKED;
        return gs_mask_open(grammar, plan->tools.trie, end, 1, &s->mask, error);
    }
    bool goes_on = place->kind != GS_MESSAGE_FINAL && place->kind != GS_MESSAGE_CALL;
    s->place = !plan->guided ? WATCH : goes_on ? BODY : LET_GO;
    return GS_OK;
}

static gs_status begin_raw(struct gs_steer *s, struct gs_error *error)
{
    const struct gs_markers *markers = &s->plan->tools.markers;
    const int32_t ends[] = {markers->final_return, markers->end_of_text};
    s->place = MASKED;
    return gs_mask_open(s->plan->format, s->plan->tools.trie, ends, markers->end_of_text < 0 ? 1 : 2,
                        &s->mask, error);
}

static void force(struct gs_steer *s, const struct gs_tokens *queue, size_t from, enum place after)
{
    s->queue = queue;
    s->queue_at = from;
    s->after = after;
    s->place = FORCED;
}

gs_status gs_steer_open(const struct gs_steer_plan *plan, struct gs_steer **out, struct gs_error *error)
{
    *out = NULL;
    struct gs_steer *s = calloc(1, sizeof *s);
    if (!s || !(s->words = calloc(plan->n_word, sizeof *s->words))) {
        free(s);
        return gs_fail_memory(error, plan->n_word * sizeof *s->words);
    }
    gs_status status = GS_OK;
    s->plan = plan;
    s->thought = plan->budget == 0;
    if (plan->raw) {
        status = begin_raw(s, error);
    } else if (plan->forced.count > 0) {
        struct gs_steer_place place = {.in_body = true, .kind = GS_MESSAGE_CALL, .call = plan->forced_name};
        status = begin_body(s, &place, error);
    } else if (plan->guided) {
        force(s, &plan->next, plan->next.count - 1, CHOOSE); /* the <|channel|> */
    }
    if (status != GS_OK) {
        gs_steer_close(s);
        return status;
    }
    *out = s;
    return GS_OK;
}

void gs_steer_close(struct gs_steer *s)
{
    if (!s)
        return;
    gs_mask_close(s->mask);
    free(s->words);
    free(s);
}

gs_status gs_steer_allowed(struct gs_steer *s, const uint64_t **words, struct gs_error *error)
{
    const struct gs_steer_plan *plan = s->plan;
    *words = s->words;
    memset(s->words, 0, plan->n_word * sizeof *s->words);
    switch (s->place) {
    case FORCED:
        set(s->words, s->queue->ids[s->queue_at]);
        return GS_OK;
    case CHOOSE:
        if (!s->thought)
            set(s->words, plan->analysis.ids[0]);
        if (plan->may_final)
            set(s->words, plan->final.ids[0]);
        if (plan->may_call)
            set(s->words, plan->commentary.ids[0]);
        return GS_OK;
    case NAME:
    case MASKED:
        return gs_mask_allowed(s->mask, words, error);
    case HEADER:
        *words = plan->header;
        return GS_OK;
    case BODY:
        *words = plan->body;
        return GS_OK;
    case WATCH:
    case LET_GO:
        *words = NULL;
        return GS_OK;
    }
    return GS_OK;
}

static gs_status begin_name(struct gs_steer *s, struct gs_error *error)
{
    s->place = NAME;
    return gs_mask_open(s->plan->names, s->plan->tools.trie, &s->plan->tools.markers.constrain, 1, &s->mask,
                        error);
}

/* The queue is through. */
static gs_status go_on(struct gs_steer *s, const struct gs_steer_place *place, struct gs_error *error)
{
    s->place = s->after;
    if (s->after == BODY)
        return place->in_body ? begin_body(s, place, error) : GS_OK;
    return s->after == NAME ? begin_name(s, error) : GS_OK;
}

static gs_status take_channel(struct gs_steer *s, int32_t id, const struct gs_steer_place *place,
                              struct gs_error *error)
{
    const struct gs_steer_plan *plan = s->plan;
    const struct gs_tokens *header = NULL;
    enum place after = BODY;
    if (id == plan->analysis.ids[0] && !s->thought) {
        header = &plan->analysis;
        s->thought = true;
    } else if (id == plan->final.ids[0] && plan->may_final) {
        header = &plan->final;
    } else if (id == plan->commentary.ids[0] && plan->may_call) {
        header = plan->names ? &plan->call : &plan->commentary;
        after = plan->names ? NAME : HEADER;
    }
    if (!header) {
        s->place = LET_GO;
        return GS_OK;
    }
    force(s, header, 1, after);
    return header->count == 1 ? go_on(s, place, error) : GS_OK;
}

static gs_status take_masked(struct gs_steer *s, int32_t id, struct gs_error *error)
{
    gs_status status = gs_mask_accept(s->mask, id, NULL);
    if (status == GS_OUT_OF_MEMORY)
        return gs_fail(error, status, "memory is out");
    if (status != GS_OK) {
        s->place = LET_GO;
    } else if (gs_mask_ended(s->mask) && s->place == NAME) {
        gs_mask_close(s->mask);
        s->mask = NULL;
        force(s, &s->plan->json, 0, BODY);
    } else if (gs_mask_ended(s->mask)) {
        s->place = LET_GO;
    }
    return GS_OK;
}

/* Counts tokens of reasoning. Are there as many as there may be? */
static bool is_enough(struct gs_steer *s, const struct gs_steer_place *place)
{
    bool thinks = place->in_body && place->kind == GS_MESSAGE_REASONING;
    s->n_thought += thinks && s->thinks;
    s->thinks = thinks;
    return thinks && s->plan->budget >= 0 && s->n_thought >= s->plan->budget;
}

gs_status gs_steer_take(struct gs_steer *s, int32_t id, const struct gs_steer_place *place,
                        struct gs_error *error)
{
    if (is_enough(s, place) && s->place != LET_GO) {
        s->thought = true;
        force(s, &s->plan->enough, 0, CHOOSE);
        return GS_OK;
    }
    switch (s->place) {
    case FORCED:
        if (id != s->queue->ids[s->queue_at]) {
            s->place = LET_GO;
            return GS_OK;
        }
        return ++s->queue_at < s->queue->count ? GS_OK : go_on(s, place, error);
    case CHOOSE:
        return take_channel(s, id, place, error);
    case NAME:
    case MASKED:
        return take_masked(s, id, error);
    case WATCH:
    case HEADER: /* the marker that begins a body */
        return id == s->plan->tools.markers.message && place->in_body ? begin_body(s, place, error) : GS_OK;
    case BODY:
        if (!place->in_body)
            force(s, &s->plan->next, 0, CHOOSE);
        return GS_OK;
    case LET_GO:
        return GS_OK;
    }
    return GS_OK;
}
