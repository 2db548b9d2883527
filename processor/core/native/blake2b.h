/* BLAKE2b (RFC 7693), for the many short texts that are hashed on the way to a decision: four of them at once.

   hashlib computes the same digests one by one, and makes an object for each. Four texts side by side fill the vectors
   of a processor with hardly any work to bring them there: the rounds are those of one text, on vectors. */

#ifndef GFORCE_BLAKE2B_H
#define GFORCE_BLAKE2B_H

#include <stdint.h>
#include <string.h>

#define BLAKE2B_BLOCK 128
#define BLAKE2B_LANES 4
#define BLAKE2B_PIECES 4

/* A hash that has seen the beginning of some texts. */
typedef struct {
    uint64_t h[8];
    uint64_t counted; /* bytes compressed so far: no text here has 2^64 */
    size_t filled;    /* bytes waiting in the block */
    uint8_t block[BLAKE2B_BLOCK];
} blake2b_state;

/* A text to be hashed: how it begins, what follows in up to four pieces, and where its digest goes. */
typedef struct {
    const blake2b_state *begun;
    const uint8_t *piece[BLAKE2B_PIECES];
    size_t length[BLAKE2B_PIECES];
    uint8_t *digest;
} blake2b_text;

static const uint64_t blake2b_iv[8] = {
    0x6a09e667f3bcc908ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL, 0xa54ff53a5f1d36f1ULL,
    0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL, 0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL,
};

static const uint8_t blake2b_sigma[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
};

static inline uint64_t blake2b_load(const uint8_t *at) {
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--) word = word << 8 | at[i];
    return word;
}

/* One word of each of four texts. */
typedef uint64_t blake2b_words __attribute__((vector_size(8 * BLAKE2B_LANES)));

#define BLAKE2B_TURN(word, by) ((word) >> (by) | (word) << (64 - (by)))

#define BLAKE2B_MIX(r, i, a, b, c, d)                \
    a += b + m[blake2b_sigma[r][2 * i]];             \
    d = BLAKE2B_TURN(d ^ a, 32);                     \
    c += d;                                          \
    b = BLAKE2B_TURN(b ^ c, 24);                     \
    a += b + m[blake2b_sigma[r][2 * i + 1]];         \
    d = BLAKE2B_TURN(d ^ a, 16);                     \
    c += d;                                          \
    b = BLAKE2B_TURN(b ^ c, 63);

#define BLAKE2B_ROUND(r)                             \
    BLAKE2B_MIX(r, 0, v[0], v[4], v[8], v[12])       \
    BLAKE2B_MIX(r, 1, v[1], v[5], v[9], v[13])       \
    BLAKE2B_MIX(r, 2, v[2], v[6], v[10], v[14])      \
    BLAKE2B_MIX(r, 3, v[3], v[7], v[11], v[15])      \
    BLAKE2B_MIX(r, 4, v[0], v[5], v[10], v[15])      \
    BLAKE2B_MIX(r, 5, v[1], v[6], v[11], v[12])      \
    BLAKE2B_MIX(r, 6, v[2], v[7], v[8], v[13])       \
    BLAKE2B_MIX(r, 7, v[3], v[4], v[9], v[14])

/* A vector of what a macro gives for each lane. To write its words one by one would send them through memory. */
#define BLAKE2B_EACH(word) ((blake2b_words){word(0), word(1), word(2), word(3)})
#define BLAKE2B_MESSAGE(lane) blake2b_load(state[lane].block + 8 * i)
#define BLAKE2B_CHAINED(lane) state[lane].h[i]
#define BLAKE2B_COUNTED(lane) state[lane].counted
#define BLAKE2B_LAST(lane) (last[lane] ? ~0ULL : 0)

/* The widest vectors that the processor has, found out when the module is loaded. Integers give the same on all. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__)
#define BLAKE2B_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define BLAKE2B_CLONES
#endif

/* Compress a block of each state; `last` says of which it is the last one. */
BLAKE2B_CLONES static void blake2b_compress(blake2b_state state[BLAKE2B_LANES], const int last[BLAKE2B_LANES]) {
    blake2b_words v[16], m[16];
    for (int i = 0; i < 16; i++) m[i] = BLAKE2B_EACH(BLAKE2B_MESSAGE);
    for (int i = 0; i < 8; i++) {
        v[i] = BLAKE2B_EACH(BLAKE2B_CHAINED);
        v[i + 8] = (blake2b_words){0} + blake2b_iv[i];
    }
    v[12] ^= BLAKE2B_EACH(BLAKE2B_COUNTED);
    v[14] ^= BLAKE2B_EACH(BLAKE2B_LAST);
    BLAKE2B_ROUND(0) BLAKE2B_ROUND(1) BLAKE2B_ROUND(2) BLAKE2B_ROUND(3)
    BLAKE2B_ROUND(4) BLAKE2B_ROUND(5) BLAKE2B_ROUND(6) BLAKE2B_ROUND(7)
    BLAKE2B_ROUND(8) BLAKE2B_ROUND(9) BLAKE2B_ROUND(10) BLAKE2B_ROUND(11)
    for (int i = 0; i < 8; i++) {
        v[i] ^= v[i + 8];
        for (int lane = 0; lane < BLAKE2B_LANES; lane++) state[lane].h[i] ^= v[i][lane];
    }
}

/* Digests of `size` bytes (1 to 64), keyed by `length` bytes (0 to 64). */
static inline void blake2b_begin(blake2b_state *state, int size, const uint8_t *key, size_t length) {
    memcpy(state->h, blake2b_iv, sizeof blake2b_iv);
    state->h[0] ^= 0x01010000ULL ^ (uint64_t)length << 8 ^ (uint64_t)size;
    state->counted = 0;
    state->filled = 0;
    memset(state->block, 0, BLAKE2B_BLOCK);
    if (length) {
        memcpy(state->block, key, length);
        state->filled = BLAKE2B_BLOCK;
    }
}

/* Take the next bytes of a text into the block; whether this is all of it. A full block waits until something follows. */
static inline int blake2b_fill(blake2b_state *state, blake2b_text *text) {
    for (int i = 0; i < BLAKE2B_PIECES; i++) {
        size_t some = BLAKE2B_BLOCK - state->filled;
        if (some > text->length[i]) some = text->length[i];
        if (some) memcpy(state->block + state->filled, text->piece[i], some);
        state->filled += some;
        text->piece[i] += some;
        text->length[i] -= some;
        if (text->length[i]) return 0;
    }
    return 1;
}

/* Hash up to four texts, all to digests of `size` bytes. */
static inline void blake2b_some(blake2b_text *texts, int count, size_t size) {
    blake2b_state state[BLAKE2B_LANES] = {0};
    int last[BLAKE2B_LANES] = {0}, left = count;
    for (int lane = 0; lane < count; lane++) state[lane] = *texts[lane].begun;
    while (left) {
        for (int lane = 0; lane < count; lane++) {
            if (!texts[lane].digest) continue; /* ended: what becomes of its state does not matter */
            last[lane] = blake2b_fill(&state[lane], &texts[lane]);
            if (last[lane]) memset(state[lane].block + state[lane].filled, 0, BLAKE2B_BLOCK - state[lane].filled);
            state[lane].counted += state[lane].filled;
            state[lane].filled = 0;
        }
        blake2b_compress(state, last);
        for (int lane = 0; lane < count; lane++) {
            if (!texts[lane].digest || !last[lane]) continue;
            for (size_t i = 0; i < size; i++)
                texts[lane].digest[i] = (uint8_t)(state[lane].h[i / 8] >> 8 * (i % 8));
            texts[lane].digest = NULL;
            left--;
        }
    }
}

static inline void blake2b_all(blake2b_text *texts, size_t count, size_t size) {
    for (size_t i = 0; i < count; i += BLAKE2B_LANES)
        blake2b_some(texts + i, count - i < BLAKE2B_LANES ? (int)(count - i) : BLAKE2B_LANES, size);
}

#endif
