#include "tests/metal_sim/scan.h"

#include "tests/metal_sim/module.h"
#include "tests/metal_sim/tokens.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scanner {
    struct tokens t;
    enum metalsim_mode mode;
    unsigned long version;
    char *message;
    size_t message_size;
    bool failed;
    char *out, *table; /* streams: the text so far, the kernels' argument lists */
    size_t out_n, table_n;
    FILE *text, *arguments, *kernels;
    char *kernel_list;
    size_t kernel_list_n;
    size_t copied; /* bytes of the source */
};

static void fail(struct scanner *s, int token, const char *format, ...) __attribute__((format(printf, 3, 4)));

static void fail(struct scanner *s, int token, const char *format, ...)
{
    if (s->failed)
        return;
    s->failed = true;
    const struct token *at = &s->t.list[token];
    int n = snprintf(s->message, s->message_size, "%s:%d: error: ", s->t.files[at->file], at->line);
    va_list list;
    va_start(list, format);
    if (n > 0 && (size_t)n < s->message_size)
        vsnprintf(s->message + n, s->message_size - (size_t)n, format, list);
    va_end(list);
}

static bool is(const struct scanner *s, int i, const char *text)
{
    return metalsim_token_is(&s->t, i, text);
}

static bool is_any(const struct scanner *s, int i, const char *const *words)
{
    for (; *words; words++)
        if (is(s, i, *words))
            return true;
    return false;
}

static int width(const struct scanner *s, int i)
{
    return (int)s->t.list[i].n;
}

static const char *word(const struct scanner *s, int i)
{
    return s->t.source + s->t.list[i].at;
}

static bool is_word(const struct scanner *s, int i)
{
    return i >= 0 && s->t.list[i].kind == TOKEN_WORD;
}

/* Token i opens an attribute: [ and at once another [. */
static bool opens_attribute(const struct scanner *s, int i)
{
    return is(s, i, "[") && is(s, i + 1, "[") && s->t.list[i + 1].at == s->t.list[i].at + 1;
}

/* ---------------------------------------------------------------- writing */

static void copy_to(struct scanner *s, size_t end)
{
    if (end > s->copied)
        fwrite(s->t.source + s->copied, 1, end - s->copied, s->text);
    s->copied = end > s->copied ? end : s->copied;
}

/* Goes on after token i, keeping the line breaks of what is left out. */
static void skip_past(struct scanner *s, int i)
{
    size_t end = s->t.list[i].at + s->t.list[i].n;
    for (; s->copied < end; s->copied++)
        if (s->t.source[s->copied] == '\n')
            fputc('\n', s->text);
}

/* ---------------------------------------------------------------- what Metal has not */

static const char *const vector_elements[] = {"char", "uchar", "short", "ushort", "int",    "uint",
                                              "long", "ulong", "float", "half",   "bfloat", NULL};

static bool is_vector_type(const struct scanner *s, int i)
{
    int n = width(s, i);
    const char *text = word(s, i);
    if (!is_word(s, i) || text[n - 1] < '2' || text[n - 1] > '4')
        return false;
    for (const char *const *element = vector_elements; *element; element++)
        if ((int)strlen(*element) == n - 1 && !memcmp(*element, text, (size_t)n - 1))
            return true;
    return false;
}

/* .s0, .s01 ...: OpenCL's swizzles */
static bool is_opencl_swizzle(const struct scanner *s, int i)
{
    int n = width(s, i);
    if (!is(s, i - 1, ".") || !is_word(s, i) || n < 2 || (word(s, i)[0] != 's' && word(s, i)[0] != 'S'))
        return false;
    return strspn(word(s, i) + 1, "0123") == (size_t)n - 1;
}

static void check_token(struct scanner *s, int i, bool in_body)
{
    static const char *const banned[] = {"double",       "goto",     "try",          "catch",   "throw",
                                         "new",          "delete",   "virtual",      "typeid",  "asm",
                                         "dynamic_cast", "std",      "thread_local", "wchar_t", "_Float16",
                                         "__bf16",       "co_await", "lgamma",       NULL};
    static const char *const before_lambda[] = {"(", ",", "=", "{", ";", "return", "&", "|", "?", ":", NULL};
    static const char *const after_lambda[] = {"]", "&", "=", NULL};
    if (is_any(s, i, banned) && !is(s, i - 1, "::"))
        fail(s, i, "Metal has no '%.*s'", width(s, i), word(s, i));
    else if (is_word(s, i) &&
             (!strncmp(word(s, i), "__builtin_", 10) || !strncmp(word(s, i), "__attribute__", 13) ||
              !strncmp(word(s, i), "metalsim", 8)))
        fail(s, i, "'%.*s' is this compiler's, not Metal's", width(s, i), word(s, i));
    else if (s->version < METALSIM_NEWEST && is_word(s, i) &&
             (!strncmp(word(s, i), "bfloat", 6) || is(s, i, "simdgroup_bfloat8x8")) && !is(s, i - 1, "."))
        fail(s, i, "'%.*s' needs language version 3.1", width(s, i), word(s, i));
    else if (in_body && is(s, i, "static"))
        fail(s, i, "Metal has no static variables in functions");
    else if (is_opencl_swizzle(s, i))
        fail(s, i, "'.%.*s' is OpenCL's swizzle: Metal has .x .xy .xyz", width(s, i), word(s, i));
    else if (is(s, i, "[") && !opens_attribute(s, i) && is_any(s, i - 1, before_lambda) &&
             is_any(s, i + 1, after_lambda))
        fail(s, i, "Metal has no lambda expressions");
    else if (is(s, i, "(") && is_vector_type(s, i + 1) && is(s, i + 2, ")") && !is_word(s, i - 1) &&
             !is(s, i + 3, "{") &&
             (is_word(s, i + 3) || is(s, i + 3, "(") || s->t.list[i + 3].kind == TOKEN_NUMBER))
        fail(s, i, "this simulator does not know the conversion (%.*s)x: write %.*s(x)", width(s, i + 1),
             word(s, i + 1), width(s, i + 1), word(s, i + 1));
}

/* ---------------------------------------------------------------- kernels */

static const struct {
    const char *name, *from;
    bool indexed;
} attributes[] = {
    {"buffer", "METALSIM_BUFFER", true},
    {"threadgroup", "METALSIM_THREADGROUP", true},
    {"thread_position_in_grid", "METALSIM_THREAD_POSITION_IN_GRID", false},
    {"thread_position_in_threadgroup", "METALSIM_THREAD_POSITION_IN_THREADGROUP", false},
    {"threadgroup_position_in_grid", "METALSIM_THREADGROUP_POSITION_IN_GRID", false},
    {"threads_per_grid", "METALSIM_THREADS_PER_GRID", false},
    {"threads_per_threadgroup", "METALSIM_THREADS_PER_THREADGROUP", false},
    {"dispatch_threads_per_threadgroup", "METALSIM_THREADS_PER_THREADGROUP", false},
    {"threadgroups_per_grid", "METALSIM_THREADGROUPS_PER_GRID", false},
    {"thread_index_in_threadgroup", "METALSIM_THREAD_INDEX_IN_THREADGROUP", false},
    {"thread_index_in_simdgroup", "METALSIM_THREAD_INDEX_IN_SIMDGROUP", false},
    {"simdgroup_index_in_threadgroup", "METALSIM_SIMDGROUP_INDEX_IN_THREADGROUP", false},
    {"simdgroups_per_threadgroup", "METALSIM_SIMDGROUPS_PER_THREADGROUP", false},
    {"dispatch_simdgroups_per_threadgroup", "METALSIM_SIMDGROUPS_PER_THREADGROUP", false},
    {"threads_per_simdgroup", "METALSIM_THREADS_PER_SIMDGROUP", false},
    {"thread_execution_width", "METALSIM_THREADS_PER_SIMDGROUP", false},
};
#define N_ATTRIBUTES (sizeof attributes / sizeof attributes[0])

/* The text of tokens [begin, end). */
static int text_width(const struct scanner *s, int begin, int end)
{
    if (begin >= end)
        return 0;
    const struct token *last = &s->t.list[end - 1];
    return (int)(last->at + last->n - s->t.list[begin].at);
}

/* One parameter, tokens [begin, end): its attribute becomes a line of the table. */
static void read_parameter(struct scanner *s, int begin, int end)
{
    int attribute = -1, name = -1;
    for (int i = begin; i < end; i++) {
        if (opens_attribute(s, i)) {
            attribute = i + 2;
            i = s->t.list[i].partner;
        } else if (is_word(s, i))
            name = i;
    }
    if (name < 0 || attribute < 0) {
        fail(s, begin, "a kernel's parameter needs a name and one attribute, such as [[buffer(0)]]");
        return;
    }
    for (size_t a = 0; a < N_ATTRIBUTES; a++) {
        if (!is(s, attribute, attributes[a].name))
            continue;
        bool indexed = is(s, attribute + 1, "(");
        if (indexed != attributes[a].indexed)
            break;
        int close = indexed ? s->t.list[attribute + 1].partner : attribute;
        fprintf(s->arguments, "{%s, ", attributes[a].from);
        if (indexed)
            fprintf(s->arguments, "(%.*s)", text_width(s, attribute + 2, close), word(s, attribute + 2));
        else
            fprintf(s->arguments, "0");
        fprintf(s->arguments, ", \"%.*s\", %d}, ", width(s, name), word(s, name), s->t.list[name].line);
        return;
    }
    fail(s, attribute, "the attribute '%.*s' is not known to this simulator", width(s, attribute),
         word(s, attribute));
}

/* The parameters between the parentheses `open` and its partner. Returns how many there are. */
static int read_parameters(struct scanner *s, int open)
{
    int close = s->t.list[open].partner, n = 0, begin = open + 1, angles = 0;
    for (int i = begin; i <= close && !s->failed; i++) {
        if (is(s, i, "<"))
            angles++;
        else if (is(s, i, ">"))
            angles--;
        else if ((i == close || (is(s, i, ",") && angles == 0)) && i > begin) {
            read_parameter(s, begin, i);
            n++;
            begin = i + 1;
        } else if (i < close && s->t.list[i].partner > i)
            i = s->t.list[i].partner;
    }
    if (n >= METALSIM_MAX_ARGUMENTS)
        fail(s, open, "a kernel with %d parameters: at most %d", n, METALSIM_MAX_ARGUMENTS - 1);
    return n;
}

/* N of [[max_total_threads_per_threadgroup(N)]] in tokens [begin, end), as text. */
static void write_max_threads(struct scanner *s, int begin, int end)
{
    for (int i = begin; i < end; i++)
        if (is(s, i, "max_total_threads_per_threadgroup") && is(s, i + 1, "(")) {
            fprintf(s->kernels, "(%.*s)", text_width(s, i + 2, s->t.list[i + 1].partner), word(s, i + 2));
            return;
        }
    fprintf(s->kernels, "0");
}

/* Token i is `kernel` outside all braces. Returns the index of its body's {. */
static int read_kernel(struct scanner *s, int i)
{
    int open = i + 1, begin = i;
    while (begin > 0 && is(s, begin - 1, "]")) /* attributes before the word */
        begin = s->t.list[begin - 1].partner;
    if (is(s, begin - 1, ">")) {
        fail(s, i, "a template cannot be a kernel here: instantiate it in a macro");
        return i;
    }
    for (; !is(s, open, "(") || s->t.list[open].partner < 0; open++) {
        if (opens_attribute(s, open))
            open = s->t.list[open].partner;
        if (s->t.list[open].kind == TOKEN_END || is(s, open, "{") || is(s, open, ";")) {
            fail(s, i, "a kernel has no parameters");
            return i;
        }
    }
    int name = open - 1, close = s->t.list[open].partner, body = close + 1;
    if (!is_word(s, name) || !is(s, name - 1, "void")) {
        fail(s, i, "a kernel is 'kernel void name(...)'");
        return i;
    }
    while (opens_attribute(s, body))
        body = s->t.list[body].partner + 1;
    if (!is(s, body, "{")) {
        fail(s, i, "a kernel without a body");
        return i;
    }
    int n = width(s, name);
    const char *text = word(s, name);
    fprintf(s->arguments,
            "\n#line %d \"%s\"\nstatic constexpr metalsim_argument metalsim_arguments_%.*s[] = {",
            s->t.list[name].line, s->t.files[s->t.list[name].file], n, text);
    int n_argument = read_parameters(s, open);
    fprintf(s->arguments, "{}};");
    fprintf(s->kernels,
            "\n#line %d \"%s\"\n{\"%.*s\", metalsim_arguments_%.*s, ::metalsim::binding<&%.*s, "
            "metalsim_arguments_%.*s>::types, %d, ",
            s->t.list[name].line, s->t.files[s->t.list[name].file], n, text, n, text, n, text, n, text,
            n_argument);
    write_max_threads(s, begin, body);
    fprintf(s->kernels, ", ::metalsim::binding<&%.*s, metalsim_arguments_%.*s>::invoke},", n, text, n, text);
    return body;
}

/* ---------------------------------------------------------------- declarations */

/* Token i may begin a statement. */
static bool begins_statement(const struct scanner *s, int i)
{
    return i == 0 || is(s, i - 1, ";") || is(s, i - 1, "{") || is(s, i - 1, "}") || is(s, i - 1, ")");
}

/*
 * Token i is `threadgroup` at a statement's beginning. A star or an ampersand outside of brackets makes it a
 * pointer, which stays as it is; `threadgroup float x[A * B]` is an array.
 */
static void read_threadgroup_variable(struct scanner *s, int i, bool in_kernel)
{
    int end = i + 1, angles = 0, name = -1;
    for (; !is(s, end, ";") && s->t.list[end].kind != TOKEN_END; end++) {
        if (is(s, end, "<"))
            angles++;
        else if (is(s, end, ">"))
            angles--;
        else if (angles == 0 && (is(s, end, "*") || is(s, end, "&")))
            return;
        else if (angles == 0 && is(s, end, "=")) {
            fail(s, i, "a threadgroup variable has no initialiser");
            return;
        } else if (angles == 0 && is(s, end, ",")) {
            fail(s, i, "one threadgroup variable a declaration, please");
            return;
        } else if (is(s, end, "[")) {
            name = name < 0 ? end - 1 : name;
            end = s->t.list[end].partner;
        } else if (is(s, end, "("))
            return;
    }
    name = name < 0 ? end - 1 : name;
    if (!in_kernel) {
        fail(s, i, "threadgroup variables belong into a kernel's own body");
        return;
    }
    copy_to(s, s->t.list[i].at);
    int n = width(s, name);
    const char *text = word(s, name);
    fprintf(s->text, "typedef");
    s->copied = s->t.list[i].at + s->t.list[i].n;
    copy_to(s, s->t.list[name].at);
    fprintf(s->text, "metalsim_type_%.*s", n, text);
    s->copied = s->t.list[name].at + s->t.list[name].n;
    copy_to(s, s->t.list[end].at);
    if (s->mode == METALSIM_STRICT_CHECK) /* never made: no constructor knows an address space */
        fprintf(s->text,
                "; extern threadgroup metalsim_type_%.*s metalsim_%d_%.*s; "
                "threadgroup metalsim_type_%.*s &%.*s = metalsim_%d_%.*s",
                n, text, i, n, text, n, text, n, text, i, n, text);
    else
        fprintf(
            s->text,
            "; static metalsim_slot metalsim_slot_%.*s; metalsim_type_%.*s &%.*s = *(metalsim_type_%.*s *)"
            "metalsim_threadgroup_variable(&metalsim_slot_%.*s, sizeof(metalsim_type_%.*s), "
            "alignof(metalsim_type_%.*s), \"%.*s\")",
            n, text, n, text, n, text, n, text, n, text, n, text, n, text, n, text);
}

/* Attribute at token i is function_constant: an initialiser goes before the declaration's semicolon. */
static void read_function_constant(struct scanner *s, int i)
{
    int close = s->t.list[i].partner, index = i + 3, end = s->t.list[index].partner;
    if (!is(s, index, "(") || !is(s, close + 1, ";") || !is_word(s, i - 1)) {
        fail(s, i, "a function constant is 'constant T name [[function_constant(n)]];'");
        return;
    }
    copy_to(s, s->t.list[i].at);
    if (s->mode == METALSIM_STRICT_CHECK)
        fprintf(s->text, "= {}");
    else
        fprintf(s->text, "= ::metalsim::function_constant{%.*s, \"%.*s\"}", text_width(s, index + 1, end),
                word(s, index + 1), width(s, i - 1), word(s, i - 1));
    skip_past(s, close);
}

/* ---------------------------------------------------------------- the whole */

/* Whether the { at token i begins code, not a type, a namespace or a list of values. */
static bool opens_body(const struct scanner *s, int i)
{
    static const char *const before[] = {")", "else", "do", "const", "noexcept", NULL};
    return is_any(s, i - 1, before);
}

static void scan(struct scanner *s)
{
    int kernel_body = -1, kernel_end = -1, body_end = -1, depth = 0;
    for (int i = 0; i < s->t.n && !s->failed; i++) {
        check_token(s, i, i < body_end);
        if (is(s, i, "{")) {
            depth++;
            bool body = i == kernel_body || opens_body(s, i);
            body_end = body && i > body_end ? s->t.list[i].partner : body_end;
            kernel_end = i == kernel_body ? s->t.list[i].partner : kernel_end;
        } else if (is(s, i, "}"))
            depth--;
        else if (opens_attribute(s, i)) {
            if (is(s, i + 2, "function_constant"))
                read_function_constant(s, i);
            copy_to(s, s->t.list[i].at);
            i = s->t.list[i].partner;
            skip_past(s, i);
        } else if (is(s, i, "kernel") && depth == 0)
            kernel_body = read_kernel(s, i);
        else if (is(s, i, "threadgroup") && begins_statement(s, i))
            read_threadgroup_variable(s, i, i < kernel_end);
    }
    copy_to(s, strlen(s->t.source));
}

char *metalsim_scan(const char *source, enum metalsim_mode mode, unsigned long version, char *message,
                    size_t size)
{
    struct scanner s = {.mode = mode, .version = version, .message = message, .message_size = size};
    if (!metalsim_tokenize(source, &s.t, message, size))
        return NULL;
    s.text = open_memstream(&s.out, &s.out_n);
    s.arguments = open_memstream(&s.table, &s.table_n);
    s.kernels = open_memstream(&s.kernel_list, &s.kernel_list_n);
    bool ok = s.text && s.arguments && s.kernels;
    if (!ok)
        snprintf(message, size, "no memory for a library's text");
    else
        scan(&s);
    if (s.arguments)
        fclose(s.arguments);
    if (s.kernels)
        fclose(s.kernels);
    if (ok && mode == METALSIM_FLAT)
        fprintf(s.text,
                "\n%s\nextern \"C\" __attribute__((visibility(\"default\"))) const metalsim_kernel "
                "metalsim_kernels[] = "
                "{%s\n{}};\n",
                s.table, s.kernel_list);
    if (s.text)
        fclose(s.text);
    free(s.table);
    free(s.kernel_list);
    metalsim_tokens_release(&s.t);
    if (ok && !s.failed)
        return s.out;
    free(s.out);
    return NULL;
}
