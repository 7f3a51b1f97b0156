#include "server/page/page.h"

#include "base/embed.h"

#include <string.h>

GS_EMBED(page_html, "src/server/page/page.html");
GS_EMBED(page_css, "src/server/page/page.css");
GS_EMBED(icon_svg, "src/server/page/icon.svg");
GS_EMBED(announce_js, "src/server/page/announce.js");
GS_EMBED(api_js, "src/server/page/api.js");
GS_EMBED(chat_js, "src/server/page/chat.js");
GS_EMBED(dialogs_js, "src/server/page/dialogs.js");
GS_EMBED(dom_js, "src/server/page/dom.js");
GS_EMBED(highlight_js, "src/server/page/highlight.js");
GS_EMBED(markdown_js, "src/server/page/markdown.js");
GS_EMBED(math_js, "src/server/page/math.js");
GS_EMBED(page_js, "src/server/page/page.js");
GS_EMBED(search_js, "src/server/page/search.js");
GS_EMBED(sidebar_js, "src/server/page/sidebar.js");
GS_EMBED(store_js, "src/server/page/store.js");
GS_EMBED(theme_js, "src/server/page/theme.js");
GS_EMBED(tree_js, "src/server/page/tree.js");
GS_EMBED(view_js, "src/server/page/view.js");

static const char html[] = "text/html; charset=utf-8";
static const char css[] = "text/css; charset=utf-8";
static const char svg[] = "image/svg+xml";
static const char js[] = "text/javascript; charset=utf-8";

static const struct {
    const char *name, *type;
    const unsigned char *begin, *end;
} files[] = {
    {"", html, gs_page_html_begin, gs_page_html_end},
    {"page.css", css, gs_page_css_begin, gs_page_css_end},
    {"icon.svg", svg, gs_icon_svg_begin, gs_icon_svg_end},
    {"announce.js", js, gs_announce_js_begin, gs_announce_js_end},
    {"api.js", js, gs_api_js_begin, gs_api_js_end},
    {"chat.js", js, gs_chat_js_begin, gs_chat_js_end},
    {"dialogs.js", js, gs_dialogs_js_begin, gs_dialogs_js_end},
    {"dom.js", js, gs_dom_js_begin, gs_dom_js_end},
    {"highlight.js", js, gs_highlight_js_begin, gs_highlight_js_end},
    {"markdown.js", js, gs_markdown_js_begin, gs_markdown_js_end},
    {"math.js", js, gs_math_js_begin, gs_math_js_end},
    {"page.js", js, gs_page_js_begin, gs_page_js_end},
    {"search.js", js, gs_search_js_begin, gs_search_js_end},
    {"sidebar.js", js, gs_sidebar_js_begin, gs_sidebar_js_end},
    {"store.js", js, gs_store_js_begin, gs_store_js_end},
    {"theme.js", js, gs_theme_js_begin, gs_theme_js_end},
    {"tree.js", js, gs_tree_js_begin, gs_tree_js_end},
    {"view.js", js, gs_view_js_begin, gs_view_js_end},
};

bool gs_page_find(const char *name, struct gs_page_file *file)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (strcmp(files[i].name, name) == 0) {
            *file = (struct gs_page_file){files[i].type, files[i].begin,
                                          gs_embed_size(files[i].begin, files[i].end)};
            return true;
        }
    }
    return false;
}

/* Nothing from elsewhere, no code in the markup, and no text that becomes markup. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types 'none'";

void gs_page_get(struct gs_server *server, struct gs_exchange *exchange)
{
    (void)server;
    const char *name = gs_exchange_tail(exchange);
    struct gs_page_file file;
    if (!gs_page_find(name ? name : "", &file) || (name && !*name)) {
        struct gs_api_error error = {0};
        gs_api_fail(&error, 404, "not_found", "the page has no such file");
        gs_reply_error(exchange, &error);
        return;
    }
    gs_reply_header(exchange, "Content-Security-Policy", policy);
    gs_reply_header(exchange, "Referrer-Policy", "no-referrer");
    gs_reply_header(exchange, "Cross-Origin-Opener-Policy", "same-origin");
    gs_reply_header(exchange, "Cache-Control", "no-cache");
    gs_reply_bytes(exchange, 200, file.type, file.bytes, file.size);
}
