/* What rows cost, written once and compiled for several processors. kernels.c includes this file
   with TARGET, an attribute of functions, LANES, how many numbers are computed together, and
   NAME(f), what f is called for that processor. */

#define lanes NAME(lanes_type)

#if !defined(__GNUC__)
typedef __m256d lanes;
#define LOAD(from) _mm256_loadu_pd(from)
#define STORE(to, a) _mm256_storeu_pd(to, a)
#define EACH(number) _mm256_set1_pd(number)
#define ADD(a, b) _mm256_add_pd(a, b)
#define MUL(a, b) _mm256_mul_pd(a, b)
#define FMA(a, b, c) _mm256_fmadd_pd(a, b, c)   /* a b + c */
#define FNMA(a, b, c) _mm256_fnmadd_pd(a, b, c) /* c - a b */
#else
typedef double lanes __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
#define LOAD(from) (*(const lanes *)(from))
#define STORE(to, a) (*(lanes *)(to) = (a))
#define EACH(number) (number)
#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define FMA(a, b, c) ((a) * (b) + (c))
#define FNMA(a, b, c) ((c) - (a) * (b))
#endif

/* Multiply by the power of two whose exponent is in the lowest bits of shifted; 0 for x <= -708. */
TARGET INLINE lanes NAME(times_power)(lanes sum, lanes shifted, lanes x) {
#if !defined(__GNUC__)
    const __m256i whole = _mm256_add_epi64(_mm256_castpd_si256(shifted), _mm256_set1_epi64x(1023));
    const lanes power = _mm256_castsi256_pd(_mm256_slli_epi64(whole, 52));
    const lanes small = _mm256_cmp_pd(x, _mm256_set1_pd(-708.0), _CMP_LE_OQ);
    return _mm256_andnot_pd(small, _mm256_mul_pd(sum, power));
#else
    typedef uint64_t whole __attribute__((vector_size(8 * LANES), aligned(8), may_alias));
    const whole power = ((whole)shifted + 1023) << 52;
    return (lanes)((whole)(sum * (lanes)power) & ~(whole)(x <= -708.0));
#endif
}

/* exp(x) for x <= 0, to two units in the last place; 0 where the result would be denormal, and
   what is not a number stays that.

   x = n log 2 + r with n whole and |r| <= log(2) / 2. Adding 1.5 * 2^52 rounds to whole numbers
   and leaves n in the lowest bits, from where it is moved to the exponent. */
TARGET INLINE lanes NAME(exp_lanes)(lanes x) {
    const lanes shifted = FMA(x, EACH(1.4426950408889634), EACH(6755399441055744.0));
    const lanes n = ADD(shifted, EACH(-6755399441055744.0));
    /* log 2 in two parts, the first of which has few enough digits for exact products */
    lanes r = FNMA(n, EACH(6.93147180369123816490e-01), x);
    r = FNMA(n, EACH(1.90821492927058770002e-10), r);
    lanes sum = FMA(r, EACH(1.0 / 479001600.0), EACH(1.0 / 39916800.0));
    sum = FMA(sum, r, EACH(1.0 / 3628800.0));
    sum = FMA(sum, r, EACH(1.0 / 362880.0));
    sum = FMA(sum, r, EACH(1.0 / 40320.0));
    sum = FMA(sum, r, EACH(1.0 / 5040.0));
    sum = FMA(sum, r, EACH(1.0 / 720.0));
    sum = FMA(sum, r, EACH(1.0 / 120.0));
    sum = FMA(sum, r, EACH(1.0 / 24.0));
    sum = FMA(sum, r, EACH(1.0 / 6.0));
    sum = FMA(sum, r, EACH(0.5));
    sum = FMA(sum, MUL(r, r), r);
    return NAME(times_power)(ADD(sum, EACH(1.0)), shifted, x);
}

/* Write the products of R rows of n numbers, stride apart, with a vector. */
TARGET INLINE void NAME(dot)(
    const double *rows, const double *vector, int R, int n, int64_t stride, double *out
) {
    lanes sums[ROWS];
    int l = LANES;
    for (int i = 0; i < R; i++) sums[i] = MUL(LOAD(rows + i * stride), LOAD(vector));
    for (; l + LANES <= n; l += LANES)
        for (int i = 0; i < R; i++)
            sums[i] = FMA(LOAD(rows + i * stride + l), LOAD(vector + l), sums[i]);
    for (int i = 0; i < R; i++) {
        /* Halves are added to halves: all rows wait together for few additions. */
        double part[LANES];
        STORE(part, sums[i]);
        for (int half = LANES / 2; half; half /= 2)
            for (int k = 0; k < half; k++) part[k] += part[k + half];
        out[i] = part[0];
        for (int k = l; k < n; k++) out[i] += rows[i * stride + k] * vector[k];
    }
}

/* Write R rows, stride apart, into panels: LANES columns of BLOCK_ROWS rows, one after the other.

   What a tile of sums takes from them lies together, however many columns there are. */
TARGET INLINE void NAME(pack)(
    const double *rows, int R, int stride, int start, double *panels
) {
    for (int l = 0; l < stride; l += LANES)
        for (int i = 0; i < R; i++)
            STORE(
                panels + (int64_t)l * BLOCK_ROWS + (start + i) * LANES, LOAD(rows + i * stride + l));
}

/* Write panels of n rows, each row times a number of its own. */
TARGET INLINE void NAME(scale_panels)(
    const double *panels, const double *by, int n, int stride, double *out
) {
    for (int l = 0; l < stride; l += LANES) {
        const int64_t panel = (int64_t)l * BLOCK_ROWS;
        for (int k = 0; k < n; k++)
            STORE(
                out + panel + k * LANES, MUL(EACH(by[k]), LOAD(panels + panel + k * LANES)));
    }
}

/* Add left^T right, of one panel and of V panels, to LANES rows of a matrix. */
TARGET INLINE void NAME(add_tile)(
    const double *left, const double *right, int n, int stride, int V, double *total
) {
    lanes sums[LANES][3];
    for (int i = 0; i < LANES; i++)
        for (int v = 0; v < V; v++) sums[i][v] = LOAD(total + i * stride + v * LANES);
    for (int k = 0; k < n; k++) {
        lanes values[3];
        for (int v = 0; v < V; v++) values[v] = LOAD(right + (v * BLOCK_ROWS + k) * LANES);
        for (int i = 0; i < LANES; i++)
            for (int v = 0; v < V; v++)
                sums[i][v] = FMA(EACH(left[k * LANES + i]), values[v], sums[i][v]);
    }
    for (int i = 0; i < LANES; i++)
        for (int v = 0; v < V; v++) STORE(total + i * stride + v * LANES, sums[i][v]);
}

/* Add left^T right of panels of n rows, (stride, stride) and symmetric, to the lower triangle of
   a matrix. Sums of three vectors by as many rows as a vector has lanes are kept in registers. */
TARGET INLINE void NAME(add_gram)(
    const double *left, const double *right, int n, int stride, double *total
) {
    for (int a = 0; a < stride; a += LANES) {
        const double *panel = left + (int64_t)a * BLOCK_ROWS;
        double *line = total + (int64_t)a * stride;
        int b = 0;
        for (; b + 2 * LANES <= a; b += 3 * LANES)
            NAME(add_tile)(panel, right + (int64_t)b * BLOCK_ROWS, n, stride, 3, line + b);
        if (b + LANES <= a)
            NAME(add_tile)(panel, right + (int64_t)b * BLOCK_ROWS, n, stride, 2, line + b);
        else if (b <= a)
            NAME(add_tile)(panel, right + (int64_t)b * BLOCK_ROWS, n, stride, 1, line + b);
    }
}

/* Add R rows of n numbers, stride apart and times one number each, to a total. */
TARGET INLINE void NAME(add_scaled)(
    const double *rows, const double *by, int R, int n, int64_t stride, double *total
) {
    int l = 0;
    for (; l + LANES <= n; l += LANES) {
        lanes sum = LOAD(total + l);
        for (int i = 0; i < R; i++) sum = FMA(EACH(by[i]), LOAD(rows + i * stride + l), sum);
        STORE(total + l, sum);
    }
    for (; l < n; l++)
        for (int i = 0; i < R; i++) total[l] += by[i] * rows[i * stride + l];
}

/* Write V vectors of Gaussians, from l on, of R prepared rows; out is the place of the first. */
TARGET INLINE void NAME(tile)(
    const struct basis *b, const double *z, int R, int V, int l, int stride, double *out
) {
    const int w = b->d + 2, g = b->n_gaussians;
    const double *product = b->product + l;
    lanes exponents[ROWS][2];
    for (int i = 0; i < R; i++)
        for (int v = 0; v < V; v++)
            exponents[i][v] = LOAD(product + (int64_t)(w - 1) * g + v * LANES);
    for (int j = 0; j < w - 1; j++)
        for (int v = 0; v < V; v++) {
            const lanes factors = LOAD(product + (int64_t)j * g + v * LANES);
            for (int i = 0; i < R; i++)
                exponents[i][v] = FMA(EACH(z[i * w + j]), factors, exponents[i][v]);
        }
    for (int i = 0; i < R; i++)
        for (int v = 0; v < V; v++) {
            double *to = out + (int64_t)i * stride + l + v * LANES;
            STORE(to, NAME(exp_lanes)(exponents[i][v]));
        }
}

/* Write all basis values of R rows from start on, rows of the result being stride apart. */
TARGET INLINE void NAME(row_values)(
    const struct rows *rows, const struct basis *b, int64_t start, int R, int stride, double *out
) {
    const int d = b->d, w = d + 2, g = b->n_gaussians;
    double z[ROWS * (MAX_FEATURES + 2)]; /* scaled features, |z|^2, and room for the constant */
    for (int i = 0; i < R; i++) {
        const double *x = rows->X + d * POSITION(rows, start + i);
        double *scaled = z + i * w, square = 0.0;
        for (int j = 0; j < d; j++) {
            /* Farther away, infinities would meet zeros in the products. */
            double far = (x[j] - b->shift[j]) * b->factor[j];
            far = far > FARTHEST ? FARTHEST : far;
            scaled[j] = far < -FARTHEST ? -FARTHEST : far;
            square += scaled[j] * scaled[j];
        }
        scaled[d] = square;
        if (b->p > g) {
            double *linear = out + (int64_t)i * stride;
            linear[0] = 1.0;
            for (int j = 0; j < d; j++) linear[1 + j] = scaled[j] * b->width + b->origin[j];
        }
    }
    double *gaussians = out + (b->p - g);
    int l = 0;
    for (; l + 2 * LANES <= g; l += 2 * LANES) NAME(tile)(b, z, R, 2, l, stride, gaussians);
    /* The last ones, some of them a second time, which is cheaper than one by one. */
    if (l + LANES < g) NAME(tile)(b, z, R, 2, g - 2 * LANES, stride, gaussians);
    else if (l < g) NAME(tile)(b, z, R, 1, g - LANES, stride, gaussians);
}

/* Subtract from the labels of R rows the average over the populations of their mean. */
TARGET INLINE void NAME(subtract_means)(
    const struct rows *rows, const struct basis *b, const struct means *m, int64_t start, int R,
    int stride, const double *phi, double *label
) {
    double mean[ROWS];
    for (int c = 0; c < m->r; c++) {
        NAME(dot)(phi, m->coef + (int64_t)c * b->p, R, b->p, stride, mean);
        for (int i = 0; i < R; i++) {
            double value = mean[i] + m->offset[c];
            if (m->slope) {
                const double *x = rows->X + b->d * POSITION(rows, start + i);
                for (int j = 0; j < b->d; j++) value += x[j] * m->slope[c * b->d + j];
            }
            value = value < m->bound ? value : m->bound;
            label[i] -= (value > -m->bound ? value : -m->bound) / m->r;
        }
    }
}

/* Write basis values, labels and weights of R rows, and add to the sums that are no matrices.

   The first of these rows is number i of its block; phi is room for the rows. */
TARGET INLINE void NAME(add_rows)(
    const struct rows *rows, const struct basis *b, const struct means *m, int64_t start, int i,
    int R, int stride, double *phi, double *panels, double *label, double *weight,
    struct sums *sums
) {
    double part[ROWS];
    NAME(row_values)(rows, b, start + i, R, stride, phi);
    for (int k = 0; k < R; k++) {
        const int64_t at = POSITION(rows, start + i + k);
        for (int l = b->p; l < stride; l++) phi[k * stride + l] = 0.0;
        label[i + k] = rows->label[at];
        weight[i + k] = rows->weight ? rows->weight[at] : 1.0;
    }
    if (m) NAME(subtract_means)(rows, b, m, start + i, R, stride, phi, label + i);
    for (int k = 0; k < R; k++) {
        part[k] = weight[i + k] * label[i + k];
        sums->weight += weight[i + k];
    }
    NAME(add_scaled)(phi, part, R, b->p, stride, sums->label_basis);
    NAME(pack)(phi, R, stride, i, panels);
}

/* Add n rows from start on, at most BLOCK_ROWS. */
TARGET INLINE void NAME(add_block)(
    const struct rows *rows, const struct basis *b, const struct means *m, int64_t start, int n,
    int stride, double *room, struct sums *sums
) {
    double label[BLOCK_ROWS], weight[BLOCK_ROWS];
    double *panels = room, *scaled = panels + BLOCK_ROWS * (int64_t)stride;
    double *phi = scaled + BLOCK_ROWS * (int64_t)stride;
    int i = 0;
    for (; i + ROWS <= n; i += ROWS)
        NAME(add_rows)(rows, b, m, start, i, ROWS, stride, phi, panels, label, weight, sums);
    for (; i < n; i++)
        NAME(add_rows)(rows, b, m, start, i, 1, stride, phi, panels, label, weight, sums);
    if (rows->weight) NAME(scale_panels)(panels, weight, n, stride, scaled);
    NAME(add_gram)(rows->weight ? scaled : panels, panels, n, stride, sums->gram);
    if (sums->label_cross && !sums->unit) {
        for (i = 0; i < n; i++) label[i] = weight[i] * fabs(label[i]);
        NAME(scale_panels)(panels, label, n, stride, scaled);
        NAME(add_gram)(scaled, panels, n, stride, sums->label_cross);
    }
}

TARGET INLINE void NAME(combine_rows)(
    const struct rows *rows, const struct basis *b, const double *coef, int r, int64_t start,
    int R, double *phi, double *out
) {
    double column[ROWS];
    NAME(row_values)(rows, b, start, R, b->p, phi);
    for (int c = 0; c < r; c++) {
        NAME(dot)(phi, coef + (int64_t)c * b->p, R, b->p, b->p, column);
        for (int i = 0; i < R; i++) out[i * r + c] = column[i];
    }
}

TARGET static void NAME(combine)(
    const struct rows *rows, const struct basis *b, const double *coef, int r, double *phi,
    double *out
) {
    int64_t i = 0;
    for (; i + ROWS <= rows->n; i += ROWS)
        NAME(combine_rows)(rows, b, coef, r, i, ROWS, phi, out + i * r);
    for (; i < rows->n; i++) NAME(combine_rows)(rows, b, coef, r, i, 1, phi, out + i * r);
}

TARGET static void NAME(add_up)(
    const struct rows *rows, const struct basis *b, const struct means *m, int stride,
    double *room, struct sums *sums
) {
    sums->unit = m == NULL && sums->label_cross != NULL;
    for (int64_t i = 0; sums->unit && i < rows->n; i++)
        sums->unit = fabs(rows->label[POSITION(rows, i)]) == 1.0;
    for (int64_t start = 0; start < rows->n; start += BLOCK_ROWS) {
        const int64_t left = rows->n - start;
        const int n = left < BLOCK_ROWS ? (int)left : BLOCK_ROWS;
        NAME(add_block)(rows, b, m, start, n, stride, room, sums);
    }
}

#undef TARGET
#undef LANES
#undef NAME
#undef lanes
#undef LOAD
#undef STORE
#undef EACH
#undef ADD
#undef MUL
#undef FMA
#undef FNMA
