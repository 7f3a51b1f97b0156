#!/bin/sh
# src/backend/gpu/simple.cu with one fault put into it, to show that the tests notice.
#
#   tests/gpu_sim/faults.sh NAME SOURCE > FAULTY
set -eu
name=$1 source=$2
case $name in
# a barrier is left out before a first read
first-read) edit='/shared\[warp_of_thread()\] = value;/{n;s/gs_sync();/;/}' ;;
# a barrier is left out before a write: it meets what others still read
before-write) edit='/^    value = gs_warp_sum(value);$/{n;s/gs_sync();/;/}' ;;
# 32 lanes written as a number
mask-32) edit='/other_at/!s/for (int mask = GS_WARP \/ 2; mask > 0; mask \/= 2) {/for (int mask = 16; mask > 0; mask \/= 2) {/' ;;
lane-32) edit='s/return gs_thread() % GS_WARP;/return gs_thread() % 32;/' ;;
# one element too many
past-end) edit='s/if (i < args\.n)/if (i <= args.n)/' ;;
past-shared) edit='s/\*p = q + d, \*out = p + GS_SIMPLE_ATTENTION;/*p = q + d, *out = p + GS_SIMPLE_ATTENTION + 1;/' ;;
# keys and values change places
swapped) edit='s/store_kv(kv, dims, row\.position, kv_head, j, \*low, value\[0\]);/store_kv(kv, dims, row.position, kv_head, j, value[0], *low);/' ;;
# half of a wave leaves before the others ask it
split) edit='s/if (warp_of_thread() > 0)/if (gs_thread() >= GS_WARP \/ 2)/' ;;
# not every thread of the block comes to a barrier
barrier) edit='s/^    value = gs_warp_sum(value);$/    value = gs_warp_sum(value); if (warp_of_thread() == 1) return value;/' ;;
# the last row of a group is left out
last-row) edit='s/lane_of_thread() == 0 \&\& row0 + r < rows/lane_of_thread() == 0 \&\& row0 + r + 1 < rows/' ;;
*) echo "faults.sh: no fault $name" >&2; exit 2 ;;
esac
result=$(sed "$edit" "$source")
[ "$result" != "$(cat "$source")" ] || { echo "faults.sh: $name changes nothing in $source" >&2; exit 1; }
printf '%s\n' "$result"
