/*
 * AMX's tile instructions in plain C, for processors that do not have them: palette 1, written from Intel's
 * manual (SDM volume 2, LDTILECFG to TILEZERO, and the exceptions of volume 2's classes AMX-E1 to AMX-E5).
 * The registers are the thread's, as a processor's are.
 *
 * Where the processor would raise an exception, the process is aborted with a line that says why; with a
 * probe attached, the probe keeps it, and the instructions that follow it do nothing.
 */
#ifndef TESTS_SUPPORT_TILES_EMULATED_H
#define TESTS_SUPPORT_TILES_EMULATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TILE_COUNT     8
#define TILE_MAX_ROWS  16
#define TILE_ROW_BYTES 64 /* of a row, and of a configuration */

enum tile_opcode {
    TILE_LOAD_CONFIG,
    TILE_STORE_CONFIG,
    TILE_RELEASE,
    TILE_ZERO,
    TILE_LOAD,
    TILE_STORE,
    TILE_DOT_SS, /* TDPBSSD: both signed */
    TILE_DOT_SU, /* TDPBSUD: the second unsigned */
    TILE_DOT_US,
    TILE_DOT_UU,
    TILE_OPCODES
};

/* What Linux makes of them: SIGILL, SIGSEGV. */
enum tile_exception { TILE_NO_EXCEPTION, TILE_UNDEFINED_OPCODE, TILE_GENERAL_PROTECTION };

struct tile_instruction {
    enum tile_opcode opcode;
    int tile[3]; /* of a product: sums, first, second; else [0] */
    const void *from;
    void *to;
    int64_t stride; /* bytes between rows in memory */
};

/* Sees each instruction before it is executed. */
struct tile_probe {
    bool (*meddle)(struct tile_instruction *instruction, void *user); /* false: left out. NULL: none */
    void *user;
    size_t count[TILE_OPCODES]; /* executed without an exception */
    enum tile_exception exception;
    const char *reason; /* of the exception, else NULL */
};

/* Until the next call, with NULL or another; the registers become those of a new thread. */
void tile_probe_attach(struct tile_probe *probe);

/* Has the thread a configuration? */
bool emulated_tiles_are_configured(void);

/* The intrinsics of the same names; a product's opcode is TILE_DOT_... . */
void emulate_load_config(const void *from);
void emulate_store_config(void *to);
void emulate_release(void);
void emulate_zero(int tile);
void emulate_load(int tile, const void *from, int64_t stride);
void emulate_store(int tile, void *to, int64_t stride);
void emulate_dot(enum tile_opcode opcode, int sums, int first, int second);

#endif
