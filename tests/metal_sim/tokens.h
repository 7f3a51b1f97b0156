/* The words of a C++ source, for the scanner: enough of the grammar to find declarations by their shape. */
#ifndef GS_TESTS_METAL_SIM_TOKENS_H
#define GS_TESTS_METAL_SIM_TOKENS_H

#include <stdbool.h>
#include <stddef.h>

enum token_kind { TOKEN_WORD, TOKEN_NUMBER, TOKEN_TEXT, TOKEN_SIGN, TOKEN_END };

struct token {
    enum token_kind kind;
    size_t at, n; /* bytes of the source; a sign is one byte */
    int line;     /* by the markers "# 12 "file"" */
    int file;     /* index into files */
    int partner;  /* of a bracket ( [ { or its end: the other one's index; otherwise -1 */
};

struct tokens {
    const char *source;
    struct token *list; /* [n], the last one TOKEN_END */
    int n;
    char **files;
    int n_file;
};

/* Comments and directives are skipped. False: a bracket without partner, or no memory; message says which. */
bool metalsim_tokenize(const char *source, struct tokens *tokens, char *message, size_t size);
void metalsim_tokens_release(struct tokens *tokens);

/* Whether token i is this word or sign. */
bool metalsim_token_is(const struct tokens *tokens, int i, const char *text);

#endif
