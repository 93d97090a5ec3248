/* Loops that cost the most on a CPU. Each gives the same bits as the NumPy, torch, OpenCV or zlib code it stands in for.
 * Those of floating-point sums are compared with it before they are used, the others by tests. Compiled with -ffp-contract=off: a product and a sum are rounded
 * once only where the code says FMA. */

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define LANES 16
typedef __m512 Lanes;
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define ALL(x) _mm512_set1_ps(x)
#define FMA_LANES(a, b, c) _mm512_fmadd_ps(a, b, c)
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define LANES 8
typedef __m256 Lanes;
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define ALL(x) _mm256_set1_ps(x)
#define FMA_LANES(a, b, c) _mm256_fmadd_ps(a, b, c)
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include <arm_neon.h>
#define LANES 4
typedef float32x4_t Lanes;
#define LOAD(p) vld1q_f32(p)
#define STORE(p, v) vst1q_f32(p, v)
#define ALL(x) vdupq_n_f32(x)
#define FMA_LANES(a, b, c) vfmaq_f32(c, a, b)
#else
#error "a processor without fused multiplication and addition"
#endif

/* ---- Optimisers: a layer's gradient x'd is formed a few rows at a time and used at once; it never goes to memory. ---- */

typedef struct {
    float *w, *m, *n;       /* weights (rows, columns) and moving averages of g and g*g; m is NULL for plain RMSProp */
    const float *g;         /* the gradient, or NULL: it is then x' d */
    const float *x, *d;     /* (batch, rows) and (batch, columns) */
    int64_t rows, batch, columns;
    float keep, share;      /* n <- keep n + share g g */
    float mean_share;       /* m <- m + mean_share (g - m) */
    float epsilon, step;    /* w <- w + step g / sqrt(n - m m + epsilon) */
    float total;            /* or, if not 0, Adam: w <- w + step m / (sqrt(n / total) + epsilon) */
} Update;

#define TILE_ROWS 4
#define MAX_COLUMNS 4096
#define TILE_COLUMNS (2 * LANES)

/* Ask for weights that the next rule needs while the processor is busy with products. */
static inline void fetch_ahead(const Update *u, int64_t at) {
    for (int c = 0; c < TILE_COLUMNS; c += 16) {
        __builtin_prefetch(u->w + at + c, 1);
        __builtin_prefetch(u->n + at + c, 1);
        if (u->m) __builtin_prefetch(u->m + at + c, 1);
    }
}

/* g[0..3][0..columns) = rows i..i+3 of x' d, each element a chain of fused sums over the batch, first to last. */
static void outer_rows(const Update *u, int64_t i, float *g) {
    const int64_t columns = u->columns, rows = u->rows;
    int64_t j = 0;
    for (; j + TILE_COLUMNS <= columns; j += TILE_COLUMNS) {
        for (int r = 0; r < TILE_ROWS; r++) fetch_ahead(u, (i + r) * columns + j);
        Lanes sum[TILE_ROWS][2];
        for (int r = 0; r < TILE_ROWS; r++) sum[r][0] = sum[r][1] = ALL(0.0f);
        for (int64_t k = 0; k < u->batch; k++) {
            const float *x = u->x + k * rows + i, *d = u->d + k * columns + j;
            const Lanes d0 = LOAD(d), d1 = LOAD(d + LANES);
            for (int r = 0; r < TILE_ROWS; r++) {
                const Lanes xr = ALL(x[r]);
                sum[r][0] = FMA_LANES(xr, d0, sum[r][0]);
                sum[r][1] = FMA_LANES(xr, d1, sum[r][1]);
            }
        }
        for (int r = 0; r < TILE_ROWS; r++) {
            STORE(g + r * columns + j, sum[r][0]);
            STORE(g + r * columns + j + LANES, sum[r][1]);
        }
    }
    for (; j < columns; j++)
        for (int r = 0; r < TILE_ROWS; r++) {
            float sum = 0.0f;
            for (int64_t k = 0; k < u->batch; k++) sum = __builtin_fmaf(u->x[k * rows + i + r], u->d[k * columns + j], sum);
            g[r * columns + j] = sum;
        }
}

static void outer_row(const Update *u, int64_t i, float *g) {
    memset(g, 0, u->columns * sizeof *g);
    for (int64_t k = 0; k < u->batch; k++) {
        const float x = u->x[k * u->rows + i], *d = u->d + k * u->columns;
        for (int64_t j = 0; j < u->columns; j++) g[j] = __builtin_fmaf(x, d[j], g[j]);
    }
}

/* x' d itself, so that its bits can be compared. 0: done; 1: not a case for this code. */
int comper_product(const Update *u, float *g) {
    int64_t i = 0;
    if (u->columns > MAX_COLUMNS) return 1;
    for (; i + TILE_ROWS <= u->rows; i += TILE_ROWS) outer_rows(u, i, g + i * u->columns);
    for (; i < u->rows; i++) outer_row(u, i, g + i * u->columns);
    return 0;
}

/* torch's addcmul rounds (value * a) * b + self once or twice, as it was compiled: MULTIPLY_ADD says which. */
#define RULES(NAME, MULTIPLY_ADD)                                                                                        \
    static void plain_##NAME(const Update *u, int64_t start, const float *restrict g, int64_t count) {                   \
        float *restrict w = u->w + start, *restrict n = u->n + start;                                                    \
        const float keep = u->keep, share = u->share, epsilon = u->epsilon, step = u->step;                              \
        for (int64_t j = 0; j < count; j++) {                                                                            \
            n[j] = MULTIPLY_ADD(share * g[j], g[j], n[j] * keep);                                                        \
            w[j] = MULTIPLY_ADD(step * g[j], 1.0f / sqrtf(n[j] + epsilon), w[j]);                                        \
        }                                                                                                                \
    }                                                                                                                    \
    static void mnih_##NAME(const Update *u, int64_t start, const float *restrict g, int64_t count) {                    \
        float *restrict w = u->w + start, *restrict m = u->m + start, *restrict n = u->n + start;                        \
        const float keep = u->keep, share = u->share, mean_share = u->mean_share, epsilon = u->epsilon, step = u->step;  \
        for (int64_t j = 0; j < count; j++) {                                                                            \
            n[j] = MULTIPLY_ADD(share * g[j], g[j], n[j] * keep);                                                        \
            m[j] = MULTIPLY_ADD(mean_share, g[j] - m[j], m[j]);                                                          \
            const float variance = MULTIPLY_ADD(-m[j], m[j], n[j]);                                                      \
            w[j] = MULTIPLY_ADD(step * g[j], 1.0f / sqrtf((variance < 0.0f ? 0.0f : variance) + epsilon), w[j]);         \
        }                                                                                                                \
    }                                                                                                                    \
    static void adam_##NAME(const Update *u, int64_t start, const float *restrict g, int64_t count) {                    \
        float *restrict w = u->w + start, *restrict m = u->m + start, *restrict n = u->n + start;                        \
        const float keep = u->keep, share = u->share, mean_share = u->mean_share, epsilon = u->epsilon, step = u->step,  \
                    total = u->total;                                                                                    \
        for (int64_t j = 0; j < count; j++) {                                                                            \
            m[j] = MULTIPLY_ADD(mean_share, g[j] - m[j], m[j]);                                                          \
            n[j] = MULTIPLY_ADD(share * g[j], g[j], n[j] * keep);                                                        \
            w[j] = w[j] + step * m[j] / (1.0f / (1.0f / sqrtf(n[j] / total)) + epsilon);                                 \
        }                                                                                                                \
    }
#define ROUNDED_TWICE(a, b, c) ((a) * (b) + (c))
#define ROUNDED_ONCE(a, b, c) __builtin_fmaf(a, b, c)
RULES(rounded_twice, ROUNDED_TWICE)
RULES(rounded_once, ROUNDED_ONCE)

typedef void (*Rule)(const Update *, int64_t, const float *, int64_t);
typedef struct { const Update *update; Rule rule; int64_t first, last; } Share;

static void *work(void *argument) {
    const Share *s = argument;
    const Update *u = s->update;
    float g[TILE_ROWS * MAX_COLUMNS];
    int64_t i = s->first;
    if (u->g) {
        s->rule(u, i * u->columns, u->g + i * u->columns, (s->last - i) * u->columns);
        return NULL;
    }
    for (; i + TILE_ROWS <= s->last; i += TILE_ROWS) {
        outer_rows(u, i, g);
        s->rule(u, i * u->columns, g, TILE_ROWS * u->columns);
    }
    for (; i < s->last; i++) {
        outer_row(u, i, g);
        s->rule(u, i * u->columns, g, u->columns);
    }
    return NULL;
}

#define MAX_THREADS 64

/* Do `threads` shares of some work, each of `size` bytes: the first here, the others in threads as far as there are any. */
static void in_threads(void *(*work)(void *), void *shares, size_t size, int threads) {
    pthread_t others[MAX_THREADS];
    char *share = shares;
    int started = 1;
    for (; started < threads; started++)
        if (pthread_create(&others[started], NULL, work, share + started * size)) break;
    for (int t = started; t < threads; t++) work(share + t * size);
    work(share);
    for (int t = 1; t < started; t++) pthread_join(others[t], NULL);
}

/* Update the weights with several threads; the bits do not depend on how many. 0: done; 1: not a case for this code. */
int comper_update(const Update *u, int rounded_once, int threads) {
    if (!u->g && u->columns > MAX_COLUMNS) return 1;
    const Rule rule = u->total ? (rounded_once ? adam_rounded_once : adam_rounded_twice)
                      : u->m   ? (rounded_once ? mnih_rounded_once : mnih_rounded_twice)
                               : (rounded_once ? plain_rounded_once : plain_rounded_twice);
    Share shares[MAX_THREADS];
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (u->rows * u->columns < 1 << 16 || threads < 1) threads = 1;
    const int64_t part = (u->rows + threads - 1) / threads;
    for (int t = 0; t < threads; t++) {
        const int64_t first = t * part, last = first + part < u->rows ? first + part : u->rows;
        shares[t] = (Share){u, rule, first < last ? first : last, last};
    }
    in_threads(work, shares, sizeof *shares, threads);
    return 0;
}

/* ---- The emulator's picture: two screens of palette indices, pooled to grey and resized by area as OpenCV does it. ---- */

typedef struct {
    const uint8_t *table;                      /* grey by (index before, index now) */
    int32_t rows, columns, size, taps;         /* the screen's size, the picture's, and source pixels per column of it */
    const int32_t *source;                     /* (taps, size): the source columns of each column */
    const float *weight;                       /* (taps, size): their weights, 0 where there are fewer */
    int32_t num_steps;                         /* the rows in OpenCV's order: */
    const int32_t *source_row, *target_row;
    const float *row_weight;
} Picture;

#define MAX_SIZE 512
#define MAX_SCREEN 512

static void store_row(uint8_t *out, const float *sum, int32_t size) {
    for (int32_t x = 0; x < size; x++) out[x] = (uint8_t)(int32_t)rintf(sum[x]);
}

/* across += grey[source] * weight. A gather is slow; the pixels that neighbours need stand in two registers. */
static void add_tap(const float *grey, const int32_t *source, const float *weight, int32_t size, float *across) {
    int32_t x = 0;
#if LANES == 16
    for (; x + LANES <= size; x += LANES) {
        const float *first = grey + source[x];
        const __m512i chosen = _mm512_sub_epi32(_mm512_loadu_si512(source + x), _mm512_set1_epi32(source[x]));
        if (_mm512_cmpge_epu32_mask(chosen, _mm512_set1_epi32(2 * LANES))) break;
        const Lanes pixels = _mm512_permutex2var_ps(LOAD(first), chosen, LOAD(first + LANES));
        STORE(across + x, LOAD(across + x) + pixels * LOAD(weight + x));
    }
#endif
    for (; x < size; x++) across[x] += grey[source[x]] * weight[x];
}

/* The table's greys of a row. Most pixels are as they were before: their 256 greys, `same`, fit four registers. */
static void pool_row(const Picture *p, const uint8_t *same, const uint8_t *before, const uint8_t *now, uint8_t *pooled) {
    int32_t x = 0;
#ifdef __AVX512VBMI__
    const __m512i s0 = _mm512_loadu_si512(same), s1 = _mm512_loadu_si512(same + 64);
    const __m512i s2 = _mm512_loadu_si512(same + 128), s3 = _mm512_loadu_si512(same + 192);
    for (; x < p->columns; x += 64) {
        const __mmask64 present = p->columns - x < 64 ? (1ULL << (p->columns - x)) - 1 : ~0ULL;
        const __m512i b = _mm512_maskz_loadu_epi8(present, before + x), n = _mm512_maskz_loadu_epi8(present, now + x);
        const __m512i low = _mm512_permutex2var_epi8(s0, n, s1), high = _mm512_permutex2var_epi8(s2, n, s3);
        _mm512_storeu_si512(pooled + x, _mm512_mask_blend_epi8(_mm512_movepi8_mask(n), low, high));
        for (uint64_t changed = _mm512_cmpneq_epi8_mask(b, n); changed; changed &= changed - 1) {
            const int32_t at = x + __builtin_ctzll(changed);
            pooled[at] = p->table[before[at] << 8 | now[at]];
        }
    }
#endif
    for (; x < p->columns; x++) pooled[x] = p->table[before[x] << 8 | now[x]];
}

static void grey_row(const Picture *p, const uint8_t *same, const uint8_t *before, const uint8_t *now, float *across) {
    uint8_t pooled[MAX_SCREEN + 64];
    float grey[MAX_SCREEN + 2 * LANES];
    pool_row(p, same, before, now, pooled);
    for (int32_t x = 0; x < p->columns; x++) grey[x] = pooled[x];
    for (int32_t x = 0; x < p->size; x++) across[x] = 0.0f;
    for (int32_t t = 0; t < p->taps; t++) add_tap(grey, p->source + t * p->size, p->weight + t * p->size, p->size, across);
}

/* 0: done; 1: not a case for this code. */
int comper_picture(const Picture *p, const uint8_t *before, const uint8_t *now, uint8_t *out) {
    float across[MAX_SIZE], sum[MAX_SIZE] = {0};
    if (p->size > MAX_SIZE || p->columns > MAX_SCREEN) return 1;
    uint8_t same[256];
    for (int32_t i = 0; i < 256; i++) same[i] = p->table[i << 8 | i];
    const uint8_t *last_before = NULL, *last_now = NULL;
    int32_t target = p->target_row[0];
    for (int32_t k = 0; k < p->num_steps; k++) {
        const uint8_t *b = before + (int64_t)p->source_row[k] * p->columns, *n = now + (int64_t)p->source_row[k] * p->columns;
        /* Many rows of a screen are like the one above. */
        if (!last_now || memcmp(b, last_before, p->columns) || memcmp(n, last_now, p->columns)) grey_row(p, same, b, n, across);
        last_before = b, last_now = n;
        if (p->target_row[k] != target) {
            store_row(out + (int64_t)target * p->size, sum, p->size);
            target = p->target_row[k];
            for (int32_t x = 0; x < p->size; x++) sum[x] = 0.0f;
        }
        for (int32_t x = 0; x < p->size; x++) sum[x] += p->row_weight[k] * across[x];
    }
    store_row(out + (int64_t)target * p->size, sum, p->size);
    return 0;
}

/* ---- Compressed frames: raw deflate (RFC 1951), stored blocks and the fixed code alone, all of a batch at once. ---- */

typedef struct { const uint8_t *next, *end; uint64_t bits; int held, missing; } Reader;

static inline void refill(Reader *r) {
    if (r->end - r->next >= 8) { /* all of it at once */
        uint64_t more;
        memcpy(&more, r->next, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        more = __builtin_bswap64(more);
#endif
        r->bits |= more << r->held;
        r->next += (63 - r->held) >> 3;
        r->held |= 56;
        return;
    }
    while (r->held <= 56) {
        if (r->next < r->end) r->bits |= (uint64_t)*r->next++ << r->held;
        else r->missing += 8; /* zeros stand in for what is past the end; `missing` tells if they were used */
        r->held += 8;
    }
}

static inline uint32_t take(Reader *r, int count) {
    const uint32_t value = (uint32_t)(r->bits & ((1u << count) - 1));
    r->bits >>= count;
    r->held -= count;
    return value;
}

static inline uint32_t reversed(uint32_t code, int length) {
    uint32_t back = 0;
    for (int k = 0; k < length; k++) back |= (code >> k & 1) << (length - 1 - k);
    return back;
}

typedef struct { uint8_t length; uint16_t symbol; } Code;

static void fixed_code(Code *codes) {
    for (uint32_t symbol = 0; symbol < 288; symbol++) {
        const int length = symbol < 144 ? 8 : symbol < 256 ? 9 : symbol < 280 ? 7 : 8;
        const uint32_t code = symbol < 144 ? 0x30 + symbol : symbol < 256 ? 0x190 + symbol - 144
                            : symbol < 280 ? symbol - 256 : 0xC0 + symbol - 280;
        for (uint32_t rest = 0; rest < 1u << (9 - length); rest++)
            codes[reversed(code, length) | rest << length] = (Code){(uint8_t)length, (uint16_t)symbol};
    }
}

static const uint8_t REVERSED_5[32] = {0, 16, 8, 24, 4, 20, 12, 28, 2, 18, 10, 26, 6, 22, 14, 30,
                                       1, 17, 9, 25, 5, 21, 13, 29, 3, 19, 11, 27, 7, 23, 15, 31};
static const uint16_t LENGTH_BASE[29] = {3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99,
                                         115, 131, 163, 195, 227, 258};
static const uint8_t LENGTH_BITS[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};

static int copy_match(uint8_t *out, int64_t at, int64_t length, int64_t distance, const uint8_t *words, int64_t num_words) {
    if (distance > at) { /* it begins in the dictionary */
        const int64_t back = distance - at;
        if (back > num_words) return 1;
        const int64_t part = back < length ? back : length;
        memcpy(out + at, words + num_words - back, part);
        at += part, length -= part;
        if (!length) return 0;
    }
    if (distance >= length) memcpy(out + at, out + at - distance, length);
    else if (distance == 1) memset(out + at, out[at - 1], length);
    else for (int64_t k = 0; k < length; k++) out[at + k] = out[at + k - distance];
    return 0;
}

static int inflate_one(const Code *codes, const uint8_t *in, int64_t in_size, const uint8_t *words, int64_t num_words,
                       uint8_t *out, int64_t size) {
    Reader r = {in, in + in_size, 0, 0, 0};
    int64_t at = 0;
    for (int is_last = 0; !is_last;) {
        refill(&r);
        is_last = take(&r, 1);
        const uint32_t kind = take(&r, 2);
        if (kind == 0) {
            take(&r, r.held & 7);
            refill(&r);
            const uint32_t length = take(&r, 16), complement = take(&r, 16);
            if ((length ^ complement) != 0xFFFF || length > size - at) return 1;
            for (uint32_t k = 0; k < length; k++, refill(&r)) out[at++] = (uint8_t)take(&r, 8);
        } else if (kind == 1) {
            for (;;) {
                refill(&r); /* a length and a distance take 32 bits at most */
                const Code code = codes[r.bits & 511];
                take(&r, code.length);
                if (code.symbol == 256) break;
                if (code.symbol < 256) {
                    if (at == size) return 1;
                    out[at++] = (uint8_t)code.symbol;
                    continue;
                }
                if (code.symbol > 285) return 1;
                const int64_t length = LENGTH_BASE[code.symbol - 257] + take(&r, LENGTH_BITS[code.symbol - 257]);
                const uint32_t kind_of_distance = REVERSED_5[take(&r, 5)];
                if (kind_of_distance > 29) return 1;
                const int extra = kind_of_distance < 4 ? 0 : (int)(kind_of_distance >> 1) - 1;
                const int64_t base = kind_of_distance < 4 ? 1 + kind_of_distance : 1 + ((int64_t)(2 + (kind_of_distance & 1)) << extra);
                const int64_t distance = base + take(&r, extra);
                if (length > size - at || copy_match(out, at, length, distance, words, num_words)) return 1;
                at += length;
            }
        } else return 1;
        if (r.missing > r.held) return 1;
    }
    return at != size;
}

/* Frame k goes to row k of `out`; one that stands in an earlier row already is copied from there. Return how many are done. */
int64_t comper_inflate(int64_t count, const int64_t *first_row, const uint8_t *const *parts, const int64_t *part_sizes,
                       const uint8_t *const *dictionaries, const int64_t *dictionary_sizes, uint8_t *out, int64_t size) {
    Code codes[512];
    fixed_code(codes);
    for (int64_t k = 0; k < count; k++) {
        if (first_row[k] < k) memcpy(out + k * size, out + first_row[k] * size, size);
        else if (inflate_one(codes, parts[k], part_sizes[k], dictionaries[k], dictionary_sizes[k], out + k * size, size)) return k;
    }
    return count;
}

/* ---- Pixels as a network reads them: (batch, channels, pixels) of bytes to (batch, pixels, channels) of floats. ---- */

void comper_channels_last(const uint8_t *frames, int64_t batch, int64_t channels, int64_t pixels, float *out) {
    for (int64_t b = 0; b < batch; b++, frames += channels * pixels, out += channels * pixels) {
        if (channels == 4) {
            const uint8_t *c0 = frames, *c1 = c0 + pixels, *c2 = c1 + pixels, *c3 = c2 + pixels;
            for (int64_t p = 0; p < pixels; p++) {
                out[4 * p] = c0[p], out[4 * p + 1] = c1[p], out[4 * p + 2] = c2[p], out[4 * p + 3] = c3[p];
            }
        } else
            for (int64_t p = 0; p < pixels; p++)
                for (int64_t c = 0; c < channels; c++) out[p * channels + c] = frames[c * pixels + p];
    }
}

/* Rows of bytes as floats times a scale, each row of the result `stride` numbers after the last. */
void comper_scaled(const uint8_t *bytes, int64_t rows, int64_t size, float scale, float *out, int64_t stride) {
    for (int64_t r = 0; r < rows; r++, bytes += size, out += stride)
        for (int64_t i = 0; i < size; i++) out[i] = (float)bytes[i] * scale;
}

/* ---- One state through convolutions and a dense layer, each followed by max(0, y). ---- */

typedef struct {
    const float *w, *bias;    /* (filters, size, size, channels) of a convolution, (inputs, filters) of a dense layer */
    int64_t size, stride;     /* of a convolution; size = 0: a dense layer, of height * width * channels inputs */
    int64_t height, width, channels, filters;
    int64_t block;            /* of a convolution: so many products are summed up at a time and added to the bias */
    float scale;              /* of a convolution's weights */
} Layer;

#define POSITIONS 7 /* 49 and 400 are (nearly) multiples of it, and twice as many sums fit the registers */
#define MAX_VALUES 4096

/* (filters, values) to (values, filters), times a scale; some columns at a time, so that what is written stays in the cache. */
static void transpose(const float *w, int64_t filters, int64_t values, float scale, float *out) {
    for (int64_t first = 0; first < values; first += 32) {
        const int64_t last = first + 32 < values ? first + 32 : values;
        for (int64_t o = 0; o < filters; o++)
            for (int64_t k = first; k < last; k++) out[k * filters + o] = w[o * values + k] * scale;
    }
}

/* Add a block of products to POSITIONS rows of `out`, of one or two lanes of filters: each sum a chain of fused sums, first to
 * last. */
static inline void add_lanes(const float *patches, int64_t values, int64_t count, const float *w, int64_t filters, int lanes,
                             float *out) {
    Lanes sum[POSITIONS][2];
    for (int p = 0; p < POSITIONS; p++) sum[p][0] = sum[p][1] = ALL(0.0f);
    for (int64_t k = 0; k < count; k++, w += filters) {
        const Lanes w0 = LOAD(w), w1 = lanes > 1 ? LOAD(w + LANES) : w0;
        for (int p = 0; p < POSITIONS; p++) {
            const Lanes x = ALL(patches[p * values + k]);
            sum[p][0] = FMA_LANES(x, w0, sum[p][0]);
            if (lanes > 1) sum[p][1] = FMA_LANES(x, w1, sum[p][1]);
        }
    }
    for (int p = 0; p < POSITIONS; p++, out += filters) {
        STORE(out, LOAD(out) + sum[p][0]);
        if (lanes > 1) STORE(out + LANES, LOAD(out + LANES) + sum[p][1]);
    }
}

static void add_block(const float *patches, int64_t values, int64_t count, const float *w, int64_t filters, float *out) {
    int64_t j = 0;
    for (; j + TILE_COLUMNS <= filters; j += TILE_COLUMNS) add_lanes(patches, values, count, w + j, filters, 2, out + j);
    if (j < filters) add_lanes(patches, values, count, w + j, filters, 1, out + j);
}

static void rectify(float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] = x[i] < 0.0f ? 0.0f : x[i];
}

static int convolve(const Layer *l, const float *x, float *weights, float *out) {
    const int64_t down = (l->height - l->size) / l->stride + 1, across = (l->width - l->size) / l->stride + 1;
    const int64_t run = l->size * l->channels, values = l->size * run, count = down * across;
    float patches[POSITIONS * MAX_VALUES];
    if (l->filters % LANES || values > MAX_VALUES || count < POSITIONS) return 1;
    transpose(l->w, l->filters, values, l->scale, weights);
    for (int64_t next = 0; next < count; next += POSITIONS) {
        const int64_t first = next < count - POSITIONS ? next : count - POSITIONS; /* the last ones once more */
        float *rows = out + first * l->filters;
        for (int64_t p = 0; p < POSITIONS; p++) {
            const int64_t y = (first + p) / across * l->stride, at = (first + p) % across * l->stride;
            for (int64_t k = 0; k < l->size; k++)
                memcpy(patches + p * values + k * run, x + ((y + k) * l->width + at) * l->channels, run * sizeof *x);
            if (l->bias) memcpy(rows + p * l->filters, l->bias, l->filters * sizeof *rows);
            else memset(rows + p * l->filters, 0, l->filters * sizeof *rows);
        }
        for (int64_t k = 0; k < values; k += l->block)
            add_block(patches + k, values, k + l->block < values ? l->block : values - k, weights + k * l->filters, l->filters, rows);
    }
    rectify(out, count * l->filters);
    return 0;
}

#define ROWS 8

static void add_rows(const float *const *w, const float *by, int count, float *restrict out, int64_t filters) {
    for (int64_t j = 0; j < filters; j++) {
        float sum = out[j];
        for (int r = 0; r < count; r++) sum += by[r] * w[r][j];
        out[j] = sum;
    }
}

/* Sums that begin with the bias, first to last, each product rounded. The weights of an input of 0 are not even read: that is
 * half of them, and all the same as long as they are finite. */
static void multiply(const Layer *l, const float *x, float *out) {
    const int64_t inputs = l->height * l->width * l->channels;
    const float *w[ROWS];
    float by[ROWS];
    int held = 0;
    memcpy(out, l->bias, l->filters * sizeof *out);
    for (int64_t k = 0; k < inputs; k++) {
        if (x[k] == 0.0f) continue;
        by[held] = x[k], w[held++] = l->w + k * l->filters;
        if (held == ROWS) add_rows(w, by, ROWS, out, l->filters), held = 0;
    }
    add_rows(w, by, held, out, l->filters);
    rectify(out, l->filters);
}

/* Each layer's output goes to another half of `scratch`, the last one's to `out`; behind the halves there is room for weights.
 * 0: done; 1: not a case for this code. */
int comper_hidden(const Layer *layers, int64_t count, const float *x, float *scratch, int64_t half, float *out) {
    for (int64_t i = 0; i < count; i++) {
        float *y = i + 1 == count ? out : scratch + i % 2 * half;
        if (!layers[i].size) multiply(&layers[i], x, y);
        else if (convolve(&layers[i], x, scratch + 2 * half, y)) return 1;
        x = y;
    }
    return 0;
}

/* ---- A large dense layer for a batch: products that read the weights where they are. ---- */

typedef struct {
    const float *x;             /* forward (batch, inputs); backward the outputs' gradient, (outputs, batch) */
    const float *w, *bias;      /* (inputs, outputs), (outputs) */
    float *y;                   /* forward bias + x w, (batch, outputs); backward x' w', (batch, inputs) */
    int64_t batch, inputs, outputs;
    int64_t block;              /* so many products are summed up at a time and added to y */
} Dense;

typedef struct { const Dense *dense; int64_t first, last; } Part;

#define BATCH_ROWS 8

/* Columns `first` to `last` of bias + x w. */
static void *forward_part(void *argument) {
    const Part *part = argument;
    const Dense *d = part->dense;
    for (int64_t b = 0; b < d->batch; b++)
        memcpy(d->y + b * d->outputs + part->first, d->bias + part->first, (part->last - part->first) * sizeof *d->y);
    for (int64_t start = 0; start < d->inputs; start += d->block) {
        const int64_t end = start + d->block < d->inputs ? start + d->block : d->inputs;
        for (int64_t j = part->first; j < part->last; j += TILE_COLUMNS)
            for (int64_t b = 0; b < d->batch; b += BATCH_ROWS) {
                const float *x = d->x + b * d->inputs;
                Lanes sum[BATCH_ROWS][2];
                for (int r = 0; r < BATCH_ROWS; r++) sum[r][0] = sum[r][1] = ALL(0.0f);
                for (int64_t k = start; k < end; k++) {
                    const float *w = d->w + k * d->outputs + j;
                    const Lanes w0 = LOAD(w), w1 = LOAD(w + LANES);
                    if (!b) __builtin_prefetch(w + TILE_COLUMNS), __builtin_prefetch(w + TILE_COLUMNS + LANES);
                    for (int r = 0; r < BATCH_ROWS; r++) {
                        const Lanes value = ALL(x[r * d->inputs + k]);
                        sum[r][0] = FMA_LANES(value, w0, sum[r][0]);
                        sum[r][1] = FMA_LANES(value, w1, sum[r][1]);
                    }
                }
                for (int r = 0; r < BATCH_ROWS; r++) {
                    float *y = d->y + (b + r) * d->outputs + j;
                    STORE(y, LOAD(y) + sum[r][0]);
                    STORE(y + LANES, LOAD(y + LANES) + sum[r][1]);
                }
            }
    }
    return NULL;
}

/* Columns `first` to `last` of x' w': each is a row of weights, which is read in one go, for all of the batch side by side. */
static void *backward_part(void *argument) {
    const Part *part = argument;
    const Dense *d = part->dense;
    float total[BATCH_ROWS][TILE_COLUMNS];
    for (int64_t i = part->first; i < part->last; i += BATCH_ROWS)
        for (int64_t b = 0; b < d->batch; b += TILE_COLUMNS) {
            memset(total, 0, sizeof total);
            for (int64_t start = 0; start < d->outputs; start += d->block) {
                const int64_t end = start + d->block < d->outputs ? start + d->block : d->outputs;
                Lanes sum[BATCH_ROWS][2];
                for (int r = 0; r < BATCH_ROWS; r++) sum[r][0] = sum[r][1] = ALL(0.0f);
                for (int64_t k = start; k < end; k++) {
                    const Lanes x0 = LOAD(d->x + k * d->batch + b), x1 = LOAD(d->x + k * d->batch + b + LANES);
                    for (int r = 0; r < BATCH_ROWS; r++) {
                        const Lanes weight = ALL(d->w[(i + r) * d->outputs + k]);
                        sum[r][0] = FMA_LANES(weight, x0, sum[r][0]);
                        sum[r][1] = FMA_LANES(weight, x1, sum[r][1]);
                    }
                }
                for (int r = 0; r < BATCH_ROWS; r++) {
                    STORE(total[r], LOAD(total[r]) + sum[r][0]);
                    STORE(total[r] + LANES, LOAD(total[r] + LANES) + sum[r][1]);
                }
            }
            for (int c = 0; c < TILE_COLUMNS; c++)
                for (int r = 0; r < BATCH_ROWS; r++) d->y[(b + c) * d->inputs + i + r] = total[r][c];
        }
    return NULL;
}

/* Multiply with several threads; the bits do not depend on how many. 0: done; 1: not a case for this code. */
int comper_dense(const Dense *d, int is_backward, int threads) {
    const int64_t count = is_backward ? d->inputs : d->outputs, unit = is_backward ? BATCH_ROWS : TILE_COLUMNS;
    if (count % unit || d->batch % (is_backward ? TILE_COLUMNS : BATCH_ROWS)) return 1;
    void *(*const work)(void *) = is_backward ? backward_part : forward_part;
    Part parts[MAX_THREADS];
    threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    const int64_t each = (count / unit + threads - 1) / threads * unit;
    for (int t = 0; t < threads; t++) {
        const int64_t first = t * each < count ? t * each : count;
        parts[t] = (Part){d, first, first + each < count ? first + each : count};
    }
    in_threads(work, parts, sizeof *parts, threads);
    return 0;
}
