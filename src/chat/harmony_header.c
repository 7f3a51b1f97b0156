#include "chat/harmony_header.h"

#include <string.h>

static const char *const roles[] = {"assistant", "user", "system", "developer", "tool"};
static const char *const channels[] = {"analysis", "commentary", "final"};
static const char *const content_types[] = {"json", "code"};

enum { N_ROLE = 5, N_CHANNEL = 3, N_TYPE = 2 };

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static struct gs_text skip_blanks(struct gs_text text)
{
    while (text.size > 0 && is_blank(*text.bytes)) {
        text.bytes++;
        text.size--;
    }
    return text;
}

static struct gs_text skip(struct gs_text text, size_t size)
{
    return (struct gs_text){text.bytes + size, text.size - size};
}

static size_t index_of(struct gs_text word, const char *const *names, size_t count)
{
    size_t i = 0;
    while (i < count && !gs_text_is(word, names[i]))
        i++;
    return i;
}

/*
 * The next word of *text, and past it; false if there is none. A recipient that is glued to a role or to a
 * channel ("commentaryto=...") is a word of its own.
 */
static bool next_word(struct gs_text *text, struct gs_text *word)
{
    *text = skip_blanks(*text);
    size_t size = 0;
    while (size < text->size && !is_blank(text->bytes[size]))
        size++;
    *word = (struct gs_text){text->bytes, size};
    const char *to = size > 3 ? memmem(text->bytes + 1, size - 1, "to=", 3) : NULL;
    if (to) {
        struct gs_text front = {text->bytes, (size_t)(to - text->bytes)};
        if (index_of(front, roles, N_ROLE) < N_ROLE || index_of(front, channels, N_CHANNEL) < N_CHANNEL)
            *word = front;
    }
    *text = skip(*text, word->size);
    return word->size > 0;
}

/* ---------------------------------------------------------------- names of tools */

static struct gs_text without_prefix(struct gs_text name)
{
    return gs_text_begins(name, "functions.") ? skip(name, strlen("functions.")) : name;
}

/* The characters that a name may have, up to the first other one. */
static struct gs_text name_part(struct gs_text text)
{
    size_t size = 0;
    while (size < text.size) {
        char c = text.bytes[size];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
              c == '-' || c == '.'))
            break;
        size++;
    }
    return (struct gs_text){text.bytes, size};
}

static bool find_declared(const struct gs_declared_tools *tools, struct gs_text name,
                          struct gs_text *declared)
{
    for (size_t i = 0; i < tools->n_function; i++)
        if (gs_text_equal(tools->functions[i], name)) {
            *declared = tools->functions[i];
            return true;
        }
    return false;
}

static bool match_declared(const struct gs_declared_tools *tools, struct gs_text name,
                           struct gs_text *declared)
{
    return find_declared(tools, name, declared) || find_declared(tools, without_prefix(name), declared);
}

/* "get_weatherjson": the blank before the content type was left out. */
static bool match_glued(const struct gs_declared_tools *tools, struct gs_text name, struct gs_text *declared)
{
    for (size_t i = 0; i < N_TYPE; i++) {
        size_t size = strlen(content_types[i]);
        if (name.size <= size || memcmp(name.bytes + name.size - size, content_types[i], size) != 0)
            continue;
        if (match_declared(tools, (struct gs_text){name.bytes, name.size - size}, declared))
            return true;
    }
    return false;
}

static bool is_builtin(struct gs_text name)
{
    static const char *const families[] = {"python", "browser", "container"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        size_t size = strlen(families[i]);
        if (gs_text_begins(name, families[i]) && (name.size == size || name.bytes[size] == '.'))
            return true;
    }
    return false;
}

/* A recipient that is no tool. */
static bool is_nobody(struct gs_text name)
{
    return name.size == 0 || gs_text_is(name, "assistant") || gs_text_is(name, "all") ||
           gs_text_is(name, "user");
}

/* What a message to `recipient` is; false if that is nobody in particular. */
static bool read_recipient(const struct gs_declared_tools *tools, struct gs_text recipient,
                           struct gs_header *header)
{
    struct gs_text name = without_prefix(name_part(recipient));
    header->kind = GS_MESSAGE_CALL;
    if (match_declared(tools, name_part(recipient), &header->name) ||
        match_glued(tools, name_part(recipient), &header->name))
        return true;
    if (is_nobody(name))
        return false;
    header->name = name;
    if (is_builtin(name)) {
        header->builtin = (tools->python && *name.bytes == 'p') || (tools->browser && *name.bytes == 'b');
        header->kind = header->builtin ? GS_MESSAGE_CALL : GS_MESSAGE_HIDDEN;
    }
    return true;
}

/* ---------------------------------------------------------------- the parts of a header */

struct reading {
    const struct gs_header_parts *parts;
    const struct gs_declared_tools *tools;
    struct gs_header *header;
    struct gs_text recipient;
    bool addressed; /* some recipient was written, be it "assistant" */
};

/* "to=NAME", "to= NAME", or on its own a name that says what it is: "functions.NAME". */
static bool read_recipient_word(struct reading *r, struct gs_text word, struct gs_text *text, bool bare)
{
    if (gs_text_begins(word, "to=")) {
        struct gs_text name = skip(word, 3), ahead = *text, next;
        if (name.size == 0 && next_word(&ahead, &next) && gs_text_begins(next, "functions.")) {
            name = next;
            *text = ahead;
        }
        if (!is_nobody(name) || r->recipient.size == 0)
            r->recipient = name;
    } else if (bare && gs_text_begins(word, "functions.")) {
        r->recipient = word;
    } else {
        return false;
    }
    r->addressed = true;
    return true;
}

/* Who speaks; past the word that says it. The assistant where nobody is named. */
static size_t read_author(struct reading *r, struct gs_text *text, struct gs_text *author)
{
    struct gs_text ahead = *text, declared;
    size_t role = 0;
    *author = (struct gs_text){0};
    if (!next_word(&ahead, author) || gs_text_begins(*author, "to=")) {
        *author = (struct gs_text){0};
        return 0;
    }
    role = index_of(*author, roles, N_ROLE);
    if (role == N_ROLE && match_declared(r->tools, *author, &declared)) {
        *text = ahead;
        return N_ROLE;
    }
    for (size_t i = 0; role == N_ROLE && r->parts->starts && i < N_ROLE; i++)
        if (gs_text_begins(*author, roles[i])) {
            *text = skip_blanks(*text);
            *text = skip(*text, strlen(roles[i]));
            return i;
        }
    if (role == N_ROLE && !r->parts->starts && !gs_text_begins(*author, "functions."))
        return 0; /* a word without a meaning, where it is known who speaks */
    *text = ahead;
    return role;
}

static struct gs_text slice(struct gs_text text, size_t begin, size_t end)
{
    return (struct gs_text){text.bytes + begin, end - begin};
}

/* In a whole header the recipient may stand anywhere; otherwise this may be text that speaks of "to=". */
static void read_further_words(struct reading *r, struct gs_text text)
{
    struct gs_text word;
    while ((r->parts->has_message || r->parts->has_constrain) && next_word(&text, &word))
        if (!read_recipient_word(r, word, &text, false))
            r->header->type = word;
}

static void read_channel(struct reading *r, struct gs_text text)
{
    struct gs_header *header = r->header;
    struct gs_text ahead = text, word;
    size_t channel = N_CHANNEL;
    if (next_word(&ahead, &word) && !gs_text_begins(word, "to=") && !gs_text_begins(word, "functions.")) {
        channel = index_of(word, channels, N_CHANNEL);
        text = ahead;
        header->known_channel = channel < N_CHANNEL;
        header->kind = channel == 0   ? GS_MESSAGE_REASONING
                       : channel == 2 ? GS_MESSAGE_FINAL
                                      : GS_MESSAGE_PREAMBLE;
    }
    ahead = text;
    if (next_word(&ahead, &word) && read_recipient_word(r, word, &ahead, channel != 2))
        text = ahead;
    header->rest = text;
    read_further_words(r, text);
}

/*
 * Past a content type at the start of `text`, as long as something else follows it or it ends there: in
 * "json{...}" the arguments begin at the brace. False if there is none.
 */
static bool skip_type(struct gs_text *text)
{
    struct gs_text word = skip_blanks(*text);
    for (size_t i = 0; i < N_TYPE; i++) {
        size_t size = strlen(content_types[i]);
        if (!gs_text_begins(word, content_types[i]))
            continue;
        struct gs_text rest = skip(word, size);
        if (rest.size > 0 && name_part(rest).size > 0)
            continue;
        *text = rest;
        return true;
    }
    return false;
}

/* What follows <|constrain|>: the content type, free text up to <|message|>, or one word without that. */
static void read_type(struct reading *r, struct gs_text text)
{
    struct gs_text word, before = text;
    r->header->type = (struct gs_text){0};
    if (!r->parts->has_message && skip_type(&text)) {
        before = skip_blanks(before);
        r->header->type = (struct gs_text){before.bytes, (size_t)(text.bytes - before.bytes)};
    } else if (next_word(&text, &word) && !read_recipient_word(r, word, &text, false)) {
        r->header->type = word;
    }
    r->header->rest = text;
}

void gs_header_read(const struct gs_header_parts *parts, const struct gs_declared_tools *tools,
                    struct gs_header *header)
{
    struct reading r = {.parts = parts, .tools = tools, .header = header};
    struct gs_text whole = parts->text, author, word;
    size_t channel_at = parts->has_channel ? parts->channel_at : whole.size;
    size_t constrain_at = parts->has_constrain ? parts->constrain_at : whole.size;
    struct gs_text text = slice(whole, 0, channel_at < constrain_at ? channel_at : constrain_at);
    *header = (struct gs_header){.kind = GS_MESSAGE_FINAL, .rest = gs_text_of("")};
    size_t role = read_author(&r, &text, &author);
    header->behind = slice(whole, (size_t)(text.bytes - whole.bytes), whole.size);
    struct gs_text ahead = text;
    bool in_header = parts->has_channel || parts->has_message; /* else this may be running text */
    if (next_word(&ahead, &word) && read_recipient_word(&r, word, &ahead, in_header))
        header->rest = text = ahead;
    read_further_words(&r, text);
    if (parts->has_channel)
        read_channel(&r, slice(whole, channel_at, constrain_at > channel_at ? constrain_at : whole.size));
    if (parts->has_constrain)
        read_type(&r, slice(whole, constrain_at, channel_at > constrain_at ? channel_at : whole.size));

    enum gs_message_kind kind = header->kind;
    bool foreign = role > 0 && role < N_ROLE;
    bool result =
        role == N_ROLE && r.addressed &&
        (gs_text_begins(author, "functions.") || is_builtin(author) || match_declared(tools, author, &word));
    header->has_recipient = r.recipient.size > 0 && read_recipient(tools, r.recipient, header);
    if (!header->has_recipient)
        header->kind = kind;
    if (foreign || (result && !header->has_recipient)) {
        header->kind = GS_MESSAGE_HIDDEN;
    } else if (role == N_ROLE && in_header && !header->has_recipient &&
               match_declared(tools, author, &header->name)) {
        header->kind = GS_MESSAGE_CALL;
        header->has_recipient = true;
    }
    if (header->has_recipient)
        skip_type(&header->rest);
    header->rest = skip_blanks(header->rest);
}

bool gs_header_is_text(const struct gs_header_parts *parts)
{
    struct gs_text text = parts->text, word;
    size_t count = 0;
    if (parts->has_channel || parts->has_constrain || parts->starts)
        return false;
    while (next_word(&text, &word)) {
        if (count == 0 && (gs_text_begins(word, "to=") || gs_text_begins(word, "functions.")))
            return false;
        if (count > 0 || index_of(word, roles, N_ROLE) == N_ROLE)
            count++;
    }
    return count > 1;
}

bool gs_header_is_stub(struct gs_text text)
{
    static const char *const starts[] = {"assistant", "to=functions."};
    text = skip_blanks(text);
    if (gs_text_begins(text, "to="))
        return true;
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (text.size <= strlen(starts[i]) &&
            (text.size == 0 || memcmp(text.bytes, starts[i], text.size) == 0))
            return true;
    return false;
}
