/*
 * A row of logits, many values at a time: the largest, and the weights that are drawn from. The same bits on
 * every machine, whatever its vectors are: each weight is that of gs_exp64, and sums of different order are
 * told apart.
 */
#ifndef GS_ENGINE_ROW_H
#define GS_ENGINE_ROW_H

#include "gossamer.h"

#define GS_ROW_BLOCK 64 /* values; a word of a mask */

/*
 * The lowest index of the largest of what is allowed (bit i % 64 of allowed[i / 64]; NULL: all), -1 if
 * nothing is. False if any of the logits [n] is a NaN or an infinity.
 */
bool gs_row_best(const float *logits, size_t n, const uint64_t *allowed, int32_t *best);

/*
 * weights[i] = gs_exp64((logits[i] - largest) / temperature), or 0 for what is not allowed; largest is at
 * least every allowed logit. sums [(n + 63) / 64]: of each block, in no particular order. Returns the sum of
 * all, in no particular order either: off from the sum in ascending order by less than n * DBL_EPSILON of it.
 */
double gs_row_weights(const float *logits, size_t n, const uint64_t *allowed, double largest,
                      double temperature, double *weights, double *sums);

#endif
