/* What a terminal is asked and told: its width, the width of characters, the echo of what is typed. */
#ifndef GS_CLI_TERMINAL_H
#define GS_CLI_TERMINAL_H

#include "gossamer.h"

/* Columns of the terminal behind a descriptor; 80 if it does not say. */
int gs_terminal_columns(int descriptor);

/* Takes over the character set of the environment, or UTF-8 where it names none: line editing needs one. */
void gs_terminal_locale(void);

/* Columns of a character: 0, 1 or 2. */
int gs_character_width(uint32_t character);

/* While something is written, typed keys do not show between it; they are there for the next line. */
void gs_terminal_echo(bool on);

#endif
