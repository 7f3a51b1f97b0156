#include "server/responses.h"

#include "base/status.h"
#include "chat/writer.h"
#include "server/response_store.h"
#include "server/server.h"

#include <string.h>

enum { DEFAULT_LIMIT = 20, MAX_LIMIT = 100 };

struct page {
    const char *after; /* id; NULL: from the first one */
    size_t limit;
    bool ascending;
};

static int read_page(const struct gs_exchange *exchange, struct page *page, struct gs_api_error *error)
{
    const char *limit = gs_exchange_query(exchange, "limit");
    const char *order = gs_exchange_query(exchange, "order");
    page->after = gs_exchange_query(exchange, "after");
    page->limit = DEFAULT_LIMIT;
    if (limit) {
        size_t digits = strspn(limit, "0123456789");
        page->limit = 0;
        for (size_t i = 0; i < digits && i < 4; i++)
            page->limit = page->limit * 10 + (size_t)(limit[i] - '0');
        if (limit[digits] || page->limit < 1 || page->limit > MAX_LIMIT)
            return gs_api_bad(error, "limit", "limit: 1 to %d is expected, not \"%s\"", MAX_LIMIT,
                              gs_quote(limit).text);
    }
    page->ascending = order && strcmp(order, "asc") == 0;
    if (order && !page->ascending && strcmp(order, "desc") != 0)
        return gs_api_bad(error, "order", "order: asc or desc is expected, not \"%s\"", gs_quote(order).text);
    return 0;
}

/* An item as a client gets it: with the type, the id and the form of content that it may have been sent
 * without. */
static json_t *listed(json_t *item, const char *id, size_t index)
{
    json_t *copy = json_copy(item);
    const json_t *role = json_object_get(copy, "role");
    json_t *content = json_object_get(copy, "content");
    char name[96];
    if (!json_is_string(json_object_get(copy, "type")))
        json_object_set_new(copy, "type", json_string("message"));
    if (!json_is_string(json_object_get(copy, "id"))) {
        gs_format(name, sizeof name, "item_%s_%zu", id, index);
        json_object_set_new(copy, "id", json_string(name));
    }
    if (role && json_is_string(content)) {
        bool assistant = json_is_string(role) && strcmp(json_string_value(role), "assistant") == 0;
        json_object_set_new(
            copy, "content",
            json_pack("[{s:s, s:O}]", "type", assistant ? "output_text" : "input_text", "text", content));
    }
    if (role && !json_object_get(copy, "status"))
        json_object_set_new(copy, "status", json_string("completed"));
    return copy;
}

/* The items that were there before the response's own; a new reference. */
static json_t *input_of(const json_t *items, const json_t *response, const char *id)
{
    json_t *input = json_array();
    size_t count = json_array_size(items);
    size_t output = json_array_size(json_object_get(response, "output"));
    for (size_t i = 0; i + output < count; i++)
        json_array_append_new(input, listed(json_array_get(items, i), id, i));
    return input;
}

static int page_of(const json_t *input, const struct page *page, json_t **out, struct gs_api_error *error)
{
    size_t count = json_array_size(input), begin = 0;
    json_t *data = json_array();
    bool found = !page->after;
    for (size_t i = 0; i < count; i++) {
        json_t *item = json_array_get(input, page->ascending ? i : count - 1 - i);
        if (!found) {
            found = strcmp(json_string_value(json_object_get(item, "id")), page->after) == 0;
            begin = i + 1;
        } else if (json_array_size(data) < page->limit) {
            json_array_append(data, item);
        }
    }
    if (!found) {
        json_decref(data);
        return gs_api_bad(error, "after", "after: the response has no item \"%s\"",
                          gs_quote(page->after).text);
    }
    size_t n = json_array_size(data);
    json_t *first = json_object_get(json_array_get(data, 0), "id");
    json_t *last = json_object_get(json_array_get(data, n ? n - 1 : 0), "id");
    *out = json_pack("{s:s, s:O?, s:O?, s:b, s:o}", "object", "list", "first_id", first, "last_id", last,
                     "has_more", begin + n < count, "data", data);
    return *out ? 0 : gs_api_fail(error, 503, "out_of_memory", "memory is out");
}

void gs_responses_input_items(struct gs_server *server, struct gs_exchange *exchange)
{
    struct gs_api_error error = {0};
    const char *id = gs_exchange_tail(exchange);
    json_t *response = NULL, *items = NULL, *input = NULL, *list = NULL;
    struct page page = {0};
    int status =
        id ? read_page(exchange, &page, &error) : gs_api_fail(&error, 503, "out_of_memory", "memory is out");
    if (status == 0 && !gs_response_store_get(gs_server_responses(server), id, gs_exchange_key(exchange),
                                              &response, &items, NULL))
        status = gs_api_fail(&error, 404, "not_found", "there is no stored response of this id");
    if (status == 0) {
        input = input_of(items, response, id);
        status = page_of(input, &page, &list, &error);
    }
    if (status == 0)
        gs_reply_json(exchange, 200, list);
    else
        gs_reply_error(exchange, &error);
    json_decref(input);
    json_decref(items);
    json_decref(response);
}
