/* One unit of PDE-Net: features are compressed, then refined along the bands and across the pixels.

To refine is x += conv(relu(conv(x))), with 3x1 or 3x3 taps, here in a half or a quarter of the multiplications.
By Winograd's F(4, 3), four outputs of three taps are six products of transformed inputs and weights along one axis,
and 36 for 4x4 outputs along both. For each of these frequencies, all tiles of a block are one matrix product.
The points 0, +-sqrt(1/2), +-sqrt(2) and infinity keep the rounding within twice that of a plain sum; the usual
0, +-1, +-2 would not.

Images are (rows, cols, width), the channels of a pixel side by side, and zero outside. */

#include <immintrin.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
enum { LANES = 16, MOST = 4 }; /* MOST vectors of outputs times 6 tiles fill the registers */
#elif defined(__AVX2__) && defined(__FMA__)
enum { LANES = 8, MOST = 2 };
#else
#error "no vector unit worth the while"
#endif

enum { TAPS = 6, KEPT = 4, TILES = 6, BLOCK = 500 << 10 }; /* a block's frequencies, in bytes, stay in the L2 cache */

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

/* The outputs of one tile: with ReLU, or added to what `y` holds. */
INLINE void transform_outputs(const int across, image y, const work *w, long row, long col, const float *from, int relu)
{
    const int kept = across > 1 ? KEPT : 1;
    float *at[KEPT * KEPT];
    vec part[KEPT * TAPS], out[KEPT];
    locate(y, w, row, col, KEPT, kept, w->sink, at);
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
                float *p = at[i * kept + j] + c;
                STORE(p, relu ? positive(out[j]) : out[j] + LOAD(p));
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

INLINE void convolve(const int across, image x, const float *weights, image y, const work *w, int relu)
{
    const int kept = across > 1 ? KEPT : 1, frequencies = TAPS * across;
    long wide = (w->cols + kept - 1) / kept, all = (w->rows + KEPT - 1) / KEPT * wide;
    for (long first = 0; first < all; first += w->tiles) {
        long tiles = all - first < w->tiles ? all - first : w->tiles;
        for (long t = 0; t < tiles; t++) {
            long row = (first + t) / wide * KEPT, col = (first + t) % wide * kept;
            transform_inputs(across, x, w, row, col, w->inputs + t * w->width);
        }
        for (int f = 0; f < frequencies; f++)
            multiply(w->inputs + f * spacing(w), w->width, weights + f * w->width * w->width,
                     w->outputs + f * spacing(w), tiles, w->width, 0, 0);
        for (long t = 0; t < tiles; t++) {
            long row = (first + t) / wide * KEPT, col = (first + t) % wide * kept;
            transform_outputs(across, y, w, row, col, w->outputs + t * w->width, relu);
        }
    }
}

/* x += conv(relu(conv(x))) */
INLINE void refine(const int across, image x, const float *const weights[2], const work *w)
{
    image hidden = {w->hidden, w->cols * w->width};
    convolve(across, x, weights[0], hidden, w, 1);
    convolve(across, hidden, weights[1], x, w, 0);
}

/* The features of the pixels from `start` on, side by side, times (count * depth, width); then ReLU. */
static void compress(const float *const *features, long count, long depth, const float *weights, long start, image x,
                     const work *w)
{
    const long step = x.stride / w->width * depth; /* to the same pixels of the next band */
    for (long i = 0; i < count; i++, weights += depth * w->width) {
        const float *from = features[i] + start * depth;
        for (long row = 0; row < w->rows; row++, from += step) {
            for (long k = 0; k < w->cols * depth && row + 1 < w->rows; k += 16)
                __builtin_prefetch(from + step + k, 0, 2);
            multiply(from, depth, weights, x.data + row * x.stride, w->cols, w->width, i > 0, i == count - 1);
        }
    }
}

/* Memory for the work of each thread; 0 without. */
static float *reserve(work *w, const int across, int threads)
{
    long tile = 2 * TAPS * across * w->width * sizeof(float), tiles = BLOCK / tile / TILES * TILES;
    w->tiles = tiles < TILES ? TILES : tiles;
    w->floats = (2 * TAPS * across * spacing(w) + (w->rows * w->cols + 2) * w->width + 15) / 16 * 16;
    return aligned_alloc(64, threads * w->floats * sizeof(float));
}

static work share(const work *w, float *memory, const int across, int thread)
{
    work own = *w;
    own.inputs = memory + thread * w->floats;
    own.outputs = own.inputs + TAPS * across * spacing(w);
    own.zero = own.outputs + TAPS * across * spacing(w);
    own.sink = own.zero + w->width;
    own.hidden = own.sink + w->width;
    memset(own.zero, 0, 2 * w->width * sizeof(float));
    return own;
}

static unsigned flush_denormals(void)
{
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* masks near zero make many denormals, and each takes a hundred cycles */
    return before;
}

/* One unit of the network, (cubes, bands, rows, cols, depth) of `count` features -> (cubes, bands, rows, cols, width).
   The weights of the convolutions are transformed, (frequencies, in, out). Returns 0, or 1 without memory. */
int unit(const float *const *features, long count, long depth, const float *squeeze, const float *const spectral[2],
         const float *const spatial[2], float *x, long cubes, long bands, long rows, long cols, long width, int threads)
{
    /* Along the bands, a strip of pixels at a time: all its bands stay in the cache. */
    const long pixels = rows * cols, strip = 24, strips = (pixels + strip - 1) / strip;
    work along = {.rows = bands, .cols = strip, .width = width}, across = {.rows = rows, .cols = cols, .width = width};
    float *memory = reserve(&along, 1, threads), *more = reserve(&across, 6, threads);
    int failed = !memory || !more;
    if (!failed) {
#pragma omp parallel num_threads(threads)
        {
            unsigned state = flush_denormals();
            work own = share(&along, memory, 1, omp_get_thread_num());
#pragma omp for schedule(dynamic)
            for (long i = 0; i < cubes * strips; i++) {
                long col = i % strips * strip, start = i / strips * bands * pixels + col;
                image part = {x + start * width, pixels * width};
                own.cols = pixels - col < strip ? pixels - col : strip;
                compress(features, count, depth, squeeze, start, part, &own);
                refine(1, part, spectral, &own);
            }
            own = share(&across, more, 6, omp_get_thread_num());
#pragma omp for schedule(dynamic)
            for (long i = 0; i < cubes * bands; i++)
                refine(6, (image){x + i * pixels * width, cols * width}, spatial, &own);
            _mm_setcsr(state);
        }
    }
    free(memory);
    free(more);
    return failed;
}
