/* Linear systems with many ridges; included by kernels.h, once for each processor. */

/* Reflect a symmetric matrix to a tridiagonal one, and a vector along with it.

   A, (stride, stride) and zero beyond p, is overwritten. Reflection k, I - beta v v^T, has its v
   in row k of V, zero up to and with k; it is applied to A from both sides. Both triangles of A
   are kept, so that every line of it is contiguous. */
TARGET INLINE void NAME(reflect)(
    double *A, int p, int stride, double *V, double *beta, double *beside, double *right
) {
    double *w = V + (int64_t)p * stride, largest = 0.0;
    for (int i = 0; i < p; i++) {
        const double size = fabs(A[(int64_t)i * stride + i]);
        largest = size > largest ? size : largest;
    }
    /* Of a matrix of low rank nothing is left but rounding, whose squares vanish at last. */
    const double nothing = 1e-200 * largest * largest;
    for (int k = 0; k + 1 < p; k++) {
        const int from = (k + 1) / LANES * LANES, n = stride - from;
        double *v = V + (int64_t)k * stride, square, scale[1], product[1];
        for (int i = 0; i < stride; i++) v[i] = i > k ? A[(int64_t)i * stride + k] : 0.0;
        NAME(dot)(v + from, v + from, 1, n, stride, &square);
        beside[k] = v[k + 1] > 0.0 ? -sqrt(square) : sqrt(square);
        beta[k] = 0.0;
        if (k + 2 >= p || square <= nothing || square == v[k + 1] * v[k + 1]) { /* nothing to be done */
            beside[k] = v[k + 1];
            continue;
        }
        beta[k] = 1.0 / (square - v[k + 1] * beside[k]);
        v[k + 1] -= beside[k];
        for (int i = 0; i < stride; i++) w[i] = 0.0;
        int row = k + 1;
        for (; row + ROWS <= p; row += ROWS)
            NAME(dot)(A + (int64_t)row * stride + from, v + from, ROWS, n, stride, w + row);
        for (; row < p; row++)
            NAME(dot)(A + (int64_t)row * stride + from, v + from, 1, n, stride, w + row);
        for (int i = k + 1; i < p; i++) w[i] *= beta[k];
        NAME(dot)(w + from, v + from, 1, n, stride, product);
        scale[0] = -0.5 * beta[k] * product[0];
        NAME(add_scaled)(v + from, scale, 1, n, stride, w + from);
        for (int i = k + 1; i < p; i++) {
            double *line = A + (int64_t)i * stride + from;
            const double minus_v = -v[i], minus_w = -w[i];
            for (int l = 0; l < n; l += LANES)
                NAME(store)(
                    NAME(load)(line + l) + minus_v * NAME(load)(w + from + l) +
                        minus_w * NAME(load)(v + from + l),
                    line + l);
        }
        NAME(dot)(right + from, v + from, 1, n, stride, product);
        scale[0] = -beta[k] * product[0];
        NAME(add_scaled)(v + from, scale, 1, n, stride, right + from);
    }
}

/* Solve (A + ridge I) x = right for all ridges, a vector of them at a time.

   Tridiagonal, a ridge is added to the diagonal alone. Elimination goes down and up, then the
   solutions are reflected back. x is (p, n_ridges); room is for p + 1 rows of A, 3 rows more, and
   a row of ridges for each row of A. */
TARGET INLINE void NAME(ridge_path)(
    double *A, int p, int stride, double *right, const double *ridges, int n_ridges,
    double *room, double *x
) {
    double *V = room, *beta = room + (int64_t)(p + 1) * stride, *beside = beta + stride;
    double *pivot = beside + stride, largest = 1e-300;
    NAME(reflect)(A, p, stride, V, beta, beside, right);
    for (int j = 0; j < p; j++) {
        const double size = fabs(A[(int64_t)j * stride + j]);
        largest = size > largest ? size : largest;
    }
    for (int f = 0; f < n_ridges; f += LANES) {
        const lanes zero = NAME(load)(ridges + f) * 0.0;
        lanes above = zero + 1.0, below = zero, value = zero;
        for (int j = 0; j < p; j++) {
            const double next = j ? beside[j - 1] : 0.0;
            lanes now = NAME(load)(ridges + f) + A[(int64_t)j * stride + j];
            value = right[j] - next * value / above;
            now -= next * next / above;
            /* At least the ridge but for rounding, which must not turn its sign. */
            for (int i = 0; i < LANES; i++)
                now[i] = now[i] > 2.2e-16 * largest ? now[i] : 2.2e-16 * largest;
            above = now;
            NAME(store)(now, pivot + (int64_t)j * n_ridges + f);
            NAME(store)(value, x + (int64_t)j * n_ridges + f);
        }
        for (int j = p - 1; j >= 0; j--) {
            double *to = x + (int64_t)j * n_ridges + f;
            below = NAME(load)(to) - (j + 1 < p ? beside[j] : 0.0) * below;
            below = below / NAME(load)(pivot + (int64_t)j * n_ridges + f);
            NAME(store)(below, to);
        }
        for (int k = p - 2; k >= 0; k--) {
            const double *v = V + (int64_t)k * stride;
            lanes sum = zero;
            if (beta[k] == 0.0) continue;
            for (int j = k + 1; j < p; j++)
                sum += v[j] * NAME(load)(x + (int64_t)j * n_ridges + f);
            sum *= beta[k];
            for (int j = k + 1; j < p; j++) {
                double *to = x + (int64_t)j * n_ridges + f;
                NAME(store)(NAME(load)(to) - v[j] * sum, to);
            }
        }
    }
}

TARGET static void NAME(ridge_paths)(
    int n, double *A, int p, int stride, double *right, const double *ridges, int n_ridges,
    double *room, double *x
) {
    for (int64_t i = 0; i < n; i++)
        NAME(ridge_path)(
            A + i * stride * stride, p, stride, right + i * stride, ridges, n_ridges, room,
            x + i * p * n_ridges);
}
