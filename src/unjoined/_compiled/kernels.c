/* Gaussian basis values and sums of their products, without Python's lock.

   The arithmetic of the numpy code of features and moments, in one go over rows that stay in the
   cache: gather, scale, distances, exponentials, means, labels, symmetric updates. Arguments are
   not checked: the modules beside this file are the only callers. For x86-64 with AVX2; elsewhere
   numpy does it all. */

#if !defined(__x86_64__)
#error "numpy does the arithmetic of rows on this processor"
#endif

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { AVX2 = 1, AVX512 = 2 }; /* levels */

#define ROWS 4           /* computed together: their sums fit in the registers */
#define MAX_FEATURES 64
#define MIN_GAUSSIANS 16 /* two vectors of the widest kind */
#define BLOCK_ROWS 192   /* added up together: their values stay in the cache */
#define FARTHEST 1e30    /* as in features/_scaling.py */
#define STRIDE_LANES 8   /* strides are multiples of this, whatever the processor */

struct rows {
    const double *X;      /* (all, d), in C order */
    const int64_t *at;    /* (n,) positions, or NULL for the first n */
    int64_t n;
    const double *label;  /* (all,) */
    const double *weight; /* (all,), or NULL for ones */
};

struct basis {
    int32_t d;
    int32_t p;             /* functions; those before the Gaussians are linear */
    int32_t n_gaussians;
    double width;          /* of the Gaussians, in scaled units */
    const double *shift;   /* (d,) subtracted from the features */
    const double *factor;  /* (d,) by which they are multiplied then */
    const double *product; /* (d + 2, n_gaussians) what (z, |z|^2, 1) is multiplied by */
    const double *origin;  /* (d,) in scaled units */
};

struct means {
    int32_t r;            /* one mean, or one for each population */
    double bound;
    const double *coef;   /* (r, p) */
    const double *slope;  /* (r, d), or NULL */
    const double *offset; /* (r,) */
};

struct sums {
    int32_t unit; /* whether labels were all -1 or +1, so that label_cross was left alone */
    double weight;
    double *label_basis; /* (p,) */
    double *gram;        /* (stride, stride), blocks of the lower triangle */
    double *label_cross; /* (stride, stride), the same, or NULL if it is not wanted */
};

struct policies {
    int32_t d;
    int32_t stride;               /* 2 d + 2 or a little more */
    const double *shift, *factor; /* (d,) as those of a basis */
    const double *treatment;      /* (all,) */
    double *gram, *square;        /* (stride, stride), blocks of the lower triangle */
};

#define INLINE static inline __attribute__((always_inline))
#define POSITION(rows, i) ((rows)->at ? (rows)->at[i] : (i))

#define TARGET __attribute__((target("arch=haswell")))
#define LANES 4
#define NAME(f) f##_avx2
#include "kernels.h"
#undef TARGET
#undef LANES
#undef NAME

#define TARGET __attribute__((target("arch=skylake-avx512")))
#define LANES 8
#define NAME(f) f##_avx512
#include "kernels.h"
#undef TARGET
#undef LANES
#undef NAME

#define CALL(f, ...)                                        \
    do {                                                    \
        if (level == AVX512) f##_avx512(__VA_ARGS__);       \
        else f##_avx2(__VA_ARGS__);                         \
    } while (0)

#define EXPORT __attribute__((visibility("default")))

/* The most that this processor can do, or 0 if that is less than AVX2. */
EXPORT int32_t unjoined_level(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd"))
        return AVX512;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? AVX2 : 0;
}

/* What the arrays of a caller must allow for. */
EXPORT int32_t unjoined_max_features(void) { return MAX_FEATURES; }
EXPORT int32_t unjoined_min_gaussians(void) { return MIN_GAUSSIANS; }
EXPORT int32_t unjoined_rows(void) { return ROWS; }
EXPORT int32_t unjoined_block_rows(void) { return BLOCK_ROWS; }
EXPORT int32_t unjoined_stride_lanes(void) { return STRIDE_LANES; }

/* Write the basis values of rows, (n, p). */
EXPORT void unjoined_values(
    int32_t level, const struct rows *rows, const struct basis *basis, double *out
) {
    CALL(values, rows, basis, out);
}

/* Write basis values times r columns of coefficients, given as (r, p), into out, (n, r); phi is
   room for ROWS times p numbers. */
EXPORT void unjoined_combine(
    int32_t level, const struct rows *rows, const struct basis *basis, const double *coef,
    int32_t r, double *phi, double *out
) {
    CALL(combine, rows, basis, coef, r, phi, out);
}

/* Add rows to sums and, unless policies is NULL, to those that tell policies apart.

   The stride is p or a little more. Room is for twice BLOCK_ROWS, and ROWS, times the larger of
   the stride and that of policies. */
EXPORT void unjoined_add_up(
    int32_t level, const struct rows *rows, const struct basis *basis, const struct means *means,
    int32_t stride, double *room, struct sums *sums, const struct policies *policies
) {
    CALL(add_up, rows, basis, means, stride, room, sums, policies);
}

/* Solve (A + ridge I) x = right for n symmetric matrices and all ridges.

   A, (n, stride, stride) and zero beyond p, and right, (n, stride), are overwritten; ridges are as
   many as whole vectors of the widest kind; x is (n, p, n_ridges). Room is for p + 3 rows of A and
   p rows of ridges. */
EXPORT void unjoined_ridge_paths(
    int32_t level, int32_t n, double *A, int32_t p, int32_t stride, double *right,
    const double *ridges, int32_t n_ridges, double *room, double *x
) {
    CALL(ridge_paths, n, A, p, stride, right, ridges, n_ridges, room, x);
}

struct labels {
    const double *y;
    const char *kind, *population;    /* words or numbers, of so many bytes each: */
    int64_t kind_size, population_size;
    const char *outcome, *treatment;  /* the two words that kind may hold */
    const char *first, *second;       /* the two populations */
};

struct label_block {
    int32_t cells;    /* a bit for each of the four that has rows */
    int32_t codes;    /* of treatments: bits for 0, 1 and -1 */
    int32_t n_values; /* of outcomes, the different ones as they come; 3 stands for more */
    double values[3];
};

static uint64_t eight(const char *from) {
    uint64_t bits;
    memcpy(&bits, from, 8);
    return bits;
}

static int differ(const char *a, const char *b, int64_t size) {
    uint64_t bits = 0;
    if (size < 8) {
        for (int64_t j = 0; j < size; j++) bits |= (uint64_t)(a[j] ^ b[j]);
        return bits != 0;
    }
    for (int64_t j = 0; j + 8 <= size; j += 8) bits |= eight(a + j) ^ eight(b + j);
    return (bits | (eight(a + size - 8) ^ eight(b + size - 8))) != 0;
}

static void add_value(double value, struct label_block *found) {
    for (int32_t i = 0; i < found->n_values; i++)
        if (found->values[i] == value) return;
    found->values[found->n_values++] = value;
}

/* Look at rows from start to stop, and write the cell of each: 2 for treatments and 1 for the
   second population, added up. Returns 0 at a row that is not as most rows are, right or wrong.

   Kinds and populations come in any order, so that a processor would guess wrong at every other
   row: nothing but what is rare hangs on a condition. */
EXPORT int32_t unjoined_scan(
    const struct labels *rows, int64_t start, int64_t stop, uint8_t *cell,
    struct label_block *found
) {
    int32_t codes = 0, cells = 0;
    for (int64_t i = start; i < stop; i++) {
        const char *kind = rows->kind + i * rows->kind_size;
        const char *population = rows->population + i * rows->population_size;
        const double y = rows->y[i];
        const int treatment = kind[0] != rows->outcome[0]; /* or another word */
        const int second = differ(population, rows->first, rows->population_size);
        const int code = (y == 0.0) | (y == 1.0) << 1 | (y == -1.0) << 2;
        int unusual = differ(kind, treatment ? rows->treatment : rows->outcome, rows->kind_size);
        unusual |= second & differ(population, rows->second, rows->population_size);
        unusual |= treatment & (code == 0);
        unusual |= !isfinite(y);
        if (unusual) return 0;
        if (!treatment & (found->n_values < 3)) add_value(y, found);
        codes |= code & -treatment;
        cell[i] = (uint8_t)(2 * treatment + second);
        cells |= 1 << (2 * treatment + second);
    }
    found->codes = codes;
    found->cells = cells;
    return 1;
}
