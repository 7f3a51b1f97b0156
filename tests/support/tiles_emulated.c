#include "tests/support/tiles_emulated.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tile_shape {
    unsigned rows, bytes; /* of a row; both 0: not configured */
};

/* Where a configuration has what. */
enum { PALETTE = 0, START_ROW = 1, BYTES = 16, ROWS = 48 };

static _Thread_local struct {
    bool is_configured;
    unsigned start_row;
    struct tile_shape shapes[TILE_COUNT];
    uint8_t data[TILE_COUNT][TILE_MAX_ROWS][TILE_ROW_BYTES];
    struct tile_probe *probe;
} unit;

static void clear_unit(void)
{
    unit.is_configured = false;
    unit.start_row = 0;
    memset(unit.shapes, 0, sizeof unit.shapes);
    memset(unit.data, 0, sizeof unit.data);
}

void tile_probe_attach(struct tile_probe *probe)
{
    clear_unit();
    unit.probe = probe;
}

bool emulated_tiles_are_configured(void)
{
    return unit.is_configured;
}

static bool raise_exception(enum tile_exception exception, const char *reason)
{
    if (!unit.probe) {
        fprintf(stderr, "tile instruction: %s\n", reason);
        abort();
    }
    unit.probe->exception = exception;
    unit.probe->reason = reason;
    return false;
}

static bool undefined(const char *reason)
{
    return raise_exception(TILE_UNDEFINED_OPCODE, reason);
}

/* ---------------------------------------------------------------- configuration */

static bool are_zeros(const uint8_t *bytes, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

static bool load_config(const uint8_t *config)
{
    struct tile_shape shapes[TILE_COUNT];
    if (config[PALETTE] == 0) {
        clear_unit();
        return true;
    }
    if (config[PALETTE] != 1)
        return raise_exception(TILE_GENERAL_PROTECTION, "a palette that is neither 0 nor 1");
    if (!are_zeros(config, 2, BYTES) || !are_zeros(config, BYTES + 2 * TILE_COUNT, ROWS) ||
        !are_zeros(config, ROWS + TILE_COUNT, TILE_ROW_BYTES))
        return raise_exception(TILE_GENERAL_PROTECTION, "reserved bytes of a configuration are not zero");
    for (int t = 0; t < TILE_COUNT; t++) {
        struct tile_shape *shape = &shapes[t];
        shape->bytes = config[BYTES + 2 * t] | (unsigned)config[BYTES + 2 * t + 1] << 8;
        shape->rows = config[ROWS + t];
        if (shape->bytes > TILE_ROW_BYTES)
            return raise_exception(TILE_GENERAL_PROTECTION, "a tile's row has more than 64 bytes");
        if (shape->rows > TILE_MAX_ROWS)
            return raise_exception(TILE_GENERAL_PROTECTION, "a tile has more than 16 rows");
        if ((shape->rows == 0) != (shape->bytes == 0))
            return raise_exception(TILE_GENERAL_PROTECTION,
                                   "a tile has rows without bytes or bytes without rows");
    }
    clear_unit();
    unit.is_configured = true;
    unit.start_row = config[START_ROW];
    memcpy(unit.shapes, shapes, sizeof shapes);
    return true;
}

static void store_config(uint8_t *to)
{
    uint8_t config[TILE_ROW_BYTES] = {0};
    if (unit.is_configured) {
        config[PALETTE] = 1;
        config[START_ROW] = (uint8_t)unit.start_row;
    }
    for (int t = 0; t < TILE_COUNT; t++) {
        config[BYTES + 2 * t] = (uint8_t)unit.shapes[t].bytes;
        config[ROWS + t] = (uint8_t)unit.shapes[t].rows;
    }
    memcpy(to, config, sizeof config);
}

/* ---------------------------------------------------------------- one tile */

static bool is_usable(int tile)
{
    if (!unit.is_configured)
        return undefined("no configuration is loaded");
    if (tile < 0 || tile >= TILE_COUNT)
        return undefined("there is no such tile");
    if (unit.shapes[tile].rows == 0)
        return undefined("the tile is not in the configuration");
    return true;
}

static bool may_move(int tile)
{
    if (!is_usable(tile))
        return false;
    if (unit.shapes[tile].bytes % 4 != 0)
        return undefined("a tile's row is not of whole double words");
    if (unit.start_row >= unit.shapes[tile].rows)
        return undefined("the row to start with is past the tile's last");
    return true;
}

static bool load(const struct tile_instruction *i)
{
    int tile = i->tile[0];
    if (!may_move(tile))
        return false;
    for (unsigned row = unit.start_row; row < TILE_MAX_ROWS; row++)
        memset(unit.data[tile][row], 0, TILE_ROW_BYTES);
    for (unsigned row = unit.start_row; row < unit.shapes[tile].rows; row++)
        memcpy(unit.data[tile][row], (const char *)i->from + (int64_t)row * i->stride,
               unit.shapes[tile].bytes);
    unit.start_row = 0;
    return true;
}

static bool store(const struct tile_instruction *i)
{
    int tile = i->tile[0];
    if (!may_move(tile))
        return false;
    for (unsigned row = unit.start_row; row < unit.shapes[tile].rows; row++)
        memcpy((char *)i->to + (int64_t)row * i->stride, unit.data[tile][row], unit.shapes[tile].bytes);
    unit.start_row = 0;
    return true;
}

static bool zero(int tile)
{
    if (!is_usable(tile))
        return false;
    memset(unit.data[tile], 0, sizeof unit.data[tile]);
    unit.start_row = 0;
    return true;
}

/* ---------------------------------------------------------------- products */

static bool may_multiply(const int *tile)
{
    if (tile[0] == tile[1] || tile[0] == tile[2] || tile[1] == tile[2])
        return undefined("a product's tiles are not three");
    for (int t = 0; t < 3; t++)
        if (!is_usable(tile[t]))
            return false;
    const struct tile_shape *sums = &unit.shapes[tile[0]];
    const struct tile_shape *first = &unit.shapes[tile[1]], *second = &unit.shapes[tile[2]];
    if (sums->bytes % 4 != 0 || first->bytes % 4 != 0 || second->bytes % 4 != 0)
        return undefined("a tile's row is not of whole double words");
    if (sums->rows != first->rows)
        return undefined("a product's sums and first tile differ in rows");
    if (sums->bytes != second->bytes)
        return undefined("a product's sums and second tile differ in bytes of a row");
    if (first->bytes / 4 != second->rows)
        return undefined("a product's first tile is not as wide as its second has rows");
    return true;
}

static void widen(const uint8_t *bytes, bool is_signed, uint32_t *to)
{
    for (int i = 0; i < TILE_ROW_BYTES; i++)
        to[i] = is_signed ? (uint32_t)(int8_t)bytes[i] : bytes[i];
}

/* Sums wrap around; rows and columns past the tile's are zero. */
static bool multiply(const struct tile_instruction *i)
{
    if (!may_multiply(i->tile))
        return false;
    bool is_first_signed = i->opcode == TILE_DOT_SS || i->opcode == TILE_DOT_SU;
    bool is_second_signed = i->opcode == TILE_DOT_SS || i->opcode == TILE_DOT_US;
    struct tile_shape shape = unit.shapes[i->tile[0]];
    unsigned depth = unit.shapes[i->tile[2]].rows;
    uint32_t second[TILE_MAX_ROWS][TILE_ROW_BYTES], first[TILE_ROW_BYTES];
    for (unsigned k = 0; k < depth; k++)
        widen(unit.data[i->tile[2]][k], is_second_signed, second[k]);
    for (unsigned m = 0; m < shape.rows; m++) {
        uint32_t sums[TILE_ROW_BYTES / 4];
        memcpy(sums, unit.data[i->tile[0]][m], sizeof sums);
        widen(unit.data[i->tile[1]][m], is_first_signed, first);
        for (unsigned k = 0; k < depth; k++)
            for (unsigned n = 0; n < shape.bytes / 4; n++)
                for (unsigned b = 0; b < 4; b++)
                    sums[n] += first[4 * k + b] * second[k][4 * n + b];
        memset(unit.data[i->tile[0]][m], 0, TILE_ROW_BYTES);
        memcpy(unit.data[i->tile[0]][m], sums, shape.bytes);
    }
    for (unsigned m = shape.rows; m < TILE_MAX_ROWS; m++)
        memset(unit.data[i->tile[0]][m], 0, TILE_ROW_BYTES);
    unit.start_row = 0;
    return true;
}

/* ---------------------------------------------------------------- instructions */

static bool execute_opcode(const struct tile_instruction *i)
{
    switch (i->opcode) {
    case TILE_LOAD_CONFIG:
        return load_config(i->from);
    case TILE_STORE_CONFIG:
        store_config(i->to);
        return true;
    case TILE_RELEASE:
        clear_unit();
        return true;
    case TILE_ZERO:
        return zero(i->tile[0]);
    case TILE_LOAD:
        return load(i);
    case TILE_STORE:
        return store(i);
    default:
        return multiply(i);
    }
}

static void execute(struct tile_instruction i)
{
    struct tile_probe *probe = unit.probe;
    if (probe && (probe->reason || (probe->meddle && !probe->meddle(&i, probe->user))))
        return;
    if (execute_opcode(&i) && probe)
        probe->count[i.opcode]++;
}

void emulate_load_config(const void *from)
{
    execute((struct tile_instruction){.opcode = TILE_LOAD_CONFIG, .from = from});
}

void emulate_store_config(void *to)
{
    execute((struct tile_instruction){.opcode = TILE_STORE_CONFIG, .to = to});
}

void emulate_release(void)
{
    execute((struct tile_instruction){.opcode = TILE_RELEASE});
}

void emulate_zero(int tile)
{
    execute((struct tile_instruction){.opcode = TILE_ZERO, .tile = {tile}});
}

void emulate_load(int tile, const void *from, int64_t stride)
{
    execute((struct tile_instruction){.opcode = TILE_LOAD, .tile = {tile}, .from = from, .stride = stride});
}

void emulate_store(int tile, void *to, int64_t stride)
{
    execute((struct tile_instruction){.opcode = TILE_STORE, .tile = {tile}, .to = to, .stride = stride});
}

void emulate_dot(enum tile_opcode opcode, int sums, int first, int second)
{
    execute((struct tile_instruction){.opcode = opcode, .tile = {sums, first, second}});
}
