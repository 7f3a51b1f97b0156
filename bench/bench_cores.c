/*
 * How long a cache line takes from one processor to another: the smallest of several rounds in which two
 * threads hand a number back and forth. Processors that share a cache need 20 to 40 ns, others several times
 * that, and on a virtual machine the answer may change from minute to minute, with the memory's bandwidth.
 *
 *   bench_cores [A B]      processors by number (default: the first two allowed)
 */
#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define N_ROUND 20
#define N_THROW 1000 /* in a round, half of them of each thread */

struct game {
    _Alignas(128) _Atomic int ball; /* number of the next throw */
    _Alignas(128) _Atomic int n_ready;
    double best; /* seconds a throw */
};

struct player {
    struct game *game;
    int processor;
    int parity;
};

static void *play(void *user)
{
    const struct player *player = user;
    struct game *game = player->game;
#ifdef __linux__
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET((size_t)player->processor, &only);
    if (pthread_setaffinity_np(pthread_self(), sizeof only, &only) != 0) {
        fprintf(stderr, "bench_cores: processor %d is not to be had\n", player->processor);
        exit(2);
    }
#endif
    atomic_fetch_add(&game->n_ready, 1);
    while (atomic_load(&game->n_ready) < 2)
        ;
    for (int round = 0; round < N_ROUND; round++) {
        double start = gs_clock_seconds();
        for (int i = player->parity; i < N_THROW; i += 2) {
            int number = round * N_THROW + i;
            while (atomic_load_explicit(&game->ball, memory_order_acquire) != number)
                ;
            atomic_store_explicit(&game->ball, number + 1, memory_order_release);
        }
        double seconds = (gs_clock_seconds() - start) / N_THROW;
        if (player->parity == 0 && seconds < game->best)
            game->best = seconds;
    }
    return NULL;
}

/* The first two processors that this process may use. */
static int allowed(int out[2])
{
    int n = 0;
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 0;
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET((size_t)i, &set))
            out[n++] = i;
#else
    out[n++] = 0, out[n++] = 1;
#endif
    return n;
}

int main(int argc, char **argv)
{
    int processor[2];
    if (argc == 3)
        processor[0] = atoi(argv[1]), processor[1] = atoi(argv[2]);
    else if (argc != 1 || allowed(processor) < 2) {
        fprintf(stderr, "bench_cores: needs two processors\n");
        return 2;
    }
    if (processor[0] == processor[1] || processor[0] < 0 || processor[1] < 0) {
        fprintf(stderr, "bench_cores: two different processors, please\n");
        return 2;
    }
    struct game game = {.best = 1e9};
    struct player players[2] = {{&game, processor[0], 0}, {&game, processor[1], 1}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, play, &players[i]) != 0)
            return 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%.1f ns for a cache line from processor %d to %d\n", game.best * 1e9, processor[0], processor[1]);
    return 0;
}
