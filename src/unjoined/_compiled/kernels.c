/* Gaussian basis values, their combinations and the sums of their products, without Python's lock.

   The arithmetic of the numpy code of basis and sums, in one go over rows that stay in the cache:
   gather, scale, distances, exponentials, means, labels, symmetric updates. Every array comes
   through the buffer protocol and is checked here: type, dimensions, shape, order, alignment. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 4           /* computed together: their sums fit in the registers */
#define MAX_FEATURES 64
#define MIN_GAUSSIANS 16 /* two vectors of the widest kind */
#define MAX_GAUSSIANS 100000
#define BLOCK_ROWS 192   /* added up together: their values stay in the cache */
#define FARTHEST 1e30    /* as in basis/functions.py */
#define STRIDE_LANES 8   /* strides are multiples of this, whatever the processor */

struct rows {
    const double *X;      /* (all, d), in C order */
    const int64_t *at;    /* (n,) positions, or NULL for the first n */
    int64_t n;
    const double *label;  /* (all,) */
    const double *weight; /* (all,), or NULL for ones */
};

struct basis {
    int d, p, n_gaussians; /* functions before the Gaussians are linear */
    double width;          /* of the Gaussians, in scaled units */
    const double *shift;   /* (d,) subtracted from the features */
    const double *factor;  /* (d,) by which they are multiplied then */
    const double *product; /* (d + 2, n_gaussians) what (z, |z|^2, 1) is multiplied by */
    const double *origin;  /* (d,) in scaled units, or NULL if no function is linear */
};

struct means {
    int r;                /* one mean, or one for each population */
    double bound;
    const double *coef;   /* (r, p) */
    const double *slope;  /* (r, d), or NULL */
    const double *offset; /* (r,) */
};

struct sums {
    int unit; /* whether labels were all -1 or +1, so that label_cross was left alone */
    double weight;
    double *label_basis; /* (p,) */
    double *gram;        /* (stride, stride), blocks of the lower triangle */
    double *label_cross; /* (stride, stride), the same, or NULL if it is not wanted */
};

#define POSITION(rows, i) ((rows)->at ? (rows)->at[i] : (i))

/* Levels, 0 being a processor on which numpy is faster than plain C: it has half the speed. GCC and
   Clang compile the vectors of kernels.h for any processor, on x86-64 for two kinds, of which the
   better one is chosen when the module is used. Microsoft's compiler has AVX2 by its names. */
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define INLINE static __forceinline
#endif

#if defined(__GNUC__) && defined(__x86_64__)
#define TARGET __attribute__((target("arch=haswell")))
#define LANES 4
#define NAME(f) f##_first
#include "kernels.h"
#define TARGET __attribute__((target("arch=skylake-avx512")))
#define LANES 8
#define NAME(f) f##_second
#include "kernels.h"
#define CALL(f, ...)                                 \
    do {                                             \
        if (level == 2) f##_second(__VA_ARGS__);     \
        else f##_first(__VA_ARGS__);                 \
    } while (0)

static int best_level(void) {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd"))
        return 2;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#elif defined(__GNUC__) || (defined(_MSC_VER) && defined(_M_X64))
#if !defined(__GNUC__)
#include <intrin.h>
#endif
#define TARGET
#define LANES 4 /* on ARM two vectors, of the 32 it has */
#define NAME(f) f##_first
#include "kernels.h"
#define CALL(f, ...) ((void)level, f##_first(__VA_ARGS__))

static int best_level(void) {
#if defined(__GNUC__)
    return 1;
#else
    int one[4], seven[4];
    __cpuid(one, 1);
    __cpuidex(seven, 7, 0);
    const int kept = (one[2] >> 27 & 1) && (_xgetbv(0) & 6) == 6; /* by the operating system */
    return kept && (one[2] >> 12 & 1) && (seven[1] >> 5 & 1);
#endif
}
#else
#define CALL(f, ...) (void)level

static int best_level(void) { return 0; }
#endif

/* Arrays in use by one call. After the first one that does not fit, nothing more is looked at. */
struct held {
    Py_buffer view[20];
    int n, bad;
};

enum { WRITTEN = 1, WHOLE = 2, OPTIONAL = 4 };
enum { ANY = -1, NONE = -2 }; /* number of rows or columns; columns of a vector */

static void refuse(struct held *held, const char *message) {
    if (!held->bad) PyErr_SetString(PyExc_ValueError, message);
    held->bad = 1;
}

static int fits(Py_ssize_t found, Py_ssize_t wanted) { return wanted == ANY || found == wanted; }

/* Return where the numbers of an array lie that has this shape. NULL with an exception set if it
   is another one, and for None if that is allowed. */
static void *numbers(
    struct held *held, PyObject *from, const char *name, Py_ssize_t rows, Py_ssize_t columns,
    int flags
) {
    if (held->bad || ((flags & OPTIONAL) && from == Py_None)) return NULL;
    Py_buffer *view = &held->view[held->n];
    const int wanted = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (flags & WRITTEN ? PyBUF_WRITABLE : 0);
    held->bad = PyObject_GetBuffer(from, view, wanted) != 0;
    if (held->bad) return NULL;
    held->n++;
    const char *type = view->format ? view->format : "B";
    const int whole = !strcmp(type, "l") || !strcmp(type, "q");
    held->bad = view->itemsize != 8 || (uintptr_t)view->buf % 8 ||
        !(flags & WHOLE ? whole : !strcmp(type, "d"));
    if (held->bad) {
        PyErr_Format(
            PyExc_TypeError, "compiled arithmetic takes %s as aligned %s, not of type '%s'.", name,
            flags & WHOLE ? "int64" : "float64", type);
        return NULL;
    }
    held->bad = view->ndim != (columns == NONE ? 1 : 2) || !fits(view->shape[0], rows) ||
        (columns != NONE && !fits(view->shape[1], columns));
    if (held->bad) {
        PyErr_Format(PyExc_ValueError, "compiled arithmetic takes %s of another shape.", name);
        return NULL;
    }
    return view->buf;
}

/* How long the array that was taken last is, in one of its dimensions. */
static Py_ssize_t length(const struct held *held, int dimension) {
    return held->bad ? 0 : held->view[held->n - 1].shape[dimension];
}

/* What either function takes first: the level, a basis, rows and positions or None. */
struct given {
    int level;
    PyObject *shift, *factor, *product, *origin, *X, *at;
};

static void take(struct held *held, struct given *from, struct basis *b, struct rows *rows) {
    b->shift = numbers(held, from->shift, "shift", ANY, NONE, 0);
    const Py_ssize_t d = length(held, 0);
    b->factor = numbers(held, from->factor, "factor", d, NONE, 0);
    b->origin = numbers(held, from->origin, "origin", d, NONE, OPTIONAL);
    b->product = numbers(held, from->product, "product", d + 2, ANY, 0);
    const Py_ssize_t g = length(held, 1);
    if (from->level < 1 || from->level > best_level())
        refuse(held, "this processor has no such level.");
    if (d < 1 || d > MAX_FEATURES || g < MIN_GAUSSIANS || g > MAX_GAUSSIANS)
        refuse(held, "compiled arithmetic takes 1 to 64 features and 16 to 100,000 Gaussians.");
    b->d = (int)d;
    b->n_gaussians = (int)g;
    b->p = (int)g + (b->origin ? 1 + (int)d : 0);
    rows->X = numbers(held, from->X, "X", ANY, d, 0);
    const int64_t n = rows->n = length(held, 0);
    rows->at = numbers(held, from->at, "at", ANY, NONE, WHOLE | OPTIONAL);
    if (rows->at) rows->n = length(held, 0);
    for (int64_t i = 0; rows->at && i < rows->n; i++)
        if (rows->at[i] < 0 || rows->at[i] >= n) refuse(held, "positions must be those of rows.");
}

/* Return zeros that begin with a cache line, and where to free them. */
static double *zeros(struct held *held, int64_t n, void **raw) {
    *raw = held->bad ? NULL : calloc((size_t)n + 8, sizeof(double));
    if (!held->bad && *raw == NULL) PyErr_NoMemory();
    held->bad |= *raw == NULL;
    return (double *)(((uintptr_t)*raw + 63) / 64 * 64);
}

static PyObject *finish(struct held *held, void *raw, PyObject *result) {
    free(raw);
    while (held->n) PyBuffer_Release(&held->view[--held->n]);
    return result;
}

static PyObject *py_combine(PyObject *self, PyObject *args) {
    struct held held = {.n = 0};
    struct given from;
    struct basis b = {0};
    struct rows rows = {0};
    PyObject *coefs, *outs;
    void *raw;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "i(OOOdO)OOOO", &from.level, &from.shift, &from.factor, &from.product, &b.width,
            &from.origin, &from.X, &from.at, &coefs, &outs))
        return NULL;
    take(&held, &from, &b, &rows);
    const double *coef = numbers(&held, coefs, "coef", ANY, b.p, 0);
    const Py_ssize_t r = length(&held, 0);
    double *out = numbers(&held, outs, "out", (Py_ssize_t)rows.n, r, WRITTEN);
    double *phi = zeros(&held, (int64_t)ROWS * b.p, &raw);
    if (held.bad) return finish(&held, raw, NULL);
    const int level = from.level;
    Py_BEGIN_ALLOW_THREADS
    CALL(combine, &rows, &b, coef, (int)r, phi, out);
    Py_END_ALLOW_THREADS
    return finish(&held, raw, Py_NewRef(Py_None));
}

/* The length of a row in memory: whole vectors, and not a multiple of 4096 bytes, since rows that
   far apart would share few places of the cache. */
static int padded(int columns) {
    const int stride = (columns + STRIDE_LANES - 1) / STRIDE_LANES * STRIDE_LANES;
    return stride % 512 ? stride : stride + STRIDE_LANES;
}

/* Add the lower triangle of a padded matrix to that of a matrix of n columns, unless it is NULL. */
static void add_lower(const double *from, int stride, double *to, int n) {
    for (int64_t i = 0; to && i < n; i++)
        for (int64_t j = 0; j <= i; j++) to[i * n + j] += from[i * stride + j];
}

static PyObject *py_add_up(PyObject *self, PyObject *args) {
    struct held held = {.n = 0};
    struct given from;
    struct basis b = {0};
    struct rows rows = {0};
    struct means m = {0};
    struct sums sums = {0};
    PyObject *row[2], *mean[3], *to[3];
    void *raw;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "i(OOOdO)(OOOO)(OOOd)(OOO)", &from.level, &from.shift, &from.factor,
            &from.product, &b.width, &from.origin, &from.X, &from.at, &row[0], &row[1], &mean[0],
            &mean[1], &mean[2], &m.bound, &to[0], &to[1], &to[2]))
        return NULL;
    take(&held, &from, &b, &rows);
    rows.label = numbers(&held, row[0], "label", ANY, NONE, 0);
    const Py_ssize_t n = length(&held, 0);
    numbers(&held, from.X, "X", n, b.d, 0); /* as many as labels */
    rows.weight = numbers(&held, row[1], "weight", n, NONE, OPTIONAL);
    m.coef = numbers(&held, mean[0], "coef", ANY, b.p, OPTIONAL);
    m.r = m.coef ? (int)length(&held, 0) : 0;
    m.slope = numbers(&held, mean[1], "slope", m.r, b.d, OPTIONAL);
    if (m.coef) m.offset = numbers(&held, mean[2], "offset", m.r, NONE, 0);
    sums.label_basis = numbers(&held, to[0], "label_basis", b.p, NONE, WRITTEN);
    double *gram = numbers(&held, to[1], "gram", b.p, b.p, WRITTEN);
    double *cross = numbers(&held, to[2], "label_cross", b.p, b.p, WRITTEN | OPTIONAL);
    const int stride = padded(b.p), level = from.level;
    const int64_t size = (int64_t)stride * stride;
    sums.gram = zeros(&held, 2 * size + (2 * BLOCK_ROWS + ROWS) * (int64_t)stride, &raw);
    if (held.bad) return finish(&held, raw, NULL);
    double *padded_cross = sums.gram + size;
    sums.label_cross = cross ? padded_cross : NULL;
    Py_BEGIN_ALLOW_THREADS
    CALL(add_up, &rows, &b, m.coef ? &m : NULL, stride, padded_cross + size, &sums);
    add_lower(sums.gram, stride, gram, b.p);
    add_lower(padded_cross, stride, cross, b.p);
    Py_END_ALLOW_THREADS
    return finish(&held, raw, Py_BuildValue("dO", sums.weight, sums.unit ? Py_True : Py_False));
}

static PyObject *py_level(PyObject *self, PyObject *unused) {
    (void)self;
    (void)unused;
    return PyLong_FromLong(best_level());
}

static PyMethodDef methods[] = {
    {"level", py_level, METH_NOARGS, "Return the highest level of this processor."},
    {"combine", py_combine, METH_VARARGS, "Write basis values at rows times coefficients."},
    {"add_up", py_add_up, METH_VARARGS, "Add rows to sums."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_rows", "Compiled arithmetic of rows.", 0, methods, slots,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__rows(void) { return PyModuleDef_Init(&module); }
