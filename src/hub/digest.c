#include "hub/digest.h"

#include "base/status.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE (1u << 20)

struct gs_digest {
    EVP_MD_CTX *context;
};

static gs_status fail_hash(struct gs_error *error)
{
    return gs_fail(error, GS_UNSUPPORTED, "libcrypto does not compute this hash here");
}

gs_status gs_digest_open(const char *expected, uint64_t size, struct gs_digest **out, struct gs_error *error)
{
    bool is_git = strlen(expected) == 40;
    struct gs_digest *digest = calloc(1, sizeof *digest);
    *out = NULL;
    if (!digest || !(digest->context = EVP_MD_CTX_new())) {
        free(digest);
        return gs_fail_memory(error, sizeof *digest);
    }
    gs_status status = GS_OK;
    if (EVP_DigestInit_ex(digest->context, is_git ? EVP_sha1() : EVP_sha256(), NULL) != 1)
        status = fail_hash(error);
    if (status == GS_OK && is_git) { /* git hashes "blob", the length and a NUL before the contents */
        char header[32];
        int length = snprintf(header, sizeof header, "blob %llu", (unsigned long long)size);
        status = gs_digest_add(digest, header, (size_t)length + 1, error);
    }
    if (status != GS_OK) {
        gs_digest_close(digest);
        return status;
    }
    *out = digest;
    return GS_OK;
}

void gs_digest_close(struct gs_digest *digest)
{
    if (digest)
        EVP_MD_CTX_free(digest->context);
    free(digest);
}

gs_status gs_digest_add(struct gs_digest *digest, const void *bytes, size_t size, struct gs_error *error)
{
    return EVP_DigestUpdate(digest->context, bytes, size) == 1 ? GS_OK : fail_hash(error);
}

gs_status gs_digest_finish(struct gs_digest *digest, struct gs_digest_text *out, struct gs_error *error)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (EVP_DigestFinal_ex(digest->context, bytes, &size) != 1 || 2 * size >= sizeof out->text)
        return fail_hash(error);
    for (unsigned i = 0; i < size; i++) {
        out->text[2 * i] = digits[bytes[i] >> 4];
        out->text[2 * i + 1] = digits[bytes[i] & 15];
    }
    out->text[2 * size] = '\0';
    return GS_OK;
}

gs_status gs_digest_file(int descriptor, const char *path, const char *expected, uint64_t size,
                         bool (*proceed)(void *user, uint64_t done), void *user, struct gs_digest_text *out,
                         struct gs_error *error)
{
    struct gs_digest *digest = NULL;
    unsigned char *piece = malloc(PIECE);
    gs_status status = piece ? gs_digest_open(expected, size, &digest, error) : gs_fail_memory(error, PIECE);
    for (uint64_t at = 0; status == GS_OK && at < size;) {
        size_t want = size - at < PIECE ? (size_t)(size - at) : PIECE;
        ssize_t n = pread(descriptor, piece, want, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            status = gs_fail_io(error, errno, "read", path);
        else if (n == 0)
            status = gs_fail(error, GS_IO, "%s: became shorter while it was read", gs_quote(path).text);
        else
            status = gs_digest_add(digest, piece, (size_t)n, error);
        at += n > 0 ? (uint64_t)n : 0;
        if (status == GS_OK && proceed && !proceed(user, at))
            status = gs_fail(error, GS_CANCELLED, "interrupted");
    }
    if (status == GS_OK)
        status = gs_digest_finish(digest, out, error);
    gs_digest_close(digest);
    free(piece);
    return status;
}
