/* The parts of which a unit of PDE-Net and its gradients are made: convolutions with 3x1 or 3x3 taps in a half or a
quarter of the multiplications.

By Winograd's F(4, 3), four outputs of three taps are six products of transformed inputs and weights along one axis,
and 36 for 4x4 outputs along both. For each of these frequencies, all tiles of a block are one matrix product.
The points 0, +-sqrt(1/2), +-sqrt(2) and infinity keep the rounding within twice that of a plain sum; the usual
0, +-1, +-2 would not.

Images are (rows, cols, width), the channels of a pixel side by side, and zero outside. */

#include <immintrin.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, MOST = 4 }; /* MOST vectors of outputs times 6 tiles fill the registers */
#elif defined(__AVX2__) && defined(__FMA__)
enum { LANES = 8, MOST = 2 };
#else
#error "no vector unit worth the while"
#endif

enum { TAPS = 6, KEPT = 4, TILES = 6, BLOCK = 500 << 10, STRIP = 24 };
/* A block's frequencies, in bytes, stay in the L2 cache; pixels of a strip, with all their bands. */

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int bits __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* a vec anywhere in memory */

#define INLINE static inline __attribute__((always_inline))
#define LOAD(p) ((vec) * (const loose *)(p))
#define STORE(p, v) (*(loose *)(p) = (v))
#define UNROLL _Pragma("GCC unroll 6")

typedef struct {
    float *data;
    long stride; /* from one row to the next */
} image;

typedef struct {
    long rows, cols, width;
    long tiles, floats;          /* in a block; in all of the memory below */
    float *inputs, *outputs;     /* (frequencies, tiles, width), transformed */
    float *hidden, *zero, *sink; /* between the convolutions; a pixel outside to read from, another to write to */
} work;

/* Frequencies lie a little more than `tiles` pixels apart: powers of two would all share a few places in the cache. */
INLINE long spacing(const work *w) { return w->tiles * w->width + 16; }

INLINE vec positive(vec v) { return (vec)((bits)v & ~(v <= 0)); } /* a NaN stays one */

INLINE void forward(const vec *d, vec *f)
{
    vec even = d[4] - 2.0f * d[2], odd = 0.70710678f * (d[3] - 2.0f * d[1]);
    vec even2 = d[4] - 0.5f * d[2], odd2 = 1.41421356f * (d[3] - 0.5f * d[1]);
    f[0] = d[0] + (d[4] - 2.5f * d[2]);
    f[1] = even + odd;
    f[2] = even - odd;
    f[3] = even2 + odd2;
    f[4] = even2 - odd2;
    f[5] = d[1] + (d[5] - 2.5f * d[3]);
}

INLINE void backward(const vec *f, vec *y)
{
    vec sum = f[1] + f[2], difference = f[1] - f[2];
    vec sum2 = f[3] + f[4], difference2 = f[3] - f[4];
    y[0] = f[0] + sum + sum2;
    y[1] = 1.41421356f * (0.5f * difference + difference2);
    y[2] = 0.5f * sum + 2.0f * sum2;
    y[3] = 1.41421356f * (0.25f * difference + 2.0f * difference2) + f[5];
}

/* Where the `down` x `across` pixels from (row, col) on lie; those outside the image are at `outside`. */
INLINE void locate(image x, const work *w, long row, long col, int down, int across, float *outside, float **at)
{
    for (int i = 0; i < down; i++)
        for (int j = 0; j < across; j++) {
            int inside = row + i >= 0 && row + i < w->rows && col + j >= 0 && col + j < w->cols;
            at[i * across + j] = inside ? x.data + (row + i) * x.stride + (col + j) * w->width : outside;
        }
}

/* Tiles are 6 pixels down and `across` (1 or 6) wide, of which the inner 4 (and 1 or 4) are computed. */
INLINE void transform_inputs(const int across, image x, const work *w, long row, long col, float *to)
{
    float *at[TAPS * TAPS];
    vec part[TAPS * TAPS], f[TAPS];
    locate(x, w, row - 1, col - (across > 1), TAPS, across, w->zero, at);
    for (long c = 0; c < w->width; c += LANES) {
        for (int j = 0; j < across; j++) {
            vec d[TAPS];
            UNROLL for (int i = 0; i < TAPS; i++) d[i] = LOAD(at[i * across + j] + c);
            forward(d, f);
            UNROLL for (int i = 0; i < TAPS; i++) part[i * across + j] = f[i];
        }
        for (int i = 0; i < TAPS; i++) {
            if (across > 1)
                forward(part + i * across, f);
            else
                f[0] = part[i];
            UNROLL for (int j = 0; j < across; j++) STORE(to + (i * across + j) * spacing(w) + c, f[j]);
        }
    }
}

/* What becomes of the outputs of a convolution: ReLU; added to `base`; kept where `gate` is positive; both. */
typedef enum { POSITIVE, SUM, GATED, GATED_SUM } finish;

INLINE void transform_outputs(const int across, image y, image base, image gate, const finish how, const work *w, long row,
                              long col, const float *from)
{
    const int kept = across > 1 ? KEPT : 1;
    float *at[KEPT * KEPT], *add[KEPT * KEPT], *open[KEPT * KEPT];
    vec part[KEPT * TAPS], out[KEPT];
    locate(y, w, row, col, KEPT, kept, w->sink, at);
    if (how == SUM || how == GATED_SUM)
        locate(base, w, row, col, KEPT, kept, w->zero, add);
    if (how == GATED || how == GATED_SUM)
        locate(gate, w, row, col, KEPT, kept, w->zero, open);
    for (long c = 0; c < w->width; c += LANES) {
        for (int j = 0; j < across; j++) {
            vec f[TAPS];
            UNROLL for (int i = 0; i < TAPS; i++) f[i] = LOAD(from + (i * across + j) * spacing(w) + c);
            backward(f, out);
            UNROLL for (int i = 0; i < KEPT; i++) part[i * across + j] = out[i];
        }
        for (int i = 0; i < KEPT; i++) {
            if (across > 1)
                backward(part + i * across, out);
            else
                out[0] = part[i];
            UNROLL for (int j = 0; j < kept; j++) {
                vec v = out[j];
                if (how == POSITIVE)
                    v = positive(v);
                if (how == SUM || how == GATED_SUM)
                    v += LOAD(add[i * kept + j] + c);
                if (how == GATED || how == GATED_SUM)
                    v = (vec)((bits)v & (LOAD(open[i * kept + j] + c) > 0));
                STORE(at[i * kept + j] + c, v);
            }
        }
    }
}

/* `to` (tiles, columns of b) = or += a (tiles, depth) times `vectors` of the columns of b (depth, width). */
INLINE void product(const int tiles, const int vectors, const float *a, long depth, const float *b, float *to, long width,
                    int add, int relu)
{
    vec sum[TILES][MOST] = {0};
    for (long k = 0; k < depth; k++)
        UNROLL for (int t = 0; t < tiles; t++)
            UNROLL for (int v = 0; v < vectors; v++)
                sum[t][v] += a[t * depth + k] * LOAD(b + k * width + v * LANES);
    UNROLL for (int t = 0; t < tiles; t++)
        UNROLL for (int v = 0; v < vectors; v++) {
            float *p = to + t * width + v * LANES;
            vec y = add ? sum[t][v] + LOAD(p) : sum[t][v];
            STORE(p, relu ? positive(y) : y);
        }
}

INLINE void products(const int vectors, const float *a, long depth, const float *b, float *to, long tiles, long width,
                     int add, int relu)
{
    for (long column = 0; column < width; column += vectors * LANES) {
        long t = 0;
        for (; t + TILES <= tiles; t += TILES)
            product(TILES, vectors, a + t * depth, depth, b + column, to + t * width + column, width, add, relu);
        for (; t + 2 <= tiles; t += 2)
            product(2, vectors, a + t * depth, depth, b + column, to + t * width + column, width, add, relu);
        if (t < tiles)
            product(1, vectors, a + t * depth, depth, b + column, to + t * width + column, width, add, relu);
    }
}

static void multiply(const float *a, long depth, const float *b, float *to, long tiles, long width, int add, int relu)
{
    if (width % (MOST * LANES) == 0)
        products(MOST, a, depth, b, to, tiles, width, add, relu);
    else if (width % (2 * LANES) == 0)
        products(2, a, depth, b, to, tiles, width, add, relu);
    else
        products(1, a, depth, b, to, tiles, width, add, relu);
}

/* Blocks of about equal size, so that the last is no small one. */
INLINE long block_of(long all, long most)
{
    long blocks = (all + most - 1) / most;
    return (all + blocks - 1) / blocks;
}

INLINE void transform_block(const int across, image x, const work *w, long first, long tiles)
{
    const int kept = across > 1 ? KEPT : 1;
    long wide = (w->cols + kept - 1) / kept;
    for (long t = 0; t < tiles; t++)
        transform_inputs(across, x, w, (first + t) / wide * KEPT, (first + t) % wide * kept, w->inputs + t * w->width);
}

/* From the transformed block in w->inputs to the pixels of y. */
INLINE void convolve_block(const int across, const float *weights, image y, image base, image gate, const finish how,
                           const work *w, long first, long tiles)
{
    const int kept = across > 1 ? KEPT : 1;
    long wide = (w->cols + kept - 1) / kept;
    for (int f = 0; f < TAPS * across; f++)
        multiply(w->inputs + f * spacing(w), w->width, weights + f * w->width * w->width, w->outputs + f * spacing(w),
                 tiles, w->width, 0, 0);
    for (long t = 0; t < tiles; t++)
        transform_outputs(across, y, base, gate, how, w, (first + t) / wide * KEPT, (first + t) % wide * kept,
                          w->outputs + t * w->width);
}

INLINE long count_tiles(const int across, const work *w)
{
    const int kept = across > 1 ? KEPT : 1;
    return (w->rows + KEPT - 1) / KEPT * ((w->cols + kept - 1) / kept);
}

/* Memory for the work of each thread: `more` floats of its own before the rest. */
static void size_up(work *w, const int across)
{
    long tile = 2 * TAPS * across * w->width * sizeof(float), tiles = BLOCK / tile / TILES * TILES;
    w->tiles = block_of(count_tiles(across, w), tiles < TILES ? TILES : tiles);
    w->floats = (2 * TAPS * across * spacing(w) + (w->rows * w->cols + 2) * w->width + 15) / 16 * 16;
}

static work share(const work *w, float *memory, const int across)
{
    work part = *w;
    part.inputs = memory;
    part.outputs = part.inputs + TAPS * across * spacing(w);
    part.zero = part.outputs + TAPS * across * spacing(w);
    part.sink = part.zero + w->width;
    part.hidden = part.sink + w->width;
    memset(part.zero, 0, 2 * w->width * sizeof(float));
    return part;
}

/* `job` for every part of the work, each in a thread as far as the system grants them. */
typedef void job(void *task, long part);

typedef struct {
    job *run;
    void *task;
    long part;
} errand;

static void *do_errand(void *argument)
{
    errand *e = argument;
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* masks near zero make many denormals, and each takes a hundred cycles */
    e->run(e->task, e->part);
    _mm_setcsr(before);
    return NULL;
}

static void in_parallel(job *run, void *task, long parts)
{
    pthread_t threads[parts];
    errand errands[parts];
    char started[parts];
    for (long i = 0; i < parts; i++)
        errands[i] = (errand){run, task, i};
    for (long i = 1; i < parts; i++)
        started[i] = !pthread_create(&threads[i], NULL, do_errand, &errands[i]);
    do_errand(&errands[0]);
    for (long i = 1; i < parts; i++)
        if (started[i])
            pthread_join(threads[i], NULL);
        else
            do_errand(&errands[i]);
}
