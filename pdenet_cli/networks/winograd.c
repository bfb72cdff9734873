/* x += conv(relu(conv(x))), a pair of 3x3 or 3x1 convolutions, in a quarter or half of the multiplications.

Winograd's F(4, 3): four outputs of three taps are six products of transformed inputs and weights, along one axis
(36 for 4x4 outputs along both). For each of these frequencies all tiles of a block together are one matrix
product. The points 0, +-sqrt(1/2), +-sqrt(2) and infinity keep the rounding within twice that of a plain sum.

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

enum { TAPS = 6, KEPT = 4, TILES = 6, BLOCK = 800 << 10 }; /* a block's frequencies, in bytes, stay in the L2 cache */

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
    long tiles;                  /* in a block */
    float *inputs, *outputs;     /* (frequencies, tiles, width), transformed */
    float *hidden, *zero, *sink; /* between the convolutions; a pixel outside to read from, another to write to */
} work;

/* Frequencies lie a little more than `tiles` pixels apart: powers of two would all share a few places in the cache. */
INLINE long spacing(const work *w) { return w->tiles * w->width + 16; }

INLINE vec positive(vec v) { return (vec)((bits)v & ~(v <= 0)); } /* a NaN stays one */

INLINE void forward(const vec *d, long step, vec *f)
{
    vec even = d[4 * step] - 2.0f * d[2 * step], odd = 0.70710678f * (d[3 * step] - 2.0f * d[step]);
    vec even2 = d[4 * step] - 0.5f * d[2 * step], odd2 = 1.41421356f * (d[3 * step] - 0.5f * d[step]);
    f[0] = d[0] + (d[4 * step] - 2.5f * d[2 * step]);
    f[1] = even + odd;
    f[2] = even - odd;
    f[3] = even2 + odd2;
    f[4] = even2 - odd2;
    f[5] = d[step] + (d[5 * step] - 2.5f * d[3 * step]);
}

INLINE void backward(const vec *f, long step, vec *y)
{
    vec sum = f[step] + f[2 * step], difference = f[step] - f[2 * step];
    vec sum2 = f[3 * step] + f[4 * step], difference2 = f[3 * step] - f[4 * step];
    y[0] = f[0] + sum + sum2;
    y[1] = 1.41421356f * (0.5f * difference + difference2);
    y[2] = 0.5f * sum + 2.0f * sum2;
    y[3] = 1.41421356f * (0.25f * difference + 2.0f * difference2) + f[5 * step];
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
            forward(d, 1, f);
            UNROLL for (int i = 0; i < TAPS; i++) part[i * across + j] = f[i];
        }
        for (int i = 0; i < TAPS; i++) {
            if (across > 1)
                forward(part + i * across, 1, f);
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
            backward(f, 1, out);
            UNROLL for (int i = 0; i < KEPT; i++) part[i * across + j] = out[i];
        }
        for (int i = 0; i < KEPT; i++) {
            if (across > 1)
                backward(part + i * across, 1, out);
            else
                out[0] = part[i];
            UNROLL for (int j = 0; j < kept; j++) {
                float *p = at[i * kept + j] + c;
                STORE(p, relu ? positive(out[j]) : out[j] + LOAD(p));
            }
        }
    }
}

/* `tiles` rows of a (tiles, width) times `vectors` columns of b (width, width). */
INLINE void product(const int tiles, const int vectors, const float *a, const float *b, float *to, long width)
{
    vec sum[TILES][MOST] = {0};
    for (long k = 0; k < width; k++)
        UNROLL for (int t = 0; t < tiles; t++)
            UNROLL for (int v = 0; v < vectors; v++)
                sum[t][v] += a[t * width + k] * LOAD(b + k * width + v * LANES);
    UNROLL for (int t = 0; t < tiles; t++)
        UNROLL for (int v = 0; v < vectors; v++)
            STORE(to + t * width + v * LANES, sum[t][v]);
}

INLINE void products(const int vectors, const float *a, const float *b, float *to, long tiles, long width)
{
    for (long column = 0; column < width; column += vectors * LANES, b += vectors * LANES, to += vectors * LANES) {
        long t = 0;
        for (; t + TILES <= tiles; t += TILES)
            product(TILES, vectors, a + t * width, b, to + t * width, width);
        for (; t + 2 <= tiles; t += 2)
            product(2, vectors, a + t * width, b, to + t * width, width);
        if (t < tiles)
            product(1, vectors, a + t * width, b, to + t * width, width);
    }
}

static void multiply(const float *a, const float *b, float *to, long tiles, long width)
{
    if (width % (MOST * LANES) == 0)
        products(MOST, a, b, to, tiles, width);
    else if (width % (2 * LANES) == 0)
        products(2, a, b, to, tiles, width);
    else
        products(1, a, b, to, tiles, width);
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
            multiply(w->inputs + f * spacing(w), weights + f * w->width * w->width, w->outputs + f * spacing(w), tiles,
                     w->width);
        for (long t = 0; t < tiles; t++) {
            long row = (first + t) / wide * KEPT, col = (first + t) % wide * kept;
            transform_outputs(across, y, w, row, col, w->outputs + t * w->width, relu);
        }
    }
}

INLINE void convolve_twice(const int across, image x, const float *first, const float *second, const work *w)
{
    image hidden = {w->hidden, w->cols * w->width};
    convolve(across, x, first, hidden, w, 1);
    convolve(across, hidden, second, x, w, 0);
}

/* `across` 6: 3x3 convolutions; 1: 3x1, for which an image can be cut into strips of columns that fit the cache.
   The weights are transformed, (frequencies, in, out). Returns 0, or 1 without memory, before x has changed. */
int refine(float *x, const float *first, const float *second, long images, long rows, long cols, long width,
           int across, int threads)
{
    const long strip = across > 1 ? cols : 16, strips = (cols + strip - 1) / strip, frequencies = TAPS * across;
    work w = {.rows = rows, .width = width, .tiles = BLOCK / (2 * frequencies * width * (long)sizeof(float))};
    w.tiles = w.tiles < TILES ? TILES : w.tiles / TILES * TILES;
    const long block = frequencies * spacing(&w), each = (2 * block + (rows * strip + 2) * width + 15) / 16 * 16;
    float *scratch = aligned_alloc(64, threads * each * sizeof(float));
    if (!scratch)
        return 1;
#pragma omp parallel num_threads(threads)
    {
        unsigned state = _mm_getcsr();
        _mm_setcsr(state | 0x8040); /* denormals are zero: masks near zero make many, and each takes 100 cycles */
#pragma omp for schedule(dynamic)
        for (long i = 0; i < images * strips; i++) {
            long col = i % strips * strip;
            work own = w;
            own.cols = cols - col < strip ? cols - col : strip;
            own.inputs = scratch + omp_get_thread_num() * each;
            own.outputs = own.inputs + block;
            own.zero = own.outputs + block;
            own.sink = own.zero + width;
            own.hidden = own.sink + width;
            memset(own.zero, 0, 2 * width * sizeof(float));
            image part = {x + (i / strips * rows * cols + col) * width, cols * width};
            if (across > 1)
                convolve_twice(6, part, first, second, &own);
            else
                convolve_twice(1, part, first, second, &own);
        }
        _mm_setcsr(state);
    }
    free(scratch);
    return 0;
}
